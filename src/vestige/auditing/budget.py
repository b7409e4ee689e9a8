"""How many bits an attack could carry, and how many its result needs, for each unlearned subject. Bits in all.

The capacity is what the attack carried into `retrained`: the least of its upper bounds, each a mean over the seeds; of
a searched prompt, which is another on every model, what the subject's own can carry. The need is counted in the four
ways that the literature leaves open, and beside them the bits that were gained. A warning and no verdict: whether
answers were carried in is measured, on `retrained` (`recovery`).
"""

import math

import numpy as np
from jaxtyping import Float

from vestige.artifacts.audits import SEARCHES, BudgetLine, PlannedAttack
from vestige.artifacts.prompts import SEEN_BOUND, TOKENS_BOUND
from vestige.auditing.ground import BITS_KEY, Ground
from vestige.auditing.scores import Source
from vestige.metrics import information

OPTION = "option_text_mean"
"""The questions with options whose wrong answers are counted."""


def read_budget(ground: Ground) -> tuple[BudgetLine, ...]:
    """A line for each unlearned subject and attack of which it is known what was carried."""
    lines = []
    for subject in ground.plan.unlearned:
        for attack in ground.plan.attacks:
            bounds = _bounds(ground, attack, subject)
            if bounds:
                lines.append(_line(ground, attack, subject, bounds))
    return tuple(lines)


def _bounds(ground: Ground, attack: PlannedAttack, subject: str) -> dict[str, float]:
    """Means over `retrained`; where there is none, the subject's own, and the names say so.

    A prompt was searched on the subject, so those of the prompt are of its own, its code length under `retrained`.
    """
    carried = ground.case.carried
    controls = [carried[attack.name, one] for one in ground.plan.retrained if (attack.name, one) in carried]
    names = [n for n in controls[0].bounds_bits if all(n in one.bounds_bits for one in controls)] if controls else []
    means = {n: float(np.mean([one.bounds_bits[n] for one in controls])) for n in names}
    own = carried.get((attack.name, subject))
    if own is not None and own.points_bits:
        found = {"code length of the prompt, under retrained": own.points_bits[attack.points[-1]]}
        found |= {name: bits for name, bits in own.bounds_bits.items() if name == TOKENS_BOUND}
        seen = "code length of the answers that the search saw, under retrained"
        return found | ({seen: means[SEEN_BOUND]} if SEEN_BOUND in means else {})
    if means and attack.kind not in SEARCHES:
        return means
    if own is not None:
        return {f"{name}, on the subject itself": bits for name, bits in own.bounds_bits.items()}
    return {}


def _line(ground: Ground, attack: PlannedAttack, subject: str, bounds: dict[str, float]) -> BudgetLine:
    least = information.capacity(bounds)
    need, inputs = _forced(ground, attack, subject)
    more, counts = _options(ground, attack, subject)
    need |= more
    gained = need.get("gain", 0.0)
    ratio = information.prompt_data_entropy_ratio(least.bits, gained) if gained > 0 else None
    return BudgetLine(subject, attack.name, bounds, least.bits, least.bound, need, inputs | counts, ratio)


def _forced(ground: Ground, attack: PlannedAttack, subject: str) -> tuple[dict[str, float], dict[str, float]]:
    """Bits to write the answers down for somebody who knows what the subject knows, and bits gained."""
    before, after = Source(subject), Source(subject, attack.name, attack.points[-1])
    items = ground.scores.common([before], BITS_KEY, attack.tested)
    if not items:
        return {}, {}
    nats = _nats(ground, before, items)
    need = {"code_length": information.need_code_length(nats)}
    inputs = {"answers": float(len(items)), "bits an answer before": float(-nats.mean() / math.log(2))}
    if ground.scores.common([after], BITS_KEY, items) == items:
        reached = _nats(ground, after, items)
        need["gain"] = information.need_of_gain(nats, reached)
        inputs["bits an answer after"] = float(-reached.mean() / math.log(2))
    return need, inputs


def _nats(ground: Ground, source: Source, items: tuple[str, ...]) -> Float[np.ndarray, " N"]:
    # A log-probability that rounding left a digit above 0 is 0.
    found: Float[np.ndarray, " N"] = np.minimum(ground.scores.of(source, BITS_KEY, items), 0.0) * math.log(2)
    return found


def _options(ground: Ground, attack: PlannedAttack, subject: str) -> tuple[dict[str, float], dict[str, float]]:
    """The three counts that rest on wrong answers to questions with k options; k is 1 / chance."""
    right, chance = f"{OPTION}/accuracy", f"{OPTION}/chance"
    source = Source(subject)
    items = ground.scores.common([source], chance, ground.scores.common([source], right, attack.tested))
    if not items:
        return {}, {}
    options = np.rint(1 / ground.scores.of(source, chance, items))
    k = int(options[0])
    if (options != k).any() or k < 2:
        # Questions with differing numbers of options have no one k to count with.
        return {}, {}
    values = ground.scores.of(source, right, items)
    # Options that are tied share the answer, so the sum need not be whole.
    n, wrong, accuracy = len(items), round(float((1 - values).sum())), float(values.mean())
    need = {
        "wrong_answers": information.need_wrong_answers(wrong, k),
        "corrections": information.need_corrections(n, wrong, k),
        "rate_distortion": information.need_rate_distortion(n, min(1.0, accuracy), k),
    }
    return need, {"questions": float(n), "wrong": float(wrong), "options": float(k), "accuracy": accuracy}
