"""Batches and the training loop."""

import copy
import math
from collections import Counter

import pytest
import torch
from transformers import LlamaForCausalLM

from vestige.core.errors import InputError
from vestige.core.files import read_jsonl
from vestige.models.folders import weights_digest
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_config
from vestige.training import loop
from vestige.training.adapters import add_lora
from vestige.training.batching import FinetunePlan, UnlearnPlan
from vestige.training.loop import PAUSED, Hooks, reproducible, train


class Killed(Exception):
    pass


@pytest.fixture(scope="session")
def fresh(fresh):
    """Narrower than the model of the other tests, since these take hundreds of steps."""
    config = tiny_config()
    config.update({"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2})
    torch.manual_seed(0)
    made, tokenizer = LlamaForCausalLM(config), fresh().tokenizer
    return lambda: LoadedModel(copy.deepcopy(made), tokenizer, "narrow", "")


def logged(job):
    """The log's lines but for their times and memory."""
    return [reproducible(line) for line in read_jsonl(job.log)]


def stop_after(step):
    def on_step(progress):
        if progress.step == step:
            raise Killed

    return Hooks(on_step=on_step)


@pytest.mark.slow
@pytest.mark.portable
@pytest.mark.parametrize("lora", [{}, {"lora_rank": 4, "lora_dropout": 0.2}])
def test_a_resumed_run_ends_with_the_same_bytes_and_log(fresh, make_job, monkeypatch, lora):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1.0)

    def begun():
        model = fresh().model
        if lora:
            add_lora(model, make_job("whole", **lora).settings, seed=5)
        return model

    whole = begun()
    train(whole, make_job("whole", **lora))
    # Before any checkpoint, after the one that ends an epoch, and after one within.
    for step in (1, 4, 9):
        job, first, second = make_job(f"cut-{step}", **lora), begun(), begun()
        with pytest.raises(Killed):
            train(first, job, stop_after(step))
        # The kill came before the checkpoint of its own step.
        assert job.checkpoints.newest() == (step - 1 or None)
        outcome = train(second, job)
        assert weights_digest(second) == weights_digest(whole)
        assert logged(job) == logged(make_job("whole", **lora))
        assert (outcome.steps, outcome.stopped) == (9, "all epochs done")


@pytest.mark.portable
def test_training_learns_and_logs_every_step(fresh, make_job):
    job = make_job(epochs=14, schedule="constant", learning_rate=3e-3)
    outcome = train(fresh().model, job)
    logged = list(read_jsonl(job.log))
    assert [r["step"] for r in logged] == list(range(1, 43))
    assert logged[-1]["loss"] == outcome.loss < 1.5
    # Untrained, all 2,048 tokens are alike: ln 2048 = 7.62.
    assert logged[0]["loss"] == pytest.approx(7.62, abs=0.3)
    assert logged[0]["terms"] == {"train": logged[0]["loss"]}
    assert all(r["gradient_norm"] > 0 for r in logged)


def test_the_stop_hook_is_asked_after_each_step_with_the_model(fresh, make_job):
    asked, trained = [], fresh().model

    def stop(now, model):
        assert model is trained
        asked.append((now.step, now.epoch, now.ends_epoch))
        return "enough" if now.step == 4 else None

    outcome = train(trained, make_job(), Hooks(stop=stop))
    # 24 rows in batches of 8: three steps an epoch.
    assert asked == [(1, 0, False), (2, 0, False), (3, 1, True), (4, 1, False)]
    assert (outcome.steps, outcome.stopped) == (4, "enough")
    assert len(logged(make_job())) == 4


def test_max_steps_ends_training_and_schedule_before_the_last_epoch(fresh, make_job):
    job = make_job(max_steps=4, warmup_epochs=0.0)
    outcome = train(fresh().model, job)
    assert (outcome.steps, outcome.stopped) == (4, "max_steps done")
    # Linear from the first step to nothing past the fourth: 4/4, 3/4, 2/4 and 1/4 of 1e-3.
    assert [line["rate"] for line in logged(job)] == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4])


def test_a_paused_training_goes_on_to_the_same_bytes(fresh, make_job):
    whole = fresh().model
    train(whole, make_job("whole"))
    job, model = make_job("parts"), fresh().model
    for until in (2, 3, 7):
        outcome = train(model, job, until=until)
        assert (outcome.steps, outcome.stopped) == (until, PAUSED)
        model = fresh().model
    train(model, job)
    assert weights_digest(model) == weights_digest(whole)
    assert logged(job) == logged(make_job("whole"))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 4])
def test_gradient_checkpointing_changes_no_bit_of_the_same_passes(monkeypatch, fresh, make_job, rank):
    # Rows stand end to end only without it, which is other passes.
    monkeypatch.setattr("vestige.training.backward.reads_packed", lambda *_: False)
    digests, calls = set(), {False: 0, True: 0}
    for recompute in (False, True):
        model = fresh().model
        lora = {"lora_rank": rank, "lora_dropout": 0.3}
        job = make_job(f"{recompute}", gradient_checkpointing=recompute, **lora)
        if rank:
            add_lora(model, job.settings, seed=5)

        def count(*_, recompute=recompute):
            calls[recompute] += 1

        model.model.layers[0].register_forward_pre_hook(count)
        model.model.layers[0].mlp.register_forward_pre_hook(count)
        train(model, job)
        digests.add(weights_digest(model))
        assert not any(getattr(m, "gradient_checkpointing", False) for m in model.modules())
    assert len(digests) == 1
    # A block's inside is computed once more in the backward pass of each of nine steps.
    assert calls[True] >= calls[False] + 9


@pytest.mark.portable
def test_gradient_checkpointing_under_autocast_gives_the_same_losses_up_to_rounding(fresh, make_job):
    losses = []
    for recompute in (False, True):
        job = make_job(f"{recompute}", gradient_checkpointing=recompute, precision="bfloat16")
        train(fresh().model, job)
        losses.append([line["loss"] for line in logged(job)])
    assert losses[1] == pytest.approx(losses[0], rel=1 / 128)


def test_a_model_in_float16_is_refused_with_the_reason(fresh, make_job):
    with pytest.raises(InputError, match=r"float16 ends at 65504 .* take bfloat16 or float32 with --dtype"):
        train(fresh().model.half(), make_job())
    with pytest.raises(InputError, match=r"precision = 'float16': .*float16 ends at 65504"):
        make_job(precision="float16")


def test_autocast_keeps_float32_weights(fresh, make_job):
    model, job = fresh().model, make_job("autocast", precision="bfloat16", epochs=1)
    train(model, job)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    # Untrained, ln 2048 = 7.62, off by a bfloat16's half a percent at most.
    assert logged(job)[0]["loss"] == pytest.approx(7.62, abs=0.3)


def test_weights_kept_in_bfloat16_are_not_trained(fresh, make_job):
    # 2 ** -7 is the spacing of bfloat16 at 1: a step of 1e-3 is rounded away.
    weight = torch.ones(1, dtype=torch.bfloat16)
    assert torch.equal(weight - 1e-3, weight)
    with pytest.raises(InputError, match="rounds small steps away"):
        train(fresh().model.to(torch.bfloat16), make_job("narrow"))


def test_a_loss_that_is_no_longer_finite_is_named_with_the_way_out(fresh, make_job):
    with pytest.raises(InputError, match=r"no longer finite at step [2-9] .*. Lower the learning rate"):
        train(fresh().model, make_job("fast", learning_rate=1e30))
    model = fresh().model
    with torch.no_grad():
        model.model.norm.weight.fill_(math.inf)
    with pytest.raises(InputError, match=r"no longer finite at step 1 .*Nothing was learned yet, so it is the model"):
        train(model, make_job())


def test_every_row_comes_once_an_epoch_and_the_order_changes():
    plan = FinetunePlan(n_rows=10, batch_size=4, seed=0)
    epochs = [[i for b in plan.epoch(e) for i in b["train"]] for e in range(3)]
    assert all(sorted(e) == list(range(10)) for e in epochs)
    assert epochs[0] != epochs[1]
    assert [len(b["train"]) for b in plan.epoch(0)] == [4, 4, 2]
    assert plan.epoch(1) == FinetunePlan(n_rows=10, batch_size=4, seed=0).epoch(1)


def test_buckets_hold_rows_of_like_length():
    lengths = tuple(8 + 10 * (i % 4) for i in range(40))
    plan = FinetunePlan(40, 10, seed=0, lengths=lengths)
    for epoch in range(3):
        batches = plan.epoch(epoch)
        # Lengths differ by 10 and the jitter is below 4, so no batch of 10 mixes two of them.
        assert all(len({lengths[i] for i in b["train"]}) == 1 for b in batches)
        assert sorted(i for b in batches for i in b["train"]) == list(range(40))
    assert plan.epoch(0) != plan.epoch(1)


def test_retain_partners_go_through_the_whole_set_before_one_comes_again():
    plan = UnlearnPlan(n_forget=20, n_retain=360, answers={}, batch_size=4, seed=3)
    drawn = [i for e in range(18) for b in plan.epoch(e) for i in b["retain"]]
    # 18 epochs of 20 are 360 draws: each partner once, where drawing with replacement would miss a third.
    assert Counter(drawn) == Counter(range(360))
    again = [i for b in plan.epoch(18) for i in b["retain"]]
    assert again != drawn[:20]


def test_forget_and_partners_are_paired_row_by_row():
    plan = UnlearnPlan(n_forget=10, n_retain=3, answers={"idk": 5}, batch_size=4, seed=0)
    for batch in plan.epoch(2):
        assert len(batch["forget"]) == len(batch["retain"]) == len(batch["idk"])
        # IDK rows are numbered question * n_idk + line.
        assert [i // 5 for i in batch["idk"]] == list(batch["forget"])
