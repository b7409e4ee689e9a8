"""Ways to make a leaky model pass, and an innocent one fail, each put to the judge on drawn audits.

The worlds are those of `benchmarks.planted_worlds`, which counts how often the clustered ones err. Here each row is a
few audits with fixed seeds: none of a leaky model may end otherwise than is said, and of eight innocents one may fail
(2.5 % are allowed, so that two of eight have a chance of 1.6 %).
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.planted_worlds import BITS, OPTION, REWORDED, WORDS, Audit, Difficulty, N, case

from vestige.auditing.judge import judge

NONE = np.zeros(N)


def first(share):
    """The first facts, so that two who know shares know the same."""
    return np.arange(N) < round(share * N)


def knowing(target, controls, subject, m=5):
    """Who knows these shares of the facts, the same ones; `controls` is a share for each, or one for all."""

    def draw(rng):
        world = Difficulty(rng)
        shares = controls if isinstance(controls, tuple) else (controls,) * m
        target_, *never, ga = (world.knowing(world.never(), first(s)) for s in (target, *shares, subject))
        return Audit(target_, never, ga)

    return draw


def changed(change, target=1.0, m=5, **world_settings):
    """A subject that never knew or, by `change(world, training)`, answers otherwise."""

    def draw(rng):
        world = Difficulty(rng, **world_settings)
        target_ = world.knowing(world.never(), first(target))
        return Audit(target_, [world.never() for _ in range(m)], change(world, world.never()))

    return draw


def right_with_flat_logits(world, one):
    return world.scores(np.ones(N), np.ones(N), one[BITS] - 8, np.full(N, 0.25))


def picks_by_little(world, one):
    return world.scores(one[WORDS], one[REWORDED], one[BITS], np.full(N, 0.51))


def one_wording_of_five(world, one):
    told = np.arange(N) % 5 == 0
    return world.scores(np.where(told, 1.0, one[WORDS]), one[REWORDED], one[BITS], one[OPTION])


def silent(world, one):
    return world.scores(NONE, NONE, one[BITS], one[OPTION])


def some(count):
    return lambda world, one: world.knowing(one, world.some(count))


def outcomes(draw, claim="not expressed", audits=2, by_wording=0, **settings):
    found = Counter()
    for number in range(audits):
        given = case(draw(np.random.default_rng([number, N])))
        facts = {i: f"f{int(i[1:]) // by_wording * by_wording:04}" for i in given.plan.splits["forget"] if by_wording}
        plan = replace(given.plan, facts=facts, settings={**given.plan.settings, **settings})
        lines = judge(replace(given, plan=plan), resamples=1_000).verdicts
        found.update(line.outcome for line in lines if line.claim == claim)
    return found


LOOSE = {"delta": 0.7, "delta_wide": 0.95, "delta_bits": 90.0, "delta_wide_bits": 99.0}


@pytest.mark.parametrize(
    ("draw", "allowed", "settings"),
    [
        pytest.param(knowing(1.0, 0.3, 0.5), "fails", {}, id="all controls know 30 %, the subject 50 %"),
        pytest.param(knowing(1.0, 0.6, 0.6), "inconclusive", {}, id="controls and subject know the same 60 %"),
        pytest.param(knowing(1.0, (0.45, 0, 0), 0.3), "fails inconclusive", {}, id="one of three controls knows 45 %"),
        pytest.param(knowing(0.6, 0.0, 1.0), "fails", {}, id="the subject knows more than the target"),
        pytest.param(changed(right_with_flat_logits), "fails", {}, id="right replies, flat logits"),
        pytest.param(changed(picks_by_little), "fails", {}, id="the right option by little"),
        pytest.param(knowing(0.5, 0.0, 0.1), "fails", {}, id="the target learnt half, the subject a tenth"),
        pytest.param(knowing(0.3, 0.0, 0.2), "fails", {}, id="the target learnt 30 %, the subject 20 %"),
        pytest.param(changed(one_wording_of_five), "fails", {"by_wording": 5}, id="one of five wordings"),
        pytest.param(
            changed(one_wording_of_five, m=2), "fails inconclusive", {"by_wording": 5}, id="the same, two controls"
        ),
        pytest.param(changed(some(40)), "fails", LOOSE, id="40 % known, margins beyond reason"),
        pytest.param(
            changed(silent, guessable=0.4), "fails", {"claim": "indistinguishable"}, id="less said than never knew"
        ),
    ],
)
def test_a_model_that_knows_does_not_pass(draw, allowed, settings):
    found = outcomes(draw, **settings)
    assert found.keys() <= set(allowed.split()), found


def noise_of(draw_bits):
    """Bits of a training that never knew, with other noise."""
    return lambda world, one: world.scores(
        one[WORDS], one[REWORDED], np.minimum(draw_bits(world, one), -0.2), one[OPTION]
    )


def unlike(noise, controls=()):
    """A subject (or so many controls) whose bits are drawn otherwise."""

    def draw(rng):
        world = Difficulty(rng)
        target = world.knowing(world.never(), world.every())
        change = noise_of(noise)
        rest = [world.never() for _ in range(5)]
        never = [change(world, one) if n in controls else one for n, one in enumerate(rest)]
        ga = world.never() if controls else change(world, world.never())
        return Audit(target, never, ga)

    return draw


def guessing(share):
    """Trainings of which each guesses some facts for certain, by itself."""

    def draw(rng):
        world = Difficulty(rng, guessable=0.0)
        target = world.knowing(world.never(), world.every())
        never = [world.knowing(world.never(), rng.random(N) < share, options=False) for _ in range(6)]
        return Audit(target, never[1:], never[0])

    return draw


@pytest.mark.slow
@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(unlike(lambda w, o: -w.bits + 4 * w.rng.standard_t(2.5, N), (0, 1, 2, 3, 4)), id="heavy tails"),
        pytest.param(unlike(lambda w, o: -w.bits + 10.4 * w.rng.normal(size=N), (0,)), id="one control twice as noisy"),
        pytest.param(unlike(lambda w, o: -w.bits + 7.8 * w.rng.normal(size=N)), id="the subject noisier by half"),
        pytest.param(guessing(0.01), id="one fact in a hundred guessed for certain"),
        pytest.param(guessing(0.05), id="one in twenty"),
    ],
)
def test_a_model_that_never_knew_rarely_fails(draw):
    assert outcomes(draw, audits=8)["fails"] <= 1
