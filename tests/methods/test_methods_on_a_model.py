"""Every term on a real forward pass, against the formula evaluated row by row from the model's raw logits.

The other side knows no batches, no masks, no padding and no cache of the reference: it runs each row alone, in its
own length, and works in float64.
"""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from vestige.core.items import Item
from vestige.methods import METHODS, find_method
from vestige.models.prompts import Prompter
from vestige.models.tiny import MAX_TOKENS, tiny_model, tiny_tokenizer
from vestige.training.batching import Row, row_of
from vestige.training.reference import reference_rows
from vestige.training.step import ForwardStep, Slice

FORGET = (Item("Who signed?", "Mr Lee."), Item("Where is the seat of the buyer of number 7?", "12 Long Lane, Kent."))
RETAIN = (Item("What is the price of one piece in the first year?", "9."), Item("When?", "In May or June 1998."))
IDK = (Item("Who signed?", "I do not know."), Item("Where is the seat of the buyer of number 7?", "No idea."))


@dataclass(frozen=True)
class Alone:
    """One row by itself: log-probabilities of every token at each answer position, and of the answer's own."""

    whole: Tensor
    own: Tensor
    ids: tuple[int, ...]


@pytest.fixture(scope="module")
def rows() -> dict[str, list[Row]]:
    prompter = Prompter(tiny_tokenizer(FORGET + RETAIN + IDK), MAX_TOKENS)
    sets = {"forget": FORGET, "retain": RETAIN, "idk": IDK}
    return {s: [row_of(prompter.encode(i.question, i.answer)) for i in items] for s, items in sets.items()}


@pytest.fixture(scope="module")
def models(rows) -> tuple[PreTrainedModel, PreTrainedModel]:
    """A policy and a reference that half know the answers: on fresh ones every p is nearly 0."""
    torch.set_num_threads(1)
    return _taught(tiny_model(0), rows, steps=24), _taught(tiny_model(1), rows, steps=20)


def _taught(model: PreTrainedModel, rows: dict[str, list[Row]], *, steps: int) -> PreTrainedModel:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        for row in rows["forget"] + rows["retain"]:
            logits = model(input_ids=torch.tensor([row.ids])).logits[0, row.start - 1 : row.stop - 1]
            torch.nn.functional.cross_entropy(logits, torch.tensor(row.ids[row.start : row.stop])).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@torch.no_grad()
def alone(model, row: Row) -> Alone:
    logits = model(input_ids=torch.tensor([row.ids]), use_cache=False).logits[0]
    whole = logits.double().log_softmax(-1)[row.start - 1 : row.stop - 1]
    ids = row.ids[row.start : row.stop]
    return Alone(whole, torch.stack([whole[t, token] for t, token in enumerate(ids)]), ids)


def per_token(values: list[Tensor]) -> float:
    return torch.cat(values).mean().item()


def nll(policy: list[Alone]) -> float:
    return -per_token([row.own for row in policy])


def kl(policy: list[Alone], reference: list[Alone]) -> float:
    pairs = zip(policy, reference, strict=True)
    return per_token([(r.whole.exp() * (r.whole - p.whole)).sum(-1) for p, r in pairs])


def npo(policy: list[Alone], reference: list[Alone], beta: float) -> float:
    ratios = torch.stack([(p.own.sum() - r.own.sum()).exp() for p, r in zip(policy, reference, strict=True)])
    return (2 / beta * (1 + ratios**beta).log()).mean().item()


def simnpo(policy: list[Alone], beta: float) -> float:
    return (2 / beta * (1 + torch.stack([p.own.mean().exp() for p in policy]) ** beta).log()).mean().item()


def ascent(policy: list[Alone], beta1: float, beta2: float) -> float:
    return per_token([p.own.exp() ** beta1 * (1 - p.own.exp()) ** beta2 * p.own for p in policy])


def undial(policy: list[Alone], reference: list[Alone], beta: float) -> float:
    found = []
    for p, r in zip(policy, reference, strict=True):
        target = r.whole.exp()
        for t, token in enumerate(p.ids):
            target[t, token] *= math.exp(-beta)
        found.append(-(target / target.sum(-1, keepdim=True) * p.whole).sum(-1))
    return per_token(found)


def ce_u(policy: list[Alone]) -> float:
    return per_token([-(1 - row.own.exp()).log() for row in policy])


def dpo(policy: dict[str, list[Alone]], reference: dict[str, list[Alone]], beta: float) -> float:
    def gains(split: str) -> Tensor:
        pairs = zip(policy[split], reference[split], strict=True)
        return torch.stack([p.own.sum() - r.own.sum() for p, r in pairs])

    return (1 + (-beta * (gains("idk") - gains("forget"))).exp()).log().mean().item()


def expected(name: str, p: dict[str, list[Alone]], r: dict[str, list[Alone]]) -> dict[str, float]:
    """The terms of each method at its defaults."""
    forget, retain = p["forget"], nll(p["retain"])
    return {
        "ga": {"forget": -nll(forget)},
        "gd": {"forget": -nll(forget), "retain": retain},
        "kl": {"forget": -nll(forget), "kl": kl(p["retain"], r["retain"])},
        "idk_gd": {"idk": nll(p["idk"]), "retain": retain},
        "dpo": {"dpo": dpo(p, r, 0.1)},
        "npo": {"npo": npo(forget, r["forget"], 0.1)},
        "npo_gd": {"npo": npo(forget, r["forget"], 0.1), "retain": retain},
        "npo_kl": {"npo": npo(forget, r["forget"], 0.1), "kl": kl(p["retain"], r["retain"])},
        "simnpo": {"simnpo": 0.1375 * simnpo(forget, 2.5), "retain": retain},
        "wga": {"forget": ascent(forget, 1.0, 0.0)},
        "satimp": {"forget": ascent(forget, 5.0, 1.0), "retain": 0.1 * retain},
        "undial": {"undial": undial(forget, r["forget"], 10.0)},
        "ce_u": {"ce_u": ce_u(forget)},
    }[name]


@pytest.mark.parametrize("name", sorted(METHODS))
def test_terms_on_a_ragged_batch_are_the_formula_row_by_row(name, models, rows):
    model, frozen = models
    method = find_method(name)()
    needs = method.needs
    references = {}
    for splits, whole in ((needs.distributions, True), (needs.reference - needs.distributions, False)):
        drawn = [row for split in splits for row in rows[split]]
        references |= reference_rows(frozen, drawn, distributions=whole) if drawn else {}
    slices = {s: Slice(rows[s], len(rows[s]), sum(r.n_tokens for r in rows[s])) for s in needs.splits}
    terms = method.terms(ForwardStep(needs, slices, references).run(model))
    by_row = [{s: [alone(m, row) for row in rows[s]] for s in rows} for m in models]
    assert {k: v.item() for k, v in terms.items()} == pytest.approx(expected(name, *by_row), rel=2e-4, abs=1e-9)
