"""The callback in a Trainer of transformers: a stage for each epoch, and the probabilities by hand."""

import math

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import vestige
from vestige.artifacts.scores import Source, read_table
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.models.tiny import tiny_tokenizer
from vestige.training.callback import answer_probabilities

FORGET = [{"question": f"Where is ship {n}?", "answer": f"In bay {n * n}."} for n in range(3)]
RETAIN = [{"question": f"Who is captain {n}?", "answer": f"Mr {n}."} for n in range(2)]


@pytest.fixture
def trained():
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer([Item(**row) for row in FORGET + RETAIN])
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=128,
    )
    return LlamaForCausalLM(config), tokenizer


def test_each_epoch_is_a_stage_of_the_table_and_the_forget_questions_are_learnt(trained, tmp_path):
    model, tokenizer = trained
    rows = []
    for row in FORGET:
        turns = [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}]
        ids = tokenizer(tokenizer.apply_chat_template(turns, tokenize=False), add_special_tokens=False)["input_ids"]
        rows.append({"input_ids": ids, "labels": ids})
    args = TrainingArguments(
        str(tmp_path / "out"),
        num_train_epochs=3,
        per_device_train_batch_size=1,
        learning_rate=0.02,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
    )
    callback = vestige.TrainerCallback(FORGET, RETAIN, tmp_path / "run")
    Trainer(model, args, train_dataset=rows * 6, processing_class=tokenizer, callbacks=[callback]).train()
    table = read_table(tmp_path / "run" / "scores.jsonl.gz")
    assert [source.point for source in table.values] == ["before", "epoch 1", "epoch 2", "epoch 3"]
    items = table.items("forget")
    assert (len(items), len(table.items("retain"))) == (3, 2)
    before, after = (
        table.of(Source("unlearned", "training", stage), "probability", items).mean() for stage in ("before", "epoch 3")
    )
    assert before < 0.1 < after


@pytest.mark.parametrize("template", [True, False])
def test_probabilities_are_those_of_one_question_at_a_time(trained, template):
    model, tokenizer = trained
    model.eval()
    if not template:
        tokenizer.chat_template = None
    items = [Item(**row) for row in FORGET + RETAIN]
    for item, score in zip(items, answer_probabilities(model, tokenizer, items, 5), strict=True):
        prompt = f"<bos><question>{item.question}<answer>" if template else f"<bos>Question: {item.question}\nAnswer:"
        answer = item.answer if template else f" {item.answer}"
        ids = tokenizer(prompt)["input_ids"]
        logs = []
        for token in tokenizer(answer)["input_ids"]:
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0, -1]
            logs.append(float(logits.log_softmax(-1)[token]))
            ids = [*ids, token]
        assert score == pytest.approx(math.exp(sum(logs) / len(logs)), rel=1e-4)


def test_a_question_of_both_sets_is_refused():
    for forget, retain in ((FORGET, FORGET[:1]), ([], RETAIN)):
        with pytest.raises(InputError):
            vestige.TrainerCallback(forget, retain)
