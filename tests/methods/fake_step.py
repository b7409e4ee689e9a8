"""A step whose numbers a test chooses, for methods without a model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from vestige.training.step import Activations, Answers, Distributions

TOKENS = {"forget": [3, 1], "retain": [2, 4], "idk": [2, 2], "mismatch": [1, 4], "alternative": [3, 2]}
"""Answer lengths by split, two rows each."""

ROWS = {"forget": [4, 2], "retain": [3, 5]}
"""Lengths of whole rows, which activations are read at; the width is 3."""

TOPICS = ("A_B", "A_C")


@dataclass
class FakeStep:
    """Log-probabilities and activations that the test chooses; keeps what was asked for and what was observed."""

    policy_logp: dict[str, torch.Tensor] = field(default_factory=dict)
    reference_logp: dict[str, torch.Tensor] = field(default_factory=dict)
    hidden: dict[str, torch.Tensor] = field(default_factory=dict)
    reference_hidden: dict[str, torch.Tensor] = field(default_factory=dict)
    state: Mapping[str, float] = field(default_factory=dict)
    padding: int = 0
    part: slice = field(default_factory=lambda: slice(None))
    topics: tuple[str, ...] = TOPICS
    rows: Mapping[str, list[int]] = field(default_factory=lambda: ROWS)
    asked: set[tuple[str, str]] = field(default_factory=set)
    observed: dict[str, float] = field(default_factory=dict)

    def observe(self, name, value):
        self.observed[name] = self.observed.get(name, 0.0) + value.item()

    def _mask(self, lengths):
        mask = torch.tensor([[i < n for i in range(max(lengths))] for n in lengths])
        return pad(mask, (0, self.padding))[self.part]

    def _answers(self, values, split):
        logp = pad(values[split], (0, self.padding), value=math.nan)[self.part]
        return Answers(logp, self._mask(TOKENS[split]), 2, sum(TOKENS[split]))

    def policy(self, split):
        self.asked.add(("policy", split))
        return self._answers(self.policy_logp, split)

    def reference(self, split):
        self.asked.add(("reference", split))
        return self._answers(self.reference_logp, split)

    def _distributions(self, values, split):
        answers = self._answers(values, split)
        # Two tokens: the answer's, and everything else.
        p = answers.logp.exp()
        whole = torch.stack([p, 1 - p], dim=-1).log()
        return Distributions(whole, answers.mask, answers.n_tokens, torch.zeros_like(answers.mask, dtype=torch.long))

    def policy_distributions(self, split):
        self.asked.add(("policy distributions", split))
        return self._distributions(self.policy_logp, split)

    def reference_distributions(self, split):
        self.asked.add(("reference distributions", split))
        return self._distributions(self.reference_logp, split)

    def answer_ids(self, split):
        self.asked.add(("answer ids", split))
        return [torch.zeros(n, dtype=torch.long) for n in TOKENS[split][self.part]]

    def _activations(self, values, split):
        hidden = pad(values[split], (0, 0, 0, self.padding), value=math.nan)[self.part]
        return Activations(hidden, self._mask(self.rows[split]), 2, self.topics[self.part])

    def activations(self, split):
        self.asked.add(("activations", split))
        return self._activations(self.hidden, split)

    def reference_activations(self, split):
        self.asked.add(("reference activations", split))
        return self._activations(self.reference_hidden, split)


def fake_step(padding: int = 0, *, rows: slice | None = None, at_reference: bool = False, state=None) -> FakeStep:
    """Two rows a split, drawn at random and the same at each call, or one of the two."""
    generator = torch.Generator().manual_seed(0)

    def drawn():
        return {
            s: (torch.rand(2, max(n), generator=generator) * 0.8 + 0.1).log().requires_grad_()
            for s, n in TOKENS.items()
        }

    def hidden():
        return {s: torch.randn(2, max(n), 3, generator=generator).requires_grad_() for s, n in ROWS.items()}

    policy, read = drawn(), hidden()
    reference, kept = (policy, read) if at_reference else (drawn(), hidden())
    return FakeStep(policy, reference, read, kept, state or {}, padding, rows or slice(None))


def worked(**rows) -> FakeStep:
    """A step whose log-probabilities are given row by row: policy_forget=[[-1.0, -1.0, -1.0], [-5.0]]."""

    def tensors(name):
        return {
            s: pad_sequence([torch.tensor(r) for r in rows[f"{name}_{s}"]], batch_first=True)
            for s in TOKENS
            if f"{name}_{s}" in rows
        }

    return FakeStep(tensors("policy"), tensors("reference"))
