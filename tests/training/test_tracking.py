"""What a training tells: its log, whose measurements are told apart from its numbers."""

import json

import pytest

from vestige.core.files import read_jsonl
from vestige.training.loop import MEASURED, TrainingLog, train


def test_a_line_holds_the_step_its_terms_and_what_it_took(fresh, make_job):
    job = make_job(epochs=1)
    train(fresh().model, job)
    line = next(read_jsonl(job.log))
    assert list(line) == [
        *("step", "epoch", "loss", "gradient_norm", "rate", "terms", "observed", "n_tokens", "state"),
        *MEASURED,
    ]
    assert line["tokens_per_second"] == pytest.approx(line["n_tokens"] / line["seconds"])
    # A process that has loaded torch holds more than 100 MB and, here, less than 100 GB: the unit is right.
    assert 1e2 < line["peak_mb"] < 1e5


def test_reopening_drops_what_was_logged_after_the_checkpoint_and_the_torn_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    first, second = ({"step": n, "epoch": 0, "loss": loss, "n_tokens": 5} for n, loss in ((1, 3.0), (2, 2.0)))
    path.write_text(f'{json.dumps(first)}\n{json.dumps(second)}\n{{"step": 3, "lo')
    log = TrainingLog.opened(path, done=1, writes=True)
    assert log.loss == 3.0
    assert path.read_text() == json.dumps(first) + "\n"
    log.add({"step": 2, "loss": 2.5})
    assert path.read_text().count("\n") == 1
    log.write()
    assert path.read_text() == json.dumps(first) + '\n{"step": 2, "loss": 2.5}\n'


def test_a_process_that_does_not_lead_leaves_the_file_alone(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 3.0}\n')
    log = TrainingLog.opened(path, done=0, writes=False)
    log.add({"step": 1, "loss": 9.0})
    log.write()
    assert path.read_text() == '{"step": 1, "loss": 3.0}\n'
    assert log.loss == 9.0
