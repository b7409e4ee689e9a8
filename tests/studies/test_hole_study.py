"""A study of holes from a file to its tables: nano models, a judge on a server, tasks run in this process."""

import csv
import json

import pytest
import torch
from tests.judges.faulty_server import serving
from tests.probed import make_probed, verdict

from vestige.core.errors import InputError
from vestige.metrics import intervals
from vestige.studies import hole_study
from vestige.studies.hole_study import forecast_study, probe_jobs, run_hole_study, run_seed, study_tasks
from vestige.studies.hole_study_settings import HoleStudyFolder, paper_size, refuse_paper, study_named
from vestige.studies.hole_study_tables import write_tables

OWN = """
forget = "{at}/forget.jsonl"
k = 2
general_tokens = 4
device = "cpu"
[data]
data = "{at}/qa.jsonl"
[models]
target = "{at}/target"
policy = "{at}/target"
[models.unlearned]
mute = "{at}/unlearned"
[checkpoints]
runs = 2
[checkpoints.models]
"step 1" = "{at}/unlearned"
[ablation]
of = "mute"
[ablation.variants]
"latent.ngram_coef" = [5.0]
[variance]
of = "mute"
generations = 2
[mitigation]
of = "mute"
[mitigation.settings]
every = "1 epochs"
answer_tokens = 4
[mitigation.training]
max_steps = 2
lora_rank = 0
[judge]
kind = "server"
model = "m"
url = "{url}"
embedder = "{at}/embedder"
[answers]
max_tokens = 4
[latent]
n_iterations = 1
[policy]
n_rollouts = 4
n_tokens = 6
epochs = 1
lora_rank = 2
[filter]
alike = 1.0
"""
TABLES = (1, 2, 3, 6, 7, 10)


def asked(folder, url):
    (folder / "own.toml").write_text(OWN.format(at=folder, url=url))
    return study_named(str(folder / "own.toml"))


def work(tasks):
    for task in tasks:
        task.run(**task.arguments, report=lambda share: None)


def contents(folder):
    return {p.name: p.read_bytes() for p in (folder / "tables").iterdir()} | {"": (folder / "tables.md").read_bytes()}


def cells(page, begins):
    return [line for line in page.splitlines() if line.startswith(begins)]


@pytest.mark.slow
def test_a_study_of_own_models_ends_in_its_tables_and_a_stopped_one_in_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 200)
    torch.set_num_threads(1)
    make_probed(tmp_path)
    with serving(verdict) as server:
        settings = asked(tmp_path, server.url)
        whole, part = HoleStudyFolder(tmp_path / "whole"), HoleStudyFolder(tmp_path / "part")
        work(study_tasks(whole, settings, TABLES))
        write_tables(whole, settings, TABLES)
        tasks = study_tasks(part, settings, TABLES)
        work(tasks[:3])
        write_tables(part, settings, TABLES)
        early = contents(part.path)
        work(tasks)
        write_tables(part, settings, TABLES)
    assert contents(part.path) == contents(whole.path) != early
    page = whole.page.read_text()
    # The unlearned model says nothing, so that every prompt is a hole: 9 before, 1 after.
    assert "9.00" in cells(page, "| mute | before |")[0]
    assert "(100.0%)" in cells(page, "|  | after |")[0]
    assert all("not made" not in line for line in page.splitlines() if line.startswith("| "))
    assert len(cells(page, "| step 1 |")) == 2
    # Each way has the target, the unlearned model and its last checkpoint, which is kept.
    assert [len(cells(page, f"| {way} | ")) >= 3 for way in ("gd", "kl")] == [True, True]
    assert "(kept)" in page
    with whole.table(1).open() as file:
        rows = [r for r in csv.DictReader(file) if (r["row"], r["set"], r["measure"]) == ("mute", "D_AP", "holes")]
    assert [float(r["value"]) for r in rows] == [1.0]


def test_only_what_the_tables_need_is_planned(tmp_path):
    settings = asked(tmp_path, "http://localhost:1/v1")
    place = HoleStudyFolder(tmp_path / "out")
    assert [j.name for j in probe_jobs(place, settings, (1, 2))] == ["probe mute"]
    jobs = probe_jobs(place, settings, (7, 10))
    assert [j.name for j in jobs][1:] == ["probe latent.ngram_coef=5", "probe step 1, run 1", "probe step 1, run 2"]
    assert [j.seed for j in jobs[2:]] == [0, run_seed(0, 2)]
    assert [j.settings.latent.ngram_coef for j in jobs[:2]] == [1.0, 5.0]
    names = [t.name for t in study_tasks(place, settings, (6,))]
    assert names == ["general target", "general mute", "probe mute", "variance"]


def test_a_study_that_makes_its_models_waits_for_them(tmp_path):
    settings = study_named("sample1")
    tasks = {t.name: t for t in study_tasks(HoleStudyFolder(tmp_path), settings, (4, 6, 7))}
    assert tasks["policy"].after == ("compile",)
    assert tasks["probe rmu"].after == ("compile", "target", "policy", "rmu")
    assert tasks["probe llmu step 50, run 1"].after == ("compile", "target", "policy", "llmu step 50")
    assert tasks["variance"].after == ("probe llmu", "compile", "llmu seed 1", "llmu seed 2")
    assert ("mend iterative" in tasks, "mend gd" in tasks, "probe policy.temperature=1" in tasks) == (
        True,
        False,
        False,
    )


def test_a_forecast_counts_every_probe_and_makes_nothing(tmp_path):
    make_probed(tmp_path)
    found = forecast_study(tmp_path / "out", asked(tmp_path, "http://localhost:1/v1"), (1, 10))
    # Two probes of one iteration of 4 prompts each.
    assert (found.n_probes, found.judgements["reward"], (tmp_path / "out").exists()) == (2, 8, False)


def test_the_papers_own_experiments_have_a_size_and_no_model_where_there_is_no_hub():
    found = paper_size("llmu")
    # 50 samples of 4 questions and 50 iterations of 128 prompts: 6,600 candidates, asked of the target three times.
    assert (found.target, found.forecast.target_calls) == ("mistralai/Mistral-7B-Instruct-v0.1", 3 * 6600)
    assert found.forecast.judge_requests["overlap"] == 6600 * 50
    with pytest.raises(InputError, match=r"Instruct-v0\.1' is no local folder and cannot be fetched"):
        refuse_paper("llmu")


def test_a_folder_with_another_study_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(hole_study, "run_tasks", lambda tasks, **_: {})
    settings = asked(tmp_path, "http://localhost:1/v1")
    run_hole_study(tmp_path / "out", settings, (1,))
    assert json.loads(HoleStudyFolder(tmp_path / "out").asked.read_text())["k"] == 2
    with pytest.raises(InputError, match="differs in k"):
        run_hole_study(tmp_path / "out", settings.model_copy(update={"k": 3}), (1,))
    # The same names, and another forget set under one of them.
    run_hole_study(tmp_path / "out", settings, (1,))
    (tmp_path / "forget.jsonl").write_text("{}")
    with pytest.raises(InputError, match="differs in contents"):
        run_hole_study(tmp_path / "out", settings, (1,))
