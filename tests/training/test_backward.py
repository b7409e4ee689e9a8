"""The gradients of an effective batch do not depend on how it is cut up."""

from collections import Counter

import pytest
import torch

from vestige.core.errors import InputError
from vestige.models import forward as passes
from vestige.training.backward import Backward, PassPlan, micro_batches, reading_for
from vestige.training.batching import Row
from vestige.training.parallel import ALONE, Spread

pytestmark = pytest.mark.portable

LEAVES = "model.layers.0.mlp.up_proj.weight", "model.embed_tokens.weight"


def gradients(fresh, job, reading=None) -> tuple[dict[str, float], list[torch.Tensor]]:
    model = fresh().model.train()
    backward = Backward(Spread(ALONE, model), job, reading or reading_for(model, job))
    measured = backward.add({"train": tuple(range(8))}, 0, {})
    found = dict(model.named_parameters())
    return measured.terms, [found[name].grad for name in LEAVES]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"micro_batch_size": 1}, {"micro_batch_size": 3}, {"token_budget": 40}, {"token_budget": 1}]
)
def test_parts_of_a_batch_add_up_to_the_whole(fresh, make_job, settings):
    whole, expected = gradients(fresh, make_job(lora_rank=0))
    parts, found = gradients(fresh, make_job(lora_rank=0, **settings))
    assert parts["train"] == pytest.approx(whole["train"], rel=1e-6)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


def test_passes_by_length_change_no_more_than_rounding(fresh, make_job):
    _, expected = gradients(fresh, make_job(lora_rank=0), PassPlan(pass_tokens=10**9))
    _, found = gradients(fresh, make_job(lora_rank=0), PassPlan(pass_tokens=0))
    _, end_to_end = gradients(fresh, make_job(lora_rank=0), PassPlan(packed=True))
    for a, b, c in zip(found, end_to_end, expected, strict=True):
        torch.testing.assert_close(a, c, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(b, c, atol=1e-6, rtol=1e-4)


def test_rows_are_read_end_to_end_in_float32_but_for_blocks_that_are_computed_again(fresh, make_job):
    model = fresh().model
    assert reading_for(model, make_job()).packed
    assert not reading_for(model, make_job(precision="bfloat16")).packed
    assert not reading_for(model, make_job(gradient_checkpointing=True)).packed


def test_a_token_budget_holds_rows_of_like_length_and_keeps_partners_together(make_job):
    # Lengths forget 3, 9, 4, 8 and retain 2, 2, 2, 2: pairs of 5, 11, 6, 10 tokens. At most 21 at a time, shortest
    # first, are 5 + 6 + 10 and 11.
    job = make_job(token_budget=21)
    rows = {
        "forget": [Row(tuple(range(n)), 1, n) for n in (3, 9, 4, 8)],
        "retain": [Row((7, i), 1, 2) for i in range(4)],
    }
    objective = type("Both", (), {"needs": type("Read", (), {"splits": ("forget", "retain")})})
    object.__setattr__(job, "objective", objective)
    object.__setattr__(job, "rows", {s: r.__getitem__ for s, r in rows.items()})
    parts = list(micro_batches({"forget": (0, 1, 2, 3), "retain": (0, 1, 2, 3)}, job))
    assert [[len(r.ids) for r in p["forget"].rows] for p in parts] == [[3, 4, 8], [9]]
    assert [[r.ids[1] for r in p["retain"].rows] for p in parts] == [[0, 2, 3], [1]]
    # Sizes count over the effective batch: 2 + 8 + 3 + 7 loss tokens.
    assert {(p["forget"].n_rows, p["forget"].n_tokens) for p in parts} == {(4, 20)}


def test_bfloat16_gives_gradients_close_to_float32s(fresh, make_job):
    whole, expected = gradients(fresh, make_job(lora_rank=0))
    narrow, found = gradients(fresh, make_job(lora_rank=0, precision="bfloat16"))
    assert narrow["train"] == pytest.approx(whole["train"], rel=1e-2)
    for a, b in zip(found, expected, strict=True):
        assert torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0) > 0.99


class Small:
    """Stands for a GPU that holds passes of so many rows."""

    def __init__(self, monkeypatch, rows):
        self.tried, add = [], Spread.add_gradients
        monkeypatch.setattr(passes, "happened", Counter())

        def within(spread, compute, **words):
            (part,) = compute.args[0].values()
            self.tried.append(len(part.rows))
            found = add(spread, compute, **words)
            if len(part.rows) > rows:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return found

        monkeypatch.setattr(Spread, "add_gradients", within)


def test_a_batch_that_memory_does_not_hold_is_begun_again_in_smaller_parts(fresh, make_job, monkeypatch):
    whole, expected = gradients(fresh, make_job(lora_rank=0))
    small = Small(monkeypatch, rows=2)
    parts, found = gradients(fresh, make_job(lora_rank=0))
    assert small.tried == [8, 4, 2, 2, 2, 2]
    assert parts["train"] == pytest.approx(whole["train"], rel=1e-6)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)
    assert passes.happened == {"passes_halved_for_want_of_memory": 2}


def test_what_cannot_be_halved_without_another_loss_ends_with_the_way_out(fresh, make_job, monkeypatch):
    Small(monkeypatch, rows=0)
    with pytest.raises(InputError, match=r"1 rows .* step 1 of the training\. .*gradient_checkpointing=true"):
        gradients(fresh, make_job(lora_rank=0))
    small = Small(monkeypatch, rows=2)
    monkeypatch.setattr(Backward, "_drops", lambda _: True)
    with pytest.raises(InputError, match=r"with dropout.*micro_batch_size=4 or gradient_checkpointing=true or lora_dr"):
        gradients(fresh, make_job(lora_rank=0))
    assert small.tried == [8]
