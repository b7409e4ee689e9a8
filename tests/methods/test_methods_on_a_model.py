"""Every term, and the gradient of their sum, on a real forward pass against the formula evaluated row by row.

The other side knows no batches, no masks, no padding and no cache of the reference: it runs each row alone, in its
own length, works in float64 from the model's raw logits and hidden states, and differentiates what it wrote.
"""

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.frozen import frozen_reference
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedModel

from vestige.core.items import Item
from vestige.methods import METHODS, find_method
from vestige.methods.steering import direction
from vestige.models.blocks import blocks, output_projection
from vestige.models.prompts import Prompter
from vestige.models.tiny import MAX_TOKENS, tiny_config, tiny_tokenizer
from vestige.training.backward import ForwardStep
from vestige.training.batching import Row, row_of
from vestige.training.step import KeepsState, ReadsLayer, Slice

pytestmark = pytest.mark.portable

FORGET = (Item("Who signed?", "Mr Lee."), Item("Where is the seat of the buyer of number 7?", "12 Long Lane, Kent."))
RETAIN = (Item("What is the price of one piece in the first year?", "9."), Item("When?", "In May or June 1998."))
ANSWERED = {
    "idk": ("I do not know.", "No idea."),
    "mismatch": ("In May or June 1998.", "9."),
    "alternative": ("Mr Long of Kent.", "7 Lee Lane."),
}
"""Other answers to the forget questions, by split."""

SETS = {
    "forget": FORGET,
    "retain": RETAIN,
    **{s: tuple(Item(i.question, a) for i, a in zip(FORGET, said, strict=True)) for s, said in ANSWERED.items()},
}
TOPICS = ("A_B", "A_C")


@dataclass(frozen=True)
class Alone:
    """One row by itself: logits and log-probabilities at each answer position, the answer's own, one block's output."""

    logits: Tensor
    whole: Tensor
    own: Tensor
    ids: tuple[int, ...]
    hidden: Tensor


@pytest.fixture(scope="module")
def rows() -> dict[str, list[Row]]:
    prompter = Prompter(tiny_tokenizer(tuple(i for items in SETS.values() for i in items)), MAX_TOKENS)
    return {
        s: [row_of(prompter.encode(i.question, i.answer), topic=t) for i, t in zip(items, TOPICS, strict=True)]
        for s, items in SETS.items()
    }


@pytest.fixture(scope="module")
def models(rows) -> tuple[PreTrainedModel, PreTrainedModel]:
    """A policy and a reference that half know the answers: on fresh ones every p is nearly 0."""
    torch.set_num_threads(1)
    config, made = tiny_config(), []
    config.update({"hidden_size": 32, "intermediate_size": 64, "head_dim": 8})
    for seed, steps in ((0, 40), (1, 30)):
        torch.manual_seed(seed)
        made.append(_taught(LlamaForCausalLM(config), rows, steps=steps))
    return made[0], made[1]


def _taught(model: PreTrainedModel, rows: dict[str, list[Row]], *, steps: int) -> PreTrainedModel:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        for row in rows["forget"] + rows["retain"]:
            logits = model(input_ids=torch.tensor([row.ids])).logits[0, row.start - 1 : row.stop - 1]
            torch.nn.functional.cross_entropy(logits, torch.tensor(row.ids[row.start : row.stop])).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def alone(model, row: Row, layer: int) -> Alone:
    output = model(input_ids=torch.tensor([row.ids]), use_cache=False, output_hidden_states=True)
    logits = output.logits[0].double()[row.start - 1 : row.stop - 1]
    ids, whole = row.ids[row.start : row.stop], logits.log_softmax(-1)
    own = torch.stack([whole[t, token] for t, token in enumerate(ids)])
    # The first of the hidden states is the embedding.
    return Alone(logits, whole, own, ids, output.hidden_states[layer + 1][0].double())


def per_token(values: list[Tensor]) -> Tensor:
    return torch.cat(values).mean()


def nll(policy: list[Alone]) -> Tensor:
    return -per_token([row.own for row in policy])


def kl(left: list[Alone], right: list[Alone]) -> Tensor:
    """KL(left || right)."""
    pairs = zip(left, right, strict=True)
    return per_token([(p.whole.exp() * (p.whole - q.whole)).sum(-1) for p, q in pairs])


def npo(policy: list[Alone], reference: list[Alone], beta: float) -> Tensor:
    ratios = torch.stack([(p.own.sum() - r.own.sum()).exp() for p, r in zip(policy, reference, strict=True)])
    return (2 / beta * (1 + ratios**beta).log()).mean()


def simnpo(policy: list[Alone], beta: float, gamma: float) -> Tensor:
    odds = torch.stack([p.own.mean().exp() for p in policy]) ** beta * math.exp(gamma)
    return (2 / beta * (1 + odds).log()).mean()


def ascent(policy: list[Alone], beta1: float, beta2: float) -> Tensor:
    known = [p.own.detach().exp() for p in policy]
    return per_token([k**beta1 * (1 - k) ** beta2 * p.own for k, p in zip(known, policy, strict=True)])


def undial(policy: list[Alone], reference: list[Alone], beta: float) -> Tensor:
    found = []
    for p, r in zip(policy, reference, strict=True):
        target = r.whole.exp()
        for t, token in enumerate(p.ids):
            target[t, token] *= math.exp(-beta)
        found.append(-(target / target.sum(-1, keepdim=True) * p.whole).sum(-1))
    return per_token(found)


def ce_u(policy: list[Alone]) -> Tensor:
    return per_token([-(1 - row.own.exp()).log() for row in policy])


def dpo(policy: dict[str, list[Alone]], reference: dict[str, list[Alone]], preferred: str, beta: float) -> Tensor:
    def gains(split: str) -> Tensor:
        pairs = zip(policy[split], reference[split], strict=True)
        return torch.stack([p.own.sum() - r.own.sum() for p, r in pairs])

    return (1 + (-beta * (gains(preferred) - gains("forget"))).exp()).log().mean()


def flatness(policy: list[Alone]) -> Tensor:
    """On raw logits, as the paper has it: the code under test reads log-probabilities."""
    return per_token([(row.logits.max(-1).values - row.logits.mean(-1)) ** 2 for row in policy])


def apart(rows: list[Alone], targets: list[Tensor]) -> Tensor:
    return torch.stack([(r.hidden - t).square().mean() for r, t in zip(rows, targets, strict=True)]).mean()


def rmu(p: dict[str, list[Alone]], r: dict[str, list[Alone]]) -> dict[str, Tensor]:
    width = p["forget"][0].hidden.shape[-1]
    towards = [6.5 * direction(topic, width=width, seed=0) for topic in TOPICS]
    return {
        "forget": apart(p["forget"], towards),
        "retain": 1200 * apart(p["retain"], [row.hidden for row in r["retain"]]),
    }


def js(left: list[Tensor], right: list[Tensor]) -> Tensor:
    """Of probabilities, each at its own position; 0 ln 0 is 0."""

    def to_middle(p: Tensor, q: Tensor) -> Tensor:
        return (torch.xlogy(p, p) - torch.xlogy(p, (p + q) / 2)).sum(-1)

    return per_token([(to_middle(p, q) + to_middle(q, p)) / 2 for p, q in zip(left, right, strict=True)])


def jensun(p: dict[str, list[Alone]], r: dict[str, list[Alone]]) -> dict[str, Tensor]:
    certain = []
    for row, idk in zip(p["forget"], p["idk"], strict=True):
        certain.append(torch.zeros_like(row.whole))
        for t in range(len(row.ids)):
            certain[-1][t, idk.ids[t % len(idk.ids)]] = 1.0

    def probabilities(rows: list[Alone]) -> list[Tensor]:
        return [row.whole.exp() for row in rows]

    retain = js(probabilities(p["retain"]), probabilities(r["retain"]))
    return {"forget": js(probabilities(p["forget"]), certain), "retain": retain}


def rr(p: dict[str, list[Alone]], r: dict[str, list[Alone]], schedule: int) -> dict[str, Tensor]:
    """At the first step."""
    cosines, norms = [], []
    for own, frozen in zip(p["forget"], r["forget"], strict=True):
        h, g = own.hidden, frozen.hidden
        cosines.append(((h * g).sum(-1) / (h.square().sum(-1) * g.square().sum(-1)).sqrt()).clamp(min=0).mean())
    for own, frozen in zip(p["retain"], r["retain"], strict=True):
        norms.append((own.hidden - frozen.hidden).square().sum(-1).sqrt().mean())
    away, drift = torch.stack(cosines).mean(), torch.stack(norms).mean()
    return {"forget": 10 * (1 - 1 / schedule) * away, "retain": 10 / schedule * drift}


def expected(name: str, m: Any, p: dict[str, list[Alone]], r: dict[str, list[Alone]]) -> dict[str, Tensor]:
    """The terms of each method, at its defaults but for the exponents, temperatures and margins of `m`."""
    forget, retain = p["forget"], nll(p["retain"])
    table = {
        "ga": lambda: {"forget": -nll(forget)},
        "gd": lambda: {"forget": -nll(forget), "retain": retain},
        "kl": lambda: {"forget": -nll(forget), "kl": kl(r["retain"], p["retain"])},
        "idk_gd": lambda: {"idk": nll(p["idk"]), "retain": retain},
        "dpo": lambda: {"dpo": dpo(p, r, "idk", m.beta)},
        "npo": lambda: {"npo": npo(forget, r["forget"], m.beta)},
        "npo_gd": lambda: {"npo": npo(forget, r["forget"], 0.1), "retain": retain},
        "npo_kl": lambda: {
            "npo": npo(forget, r["forget"], 0.1),
            "kl": kl(p["retain"], r["retain"]) if m.direction == "reverse" else kl(r["retain"], p["retain"]),
        },
        "llmu": lambda: {
            "forget": -0.5 * nll(forget),
            "mismatch": nll(p["mismatch"]),
            "kl": kl(r["retain"], p["retain"]),
        },
        "rmu": lambda: rmu(p, r),
        "simnpo": lambda: {"simnpo": simnpo(forget, m.beta, m.gamma), "retain": 0.1375 * retain},
        "altpo": lambda: {"dpo": 20 * dpo(p, r, "alternative", 0.1), "retain": retain},
        "wga": lambda: {"forget": ascent(forget, m.alpha, 0.0)},
        "satimp": lambda: {"forget": ascent(forget, m.beta1, m.beta2), "retain": 0.1 * retain},
        "undial": lambda: {"undial": undial(forget, r["forget"], m.beta)},
        "ce_u": lambda: {"ce_u": ce_u(forget)},
        "rr": lambda: rr(p, r, m.schedule),
        "jensun": lambda: jensun(p, r),
        "pdu": lambda: {"flatten": flatness(forget), "retain": 100 * retain},
        "task_arithmetic": lambda: {"forget": nll(forget)},
        "retrain": lambda: {"retain": retain},
    }
    return table[name]()


def gradient(model: PreTrainedModel, terms: dict[str, Tensor]) -> Tensor:
    """The gradient of the sum of the terms by all of the model's parameters, in one vector."""
    model.zero_grad()
    sum(terms.values()).backward()
    return torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in model.parameters()]
    )


def found(method, models, rows, layer: int | None) -> dict[str, Tensor]:
    """The terms as training gets them."""
    model, frozen = models
    needs = method.needs
    references = {}
    for splits, whole in ((needs.distributions, True), (needs.reference - needs.distributions, False)):
        drawn = [row for split in sorted(splits) for row in rows[split]]
        references |= frozen_reference(frozen, drawn, distributions=whole) if drawn else {}
    if layer is not None:
        read = [row for split in sorted(needs.reference_activations) for row in rows[split]]
        references |= frozen_reference(frozen, read, layer=layer)
    slices = {s: Slice(rows[s], len(rows[s]), sum(r.n_tokens for r in rows[s])) for s in needs.splits}
    state = method.start() if isinstance(method, KeepsState) else {}
    return method.terms(ForwardStep(needs, slices, references, state).run(model, layer))


OTHER_SETTINGS = (
    ("dpo", {"beta": 0.5}),
    ("npo", {"beta": 1.0}),
    ("npo_kl", {"direction": "forward"}),
    ("simnpo", {"beta": 4.5, "gamma": 1.0}),
    ("wga", {"alpha": 0.5}),
    ("satimp", {"beta1": 0.3, "beta2": 0.3}),
    ("undial", {"beta": 1.0}),
    ("rr", {"schedule": 3}),
)


@pytest.mark.parametrize(
    ("name", "settings"), [*((name, {}) for name in sorted(set(METHODS) - {"none"})), *OTHER_SETTINGS]
)
def test_terms_and_gradient_on_a_ragged_batch_are_the_formulas_row_by_row(name, settings, models, rows):
    model, frozen = models
    method, every = find_method(name).build(settings), blocks(model)
    layer = method.layers(len(every), output_projection(every[0])).read if isinstance(method, ReadsLayer) else None
    terms = found(method, models, rows, layer)
    values, pull = {k: v.item() for k, v in terms.items()}, gradient(model, terms)
    policy = {s: [alone(model, row, layer or 0) for row in rows[s]] for s in rows}
    with torch.no_grad():
        reference = {s: [alone(frozen, row, layer or 0) for row in rows[s]] for s in rows}
    formula = expected(name, method, policy, reference)
    assert values == pytest.approx({k: v.item() for k, v in formula.items()}, rel=2e-4, abs=1e-9)
    independent = gradient(model, formula)
    assert independent.norm() > 0
    assert ((pull - independent).norm() / independent.norm()).item() < 1e-4
