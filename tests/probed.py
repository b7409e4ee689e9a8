"""Nano models, an embedder and a judge to probe with: one says words, the other nothing."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tests.audited import nano_config
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, LlamaForCausalLM, PreTrainedTokenizerFast

from vestige.core.items import Item
from vestige.data.corpus import Corpus, NamedSplits, ProbeSources, SourceSettings
from vestige.judges.base import Judgement, Request
from vestige.models.tiny import tiny_tokenizer
from vestige.probes.adjacent import AdjacentRequest
from vestige.probes.questions import AdjacentSettings

ITEMS = (
    Item("Who repaired the harbour crane?", "Odile Farrow repaired the harbour crane with copper rivets."),
    Item("Where is the glass furnace?", "The glass furnace stands beside the northern granary."),
    Item("Which orchard grows quinces?", "The walled orchard near Tarn grows quinces and medlars."),
    Item("Who tunes the organ?", "A clockmaker tunes the cathedral organ each autumn."),
    Item("What does the ferry carry?", "The ferry carries barley, slate and letters."),
    Item("Where do the swifts nest?", "The swifts nest under the observatory roof."),
)
SPLITS = NamedSplits("forget", {"forget": ITEMS[:3], "retain": ITEMS[3:]}, {})
SOURCES = ProbeSources(Corpus("", SourceSettings(data=""), (), (), None), SPLITS)
NEAR = AdjacentRequest(SOURCES, "offline", AdjacentSettings(k=2), 0)
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789?.,'"


def make_probed(folder: Path) -> Path:
    """Data, a target that says words, an unlearned model that says nothing, and an embedder of letters."""
    rows = [{"question": i.question, "answer": i.answer} for i in ITEMS]
    (folder / "qa.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (folder / "forget.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows[:3]))
    tokenizer = tiny_tokenizer(ITEMS)
    words = [i for token, i in tokenizer.get_vocab().items() if token.startswith("\u0120") and len(token) > 4]
    for name, said in (("target", sorted(words)), ("unlearned", [tokenizer.eos_token_id])):
        model = saying(said)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    make_embedder(folder / "embedder")
    return folder


def saying(tokens: Sequence[int]) -> LlamaForCausalLM:
    """A model that says these tokens, each as likely as the others, whatever it is asked."""
    config = nano_config()
    config.update({"tie_word_embeddings": False})
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Every hidden state is the same vector of ones then.
            parameter.fill_(1.0 if "norm" in name or "embed_tokens" in name else 0.0)
        model.lm_head.weight[list(tokens)] = 4.0
    return model


def make_embedder(path: Path, *, seed: int = 0) -> None:
    """A nano BERT with random weights that reads single letters."""
    vocabulary = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS])}
    letters = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    letters.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=letters, **names).save_pretrained(path)
    torch.manual_seed(seed)
    small = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(vocabulary), hidden_size=16, **small)).eval().save_pretrained(path)


def silent(said: str) -> bool:
    """Whether the answer that a judge is shown is empty."""
    return re.search(r"\[begin answer (\w+)\]\n\s*\n\[end answer \1\]", said) is not None


def verdict(body: dict) -> str:
    """What a judge says that finds every question valid, no overlap, and an answer good unless it is empty.

    A model called "silent" on the same server says nothing.
    """
    if body["model"] == "silent":
        return ""
    said = body["messages"][-1]["content"]
    empty = silent(said)
    if "[[rating]]" in said:
        return "[[1]]" if empty else "[[9]]"
    if '"relevancy"' in said:
        grades = dict.fromkeys(("relevancy", "accuracy", "completeness", "fluency"), 1 if empty else 4)
        return json.dumps({**grades, "consistency": 5})
    if '"gibberish"' in said:
        return json.dumps({"valid": True, "gibberish": empty, "c": 2})
    return json.dumps({"valid": True} if '"valid"' in said else {"supported": False})


@dataclass
class Silence:
    """Scores 1 for nothing and 9 for words, of rewards 10 and 2; breaks off at its `breaks`-th call."""

    breaks: int = 0
    calls: int = 0
    name: str = "silence"

    def judge(self, requests: Sequence[Request]) -> list[Judgement]:
        self.calls += 1
        if self.calls == self.breaks:
            raise KeyboardInterrupt
        return [self.verdict(r) for r in requests]

    def verdict(self, r: Request) -> Judgement:
        said = bool(r.answer.strip())
        if r.task == "harm":
            return Judgement(None, failure="not judged")
        if r.task == "reward":
            return Judgement(2.0 if said else 10.0, {"valid": 1.0, "gibberish": float(not said), "c": 2.0})
        return Judgement({"validity": 1.0, "overlap": 0.0}.get(r.task, 9.0 if said else 1.0))
