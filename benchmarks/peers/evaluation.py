"""The peer: four measurements of a question with options, one pass over the data each, as people run them today.

Written here in the manner of their public code, so that both arms can run in one process: open-unlearning's
`evaluate_probability`, `tokenwise_vocab_logprobs` with ranks by sorting, and `eval_text_similarity`
(src/evals/metrics/utils.py), and lm-evaluation-harness' `HFLM._loglikelihood_tokens` (lm_eval/models/huggingface.py).
Batches are padded to their longest row; every pass computes the logits of every position.

Axes: B rows, T positions, V vocabulary. Log-probabilities are in nats.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from rouge_score.rouge_scorer import RougeScorer
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

BATCH_SIZE = 16
IGNORED = -100


@dataclass(frozen=True)
class Question:
    """Token ids of a prompt, of its answer with the token that ends the turn, and of its options; the answer's text."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    options: tuple[tuple[int, ...], ...]
    answer_text: str


@dataclass(frozen=True)
class Measured:
    """What is said of one question: mean loss a token, ranks from 1, the reply, its ROUGE-1 recall, options' sums."""

    loss: float
    ranks: tuple[int, ...]
    reply: str
    rouge1_recall: float
    options: tuple[float, ...]


def measure(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, questions: Sequence[Question], *, max_new_tokens: int
) -> list[Measured]:
    """The four passes, one after the other."""
    losses, ranks, replies = [], [], []
    for batch in _batches(questions):
        losses += probabilities(model, batch)
    for batch in _batches(questions):
        ranks += sorted_ranks(model, batch)
    for batch in _batches(questions):
        replies += text_similarity(model, tokenizer, batch, max_new_tokens=max_new_tokens)
    sums = iter(loglikelihoods(model, [(q.prompt, option) for q in questions for option in q.options]))
    return [
        Measured(loss, rank, *reply, tuple(next(sums)[0] for _ in q.options))
        for q, loss, rank, reply in zip(questions, losses, ranks, replies, strict=True)
    ]


def _batches(questions: Sequence[Question]) -> Iterator[Sequence[Question]]:
    for start in range(0, len(questions), BATCH_SIZE):
        yield questions[start : start + BATCH_SIZE]


def _collated(model: PreTrainedModel, batch: Sequence[Question]) -> dict[str, Int[Tensor, "B T"]]:
    """Prompts with answers, padded on the right; labels leave the prompt out."""
    rows = [q.prompt + q.answer for q in batch]
    width = max(map(len, rows))
    ids, mask = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, dtype=torch.long)
    labels = torch.full((len(rows), width), IGNORED)
    for n, (question, row) in enumerate(zip(batch, rows, strict=True)):
        ids[n, : len(row)] = torch.tensor(row)
        mask[n, : len(row)] = 1
        labels[n, len(question.prompt) : len(row)] = torch.tensor(question.answer)
    found = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {name: value.to(model.device) for name, value in found.items()}


@torch.no_grad()
def probabilities(model: PreTrainedModel, batch: Sequence[Question]) -> list[float]:
    """The mean loss of each answer's tokens."""
    given = _collated(model, batch)
    logits = model(**given).logits[..., :-1, :].contiguous()
    labels = given["labels"][..., 1:].contiguous()
    losses = functional.cross_entropy(logits.transpose(-1, -2), labels, ignore_index=IGNORED, reduction="none").sum(-1)
    means: list[float] = (losses / (given["labels"] != IGNORED).sum(-1)).tolist()
    return means


@torch.no_grad()
def sorted_ranks(model: PreTrainedModel, batch: Sequence[Question]) -> list[tuple[int, ...]]:
    """The place of each answer's token in the vocabulary sorted by probability; the end of the turn is left out."""
    given = _collated(model, batch)
    logp = functional.log_softmax(model(**given).logits, dim=-1)[:, :-1]
    found = []
    for row, labels in zip(logp, given["labels"], strict=True):
        places = (labels != IGNORED).nonzero(as_tuple=True)[0][:-1]
        order = row[places[0] - 1 : places[-1]].argsort(dim=-1, descending=True)
        found.append(tuple(((order == labels[places][:, None]).nonzero(as_tuple=True)[1] + 1).tolist()))
    return found


@torch.no_grad()
def text_similarity(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, batch: Sequence[Question], *, max_new_tokens: int
) -> list[tuple[str, float]]:
    """A greedy reply by `generate`, prompts padded on the left, and its ROUGE-1 recall."""
    width = max(len(q.prompt) for q in batch)
    ids, mask = torch.zeros(len(batch), width, dtype=torch.long), torch.zeros(len(batch), width, dtype=torch.long)
    for n, question in enumerate(batch):
        ids[n, width - len(question.prompt) :] = torch.tensor(question.prompt)
        mask[n, width - len(question.prompt) :] = 1
    generates: Any = model
    out = generates.generate(
        ids.to(model.device),
        attention_mask=mask.to(model.device),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        pad_token_id=tokenizer.eos_token_id,
    )
    texts = tokenizer.batch_decode(out[:, width:], skip_special_tokens=True)
    scorer = RougeScorer(["rouge1", "rougeL"], use_stemmer=True)
    return [
        (text.strip(), scorer.score(question.answer_text, text.strip())["rouge1"].recall)
        for text, question in zip(texts, batch, strict=True)
    ]


@torch.no_grad()
def loglikelihoods(
    model: PreTrainedModel, requests: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> list[tuple[float, bool]]:
    """The log-probability of each continuation, summed, and whether each of its tokens is the likeliest one.

    Longest first; the last token is not put in.
    """
    order = sorted(range(len(requests)), key=lambda n: (-sum(map(len, requests[n])), requests[n][0] + requests[n][1]))
    found: dict[int, tuple[float, bool]] = {}
    for start in range(0, len(order), BATCH_SIZE):
        chunk = order[start : start + BATCH_SIZE]
        rows = [(requests[n][0] + requests[n][1])[:-1] for n in chunk]
        ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
        logp = functional.log_softmax(model(ids.to(model.device)).logits, dim=-1)
        for n, row, own in zip(chunk, rows, logp, strict=True):
            found[n] = _one(own, len(row), requests[n][1])
    return [found[n] for n in range(len(requests))]


def _one(logp: Float[Tensor, "T V"], length: int, continuation: tuple[int, ...]) -> tuple[float, bool]:
    tokens = torch.tensor(continuation, device=logp.device)
    own = logp[length - len(tokens) : length]
    greedy = bool((own.argmax(-1) == tokens).all())
    return float(own.gather(-1, tokens[:, None]).sum()), greedy
