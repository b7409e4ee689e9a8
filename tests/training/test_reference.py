"""Reference quantities of a whole plan: each row once, and all that was declared of it."""

from collections import Counter

import pytest
import torch

from vestige.models import forward as passes
from vestige.training import reference
from vestige.training.backward import ForwardStep
from vestige.training.batching import UnlearnPlan
from vestige.training.reference import references
from vestige.training.settings import UnlearningSettings
from vestige.training.step import Needs, Slice

pytestmark = pytest.mark.portable

BOTH = frozenset({"forget", "retain"})
NEEDS = Needs(
    policy=BOTH, reference=BOTH, distributions=frozenset({"retain"}), reference_activations=frozenset({"retain"})
)
PLAN = UnlearnPlan(4, 6, {}, batch_size=2, seed=1)


def source(rows):
    return {"forget": rows[:4].__getitem__, "retain": rows[4:10].__getitem__}


def test_each_row_that_is_drawn_is_computed_once_with_all_that_is_read_of_it(fresh, rows, monkeypatch):
    computed = []
    passes = reference._passes
    monkeypatch.setattr(reference, "_passes", lambda m, r, n: computed.extend(x.key for x in r) or passes(m, r, n))
    settings = UnlearningSettings.build({"epochs": 3})
    found = references(fresh().model, NEEDS, PLAN, source(rows), settings, layer=1)
    # Three epochs of four draws go through the six retain rows twice.
    assert sorted(computed) == sorted(r.key for r in rows[:10])
    for i, row in enumerate(rows[:10]):
        kept = found[row.key]
        assert kept.logp.shape == (row.n_tokens,)
        assert (kept.distributions is not None) == (kept.activations is not None) == (i >= 4)


def test_one_epoch_needs_only_the_rows_that_it_draws(fresh, rows):
    settings = UnlearningSettings.build({"epochs": 1})
    found = references(fresh().model, NEEDS, PLAN, source(rows), settings, layer=1)
    # Four forget rows and the first four of the retain rows' order.
    assert len(found) == 8


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_policy_and_reference_agree_where_the_weights_do(fresh, rows, precision):
    model = fresh().model.eval()
    settings = UnlearningSettings.build({"epochs": 1, "precision": precision})
    needs = Needs(policy=frozenset({"forget"}), reference=frozenset({"forget"}))
    found = references(model, needs, PLAN, source(rows), settings)
    slices = {"forget": Slice(rows[:4], 4, sum(r.n_tokens for r in rows[:4]))}
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        step = ForwardStep(needs, slices, found).run(model)
    policy, frozen = step.policy("forget"), step.reference("forget")
    tolerance = 1e-5 if precision == "float32" else 3e-2
    torch.testing.assert_close(policy.logp[policy.mask], frozen.logp[frozen.mask], atol=tolerance, rtol=0)


def test_what_memory_does_not_hold_is_computed_in_smaller_passes(fresh, rows, monkeypatch):
    model, settings, tried = fresh().model, UnlearningSettings.build({"epochs": 3}), []
    monkeypatch.setattr(passes, "happened", Counter())
    monkeypatch.setattr(reference, "reads_packed", lambda *_: False)
    expected = references(model, NEEDS, PLAN, source(rows), settings, layer=1)
    forward = model.model.forward

    def small(input_ids, **words):
        tried.append(input_ids.numel())
        if input_ids.numel() > 100:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(input_ids=input_ids, **words)

    monkeypatch.setattr(model.model, "forward", small)
    found = references(model, NEEDS, PLAN, source(rows), settings, layer=1)
    assert max(tried) > 100 >= tried[-1]
    for key, row in expected.items():
        torch.testing.assert_close(found[key].logp, row.logp, atol=1e-5, rtol=0)
        if row.activations is not None:
            torch.testing.assert_close(found[key].activations, row.activations, atol=1e-4, rtol=1e-4)
