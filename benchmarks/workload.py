"""Models of stated shapes and rows of stated lengths, random but for their seed: what the training benchmarks run on.

Lengths are in tokens. Questions and answers are lognormal, so that a few rows are much longer than the rest, as in
sets of real questions; a peer that pads to the longest row of a batch pays for that.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from vestige.core.seeds import derive_seed, generator
from vestige.training.batching import Row, Split, UnlearnPlan

T = TypeVar("T")
EOS = 1
SHAPES = {
    "tiny": {
        "vocab_size": 4096,
        "hidden_size": 256,
        "intermediate_size": 688,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
    },
    # SmolLM2-135M's.
    "smol": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
}


def model_of(shape: str, seed: int = 0) -> LlamaForCausalLM:
    """A Llama of the shape with weights that follow from the seed, tied embeddings, no dropout, in float32."""
    sizes = {**SHAPES[shape], "max_position_embeddings": 512, "bos_token_id": 0, "eos_token_id": EOS}
    config = LlamaConfig.from_dict({**sizes, "tie_word_embeddings": True})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "benchmark weights", shape))
        return LlamaForCausalLM(config)


@dataclass(frozen=True)
class Workload:
    """Forget rows, as many retain rows and refusals, and the order in which an unlearning draws them."""

    rows: Mapping[Split, tuple[Row, ...]]
    plan: UnlearnPlan
    epochs: int

    def batches(self) -> list[dict[Split, list[Row]]]:
        """The rows of each effective batch of all epochs."""
        drawn = (batch for epoch in range(self.epochs) for batch in self.plan.epoch(epoch))
        return [{s: [self.rows[s][i] for i in numbers] for s, numbers in batch.items()} for batch in drawn]


def workload(*, vocabulary: int, n_rows: int, batch_size: int, epochs: int, seed: int = 0) -> Workload:
    """`n_rows` rows of each split. A refusal has its forget row's question."""
    forget = _rows("forget", n_rows, vocabulary, seed)
    rows: dict[Split, tuple[Row, ...]] = {"forget": forget, "retain": _rows("retain", n_rows, vocabulary, seed)}
    refusals = _rows("idk", n_rows, vocabulary, seed)
    rows["idk"] = tuple(_joined(f.ids[: f.start], r.ids[r.start :]) for f, r in zip(forget, refusals, strict=True))
    return Workload(rows, UnlearnPlan(n_rows, n_rows, {"idk": 1}, batch_size, seed), epochs)


def _rows(split: str, n: int, vocabulary: int, seed: int) -> tuple[Row, ...]:
    rng = generator(seed, "benchmark rows", split)
    questions = np.clip(rng.lognormal(np.log(20), 0.5, n), 6, 96).astype(int)
    answers = np.clip(rng.lognormal(np.log(16), 0.8, n), 2, 128).astype(int)
    return tuple(
        _joined(_tokens(rng, q, vocabulary), (*_tokens(rng, a, vocabulary), EOS))
        for q, a in zip(questions, answers, strict=True)
    )


def _tokens(rng: np.random.Generator, n: int, vocabulary: int) -> tuple[int, ...]:
    return tuple(int(t) for t in rng.integers(3, vocabulary, n))


def _joined(question: tuple[int, ...], answer: tuple[int, ...]) -> Row:
    # What the row is about: two topics, by turns of its first token.
    return Row(question + answer, len(question), len(question) + len(answer), topic=f"topic {question[0] % 2}")


def in_turn(arms: Mapping[str, Callable[[], T]], rounds: int) -> Iterator[tuple[str, T]]:
    """The result of each arm in each round, by its name. A first round is dropped.

    The order turns, so that no arm always follows the same other.
    """
    names = list(arms)
    for number in range(rounds + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            result = arms[name]()
            if number:
                yield name, result


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """The peer's seconds over ours: of the medians, and the least and the largest of the rounds."""
    of_rounds = [b / a for a, b in zip(ours, theirs, strict=True)]
    ratio = statistics.median(theirs) / statistics.median(ours)
    return {"ratio": round(ratio, 3), "low": round(min(of_rounds), 3), "high": round(max(of_rounds), 3)}
