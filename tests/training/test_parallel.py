"""Two gloo processes against one: the same gradients, the same trajectory, and checkpoints that either goes on from."""

import json
import socket
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from two_processes import BFLOAT16, CASES, CUT, STEPS, first_gradients, made, run_two_processes

from vestige.core.errors import InputError
from vestige.core.files import read_jsonl
from vestige.models.folders import weights_digest
from vestige.training.loop import train
from vestige.training.parallel import ALONE, Spread, World, joined


def test_parts_are_dealt_out_and_every_process_makes_as_many_passes():
    # Five parts over two processes: three rounds, and the last part is computed by both, once with weight 0.
    dealt = [World(rank, 2).deal("abcde") for rank in (0, 1)]
    assert dealt[0] == [(0, "a", 1.0), (2, "c", 1.0), (4, "e", 1.0)]
    assert dealt[1] == [(1, "b", 1.0), (3, "d", 1.0), (4, "e", 0.0)]
    assert ALONE.deal("abc") == [(0, "a", 1.0), (1, "b", 1.0), (2, "c", 1.0)]


def test_no_process_is_left_without_rows_as_long_as_there_are_enough():
    assert World(0, 2).rows_at_a_time(8, None) == 4
    assert World(0, 3).rows_at_a_time(8, None) == 3
    assert World(0, 2).rows_at_a_time(8, 2) == 2
    assert ALONE.rows_at_a_time(8, None) == 8


def test_without_torchrun_there_is_one_process(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined() as world:
        assert world == ALONE


def test_the_gradient_is_that_of_the_sum_of_the_terms(fresh):
    model = fresh().model
    weight = model.model.norm.weight
    terms = {"forget": 2 * weight.sum(), "retain": 5 * weight.sum()}
    Spread(ALONE, model).add_gradients(lambda: terms, weight=0.5, last=True)
    assert weight.grad.unique().tolist() == [3.5]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """For each case: first gradients, log and last weights in one process; batches whole and in parts of 4."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("one")
    found = {}
    for case in CASES:
        for micro in (None, 4):
            model, job = made(case, folder / case / str(micro), micro=micro)
            outcome = train(model, job)
            assert outcome.steps == STEPS
            gradients = first_gradients(*made(case, folder / case / f"{micro} first", micro=micro))
            found[case, micro] = (gradients, list(read_jsonl(job.log)), weights_digest(model))
    return found


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    run_two_processes(folder, port)
    return folder


def same_gradients(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        torch.testing.assert_close(ours[name], expected, rtol=0, atol=1e-6 * max(1.0, expected.abs().max().item()))


def losses(log):
    return [row["loss"] for row in log]


# With dropout the masks belong to the parts, so that only a batch that is cut in the same way can be compared.
DROPOUT = "finetune dropout"


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case != DROPOUT])
def test_accumulated_parts_are_the_whole_batch(one_process, case):
    whole, parts = one_process[case, None], one_process[case, 4]
    same_gradients(parts[0], whole[0])
    assert losses(parts[1]) == pytest.approx(losses(whole[1]), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_as_one(one_process, two_processes, case):
    folder = two_processes / case
    gradients, log, _ = one_process[case, 4]
    same_gradients(load_file(folder / "gradients.safetensors"), gradients)
    ours = list(read_jsonl(folder / "whole" / "metrics.jsonl"))
    assert len(ours) == STEPS
    for key in ("loss", "gradient_norm"):
        assert [r[key] for r in ours] == pytest.approx([r[key] for r in log], rel=1e-4)
    for key in ("step", "rate", "n_tokens"):
        assert [r[key] for r in ours] == [r[key] for r in log]
    for key in ("terms", "observed", "state"):
        assert all(o[key] == pytest.approx(t[key], rel=1e-4) for o, t in zip(ours, log, strict=True))
    told = json.loads((folder / "told.json").read_text())
    model, _ = made(case, folder)
    assert told["names"] == [n for n, _ in model.named_parameters()]
    assert told["steps"] == STEPS


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case != DROPOUT])
def test_two_processes_go_on_from_what_one_kept(one_process, two_processes, case):
    log = list(read_jsonl(two_processes / case / "cut" / "metrics.jsonl"))
    assert [r["step"] for r in log] == list(range(1, STEPS + 1))
    expected = losses(one_process[case, None][1])
    assert losses(log)[:CUT] == expected[:CUT]
    assert losses(log)[CUT:] == pytest.approx(expected[CUT:], rel=1e-4)


@pytest.mark.slow
def test_two_processes_train_adapters_in_float32_on_a_model_in_bfloat16(two_processes, tmp_path):
    model, job = made(BFLOAT16, tmp_path, micro=4)
    train(model, job)
    assert {p.dtype for p in model.parameters()} == {torch.float32, torch.bfloat16}
    alone = losses(list(read_jsonl(job.log)))
    # A bfloat16 number has 8 bits: 2^-9 of it is rounding.
    together = losses(list(read_jsonl(two_processes / BFLOAT16 / "whole" / "metrics.jsonl")))
    assert together == pytest.approx(alone, rel=2**-9)
    assert alone[-1] < 0.98 * alone[0]


@pytest.mark.slow
def test_what_the_leading_process_says_is_heard_by_all(two_processes):
    heard = [json.loads((two_processes / f"heard-{rank}.json").read_text()) for rank in (0, 1)]
    left = 0 if Path("/proc/self/task").exists() else None
    assert heard == [{"said": "of rank 0: ä", "rank": 0.0, "left speaking": left}] * 2


TORCHRUN = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two', which is not a number of processes"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0'"),
        ({"RANK": None, "MASTER_ADDR": None}, "WORLD_SIZE is 2, and RANK, MASTER_ADDR is not set"),
        ({"RANK": "2"}, "RANK is '2' and not a number from 0 to 1"),
        ({"LOCAL_RANK": "x"}, "LOCAL_RANK is 'x'"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT is 'http'"),
    ],
)
def test_surroundings_that_torchrun_would_not_leave_are_refused(monkeypatch, changes, message):
    for name, value in {**TORCHRUN, **changes}.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=message), joined():
        pass
