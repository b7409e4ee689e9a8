import math

import pytest
import torch

from vestige.core.errors import InputError
from vestige.core.files import read_jsonl
from vestige.models.digests import weights_digest
from vestige.training import loop
from vestige.training.adapters import add_lora, merge_lora
from vestige.training.loop import Hooks, train


class Killed(Exception):
    pass


def stop_after(step):
    def on_step(progress):
        if progress.step == step:
            raise Killed

    return Hooks(on_step=on_step)


def test_a_resumed_run_ends_with_the_same_bytes_and_log(fresh, make_job, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)
    whole = fresh().model
    train(whole, make_job("whole"))
    for step in (1, 3, 5, 9):
        job, first, second = make_job(f"cut-{step}"), fresh().model, fresh().model
        with pytest.raises(Killed):
            train(first, job, stop_after(step))
        # The kill came before the checkpoint of its own step.
        assert job.checkpoints.newest() == (step - 1 or None)
        outcome = train(second, job)
        assert weights_digest(second) == weights_digest(whole)
        assert job.log.read_bytes() == make_job("whole").log.read_bytes()
        assert (outcome.steps, outcome.stopped) == (9, "all epochs done")


def test_dropout_and_the_adapters_first_weights_follow_from_the_seed(fresh, make_job, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)

    def adapted(job):
        model = fresh().model
        add_lora(model, job.settings, seed=5)
        return model

    lora = {"lora_rank": 4, "lora_dropout": 0.3}
    whole = adapted(make_job("whole", **lora))
    train(whole, make_job("whole", **lora))
    job = make_job("cut", **lora)
    with pytest.raises(Killed):
        train(adapted(job), job, stop_after(4))
    resumed = adapted(job)
    train(resumed, job)
    assert weights_digest(resumed) == weights_digest(whole)


def test_micro_batches_follow_the_whole_batch(fresh, make_job):
    losses = {}
    for micro in (8, 3, 1):
        job = make_job(f"micro-{micro}", micro_batch_size=micro, epochs=7)
        train(fresh().model, job)
        losses[micro] = [row["loss"] for row in read_jsonl(job.log)]
    assert len(losses[8]) == 21
    for micro in (3, 1):
        assert losses[micro] == pytest.approx(losses[8], rel=1e-4)
        # The first loss is before any step, so it differs by rounding alone.
        assert losses[micro][0] == pytest.approx(losses[8][0], rel=1e-6)


def test_training_learns_and_logs_every_step(fresh, make_job):
    job = make_job(epochs=30, schedule="constant", learning_rate=3e-3)
    outcome = train(fresh().model, job)
    logged = list(read_jsonl(job.log))
    assert [r["step"] for r in logged] == list(range(1, 91))
    assert logged[-1]["loss"] == outcome.loss < 1.0
    # Untrained, all 2,048 tokens are alike: ln 2048 = 7.62.
    assert logged[0]["loss"] == pytest.approx(7.62, abs=0.3)
    assert logged[0]["terms"] == {"train": logged[0]["loss"]}
    assert all(r["gradient_norm"] > 0 for r in logged)


def test_the_stop_hook_is_asked_after_each_epoch(fresh, make_job):
    asked = []

    def stop(progress):
        asked.append((progress.step, progress.epoch))
        return "enough" if progress.epoch == 2 else None

    outcome = train(fresh().model, make_job(), Hooks(stop=stop))
    assert asked == [(3, 1), (6, 2)]
    assert (outcome.steps, outcome.stopped) == (6, "enough")


def test_a_loss_that_is_no_longer_finite_is_named_with_the_way_out(fresh, make_job):
    model = fresh().model
    with torch.no_grad():
        model.model.norm.weight.fill_(math.inf)
    with pytest.raises(InputError, match=r"no longer finite at step 1 .*lower the learning rate"):
        train(model, make_job())


def test_lora_trains_the_adapter_alone_and_merges_into_a_plain_model(fresh, make_job):
    job, model = make_job(lora_rank=4), fresh().model
    add_lora(model, job.settings, seed=5)
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    train(model, job)
    ids = torch.arange(5, 15)[None]
    with torch.inference_mode():
        with_adapter = model.eval()(ids).logits
        merge_lora(model)
        torch.testing.assert_close(model(ids).logits, with_adapter, atol=1e-5, rtol=0)
    start = fresh().model
    changed = {n for n, p in start.named_parameters() if not torch.equal(p, model.get_parameter(n))}
    assert all(".lora_A." in n or ".lora_B." in n for n in trained)
    assert changed == {n for n, _ in start.named_parameters() if n.endswith("_proj.weight")}
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in start.named_parameters()]
    assert all(p.requires_grad for p in model.parameters())


def test_lora_targets_that_do_not_exist_are_named(fresh, make_job):
    job = make_job(lora_rank=4, lora_targets=("q_proj", "c_attn"))
    with pytest.raises(InputError, match=r"c_attn are no layers of this model; its linear layers: down_proj"):
        add_lora(fresh().model, job.settings, seed=5)
