"""A whole probe is killed at twenty random writes and run again: the same bytes, and nothing is lost unnoticed."""

import os
import random
import sys

import pytest
import torch
from tests.judges.faulty_server import serving
from tests.probed import make_probed, verdict
from typer.testing import CliRunner

from vestige.artifacts.layout import ProbeFolder
from vestige.cli.app import app

KILLS, CONCURRENCY, STRIDE = 20, 2, 80
SMALL = (
    "policy.n_rollouts=4",
    "policy.n_tokens=6",
    "policy.epochs=1",
    "policy.lora_rank=2",
    "latent.n_iterations=4",
    "answers.max_tokens=4",
    "filter.alike=1.0",
)
SAME = ("*.jsonl", "summary.json")


def die_at(n):
    """Let this process die at its n-th write, flush or rename from now on."""
    fsync, replace, left = os.fsync, os.replace, n

    def counted(work, *given):
        nonlocal left
        left -= 1
        if left == 0:
            os._exit(137)
        work(*given)
        left -= 1
        if left == 0:
            os._exit(137)

    os.fsync = lambda handle: counted(fsync, handle)
    os.replace = lambda source, target: counted(replace, source, target)


def in_a_child(work):
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        try:
            code = work()
        except BaseException:
            code = 1
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def contents(folder):
    files = [path for pattern in SAME for path in folder.rglob(pattern)]
    # The count of replies depends on the kills. The test compares it by itself.
    return {str(p.relative_to(folder)): p.read_bytes() for p in files if p.name != "replies.jsonl"}


def counted(folder):
    """The lines of the count of replies: one for each reply that came, in any order."""
    return ProbeFolder(folder).judge.joinpath("replies.jsonl").read_text().splitlines()


@pytest.mark.slow
@pytest.mark.usefixtures("few_resamples")
def test_a_probe_killed_at_twenty_random_writes_comes_to_the_same_bytes_and_counts_what_it_paid_for_nothing(tmp_path):
    torch.set_num_threads(1)
    probed = make_probed(tmp_path)
    words = ["--data", probed / "qa.jsonl", "--forget", probed / "forget.jsonl", "--policy", probed / "target"]
    words += ["--embedder", probed / "embedder", "--searches", "latent,random"]
    words += ["--device", "cpu", *(w for s in SMALL for w in ("--set", s))]

    def probe(out, url):
        models = [probed / "target", probed / "unlearned"]
        return (
            CliRunner()
            .invoke(
                app,
                [
                    "probe",
                    *map(str, [*models, *words, "--output-dir", out, "--judge", f"{url}?concurrency={CONCURRENCY}#m"]),
                ],
            )
            .exit_code
        )

    drawn = random.Random(0)
    with serving(verdict) as log:
        # Here, so that its children have everything imported.
        assert probe(tmp_path / "whole", log.url) == 0
        needed = sorted(log.paid)
        assert len(needed) == len(set(needed)) > 50
        log.paid.clear()

        def killed_at(n):
            die_at(n)
            return probe(tmp_path / "broken", log.url)

        kills = sum(in_a_child(lambda n=n: killed_at(n)) == 137 for n in drawn.choices(range(1, STRIDE), k=KILLS))
        assert in_a_child(lambda: probe(tmp_path / "broken", log.url)) == 0
        paid = list(log.paid)
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")
    assert sorted(set(paid)) == needed
    assert kills == KILLS
    assert len(paid) - len(needed) <= CONCURRENCY * kills
    # A reply is counted before it is kept. So a kill loses no count, only a reply, which counts twice once asked again.
    assert len(counted(tmp_path / "whole")) == len(needed)
    assert set(counted(tmp_path / "broken")) == set(counted(tmp_path / "whole"))
    assert len(needed) <= len(counted(tmp_path / "broken")) <= len(paid)
    assert not list((tmp_path / "broken").rglob("*.partial"))
