"""The main commands as functions: from data to a verdict in Python, and what their results show."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from pandas import DataFrame, to_datetime
from tests.judges.faulty_server import serving
from tests.probed import make_probed, verdict

import vestige
from vestige import api
from vestige.api.inputs import selector
from vestige.core.errors import InputError
from vestige.core.files import write_jsonl
from vestige.data.loaders import load_items
from vestige.models.load import ModelSettings, load

QUICK = {"relearn": (), "in_context": (), "quantize": (8,), "ablate": (), "suppress": False, "max_new_tokens": 4}


@pytest.fixture
def data(taught):
    return {"data": taught / "qa.jsonl", "forget": str(taught / "forget.jsonl")}


@pytest.mark.slow
def test_from_data_to_a_verdict(taught, data, tmp_path, few_resamples):
    again = {"training": vestige.Training(epochs=1, lora_rank=0, batch_size=8)}
    retrained = api.finetune(taught / "target" / "model", **data, output_dir=tmp_path / "retrained", **again)
    assert retrained.steps == len(retrained.training_log()) == 1
    assert "forget: 4" in retrained.notes[0]
    forgot = api.unlearn(
        taught / "target",
        method="ga",
        **data,
        output_dir=tmp_path / "ga",
        training=vestige.Training(epochs=1, learning_rate=1e-3),
    )
    assert {"step", "loss"} <= set(forgot.to_frame().columns)

    results = api.evaluate(forgot, **data, evals={"qa": {"max_new_tokens": 4}})
    frame = results.to_frame()
    assert set(frame["split"]) == {"forget", "retain"}
    assert frame["method"].unique() == ["ga"]
    assert all(path.exists() for path in results.evidence)

    attacked = api.attack(forgot, vestige.Relearn(items=2, epochs=1), **data, evals=[vestige.QA(max_new_tokens=4)])
    assert list(dict.fromkeys(attacked.to_frame()["attack"])) == ["", "relearn retain n=2, 1"]
    assert {row["split"] for row in attacked.rows} == {"forget"}

    given = {**data, "target": taught / "target", "unlearned": [forgot], "retrained": [retrained]}
    settings = vestige.AuditSettings(evals=("qa",), **QUICK)
    margins = vestige.Margins(delta_wide=0.3)
    audit = api.audit(**given, output_dir=tmp_path / "run", settings=settings, margins=margins, workers=1)
    assert audit.failed == {}
    assert audit.outcomes[0].thresholds["delta_wide"] == 0.3
    by_name = {row["claim"]: row["verdict"] for row in audit.verdicts}
    assert audit["ga"].not_expressed.verdict == by_name["not expressed"]
    assert audit["ga"].not_stored.verdict == by_name.get("not stored", "not tested")
    assert audit.passed is (set(by_name.values()) == {"pass"})
    with pytest.raises(InputError, match=r"no unlearned model 'gb'\. Known: ga"):
        audit["gb"]
    assert re.fullmatch(r"Audit\('.*/run': 1 models?, claims: 0 pass, \d fail, \d inconclusive\)", repr(audit)), audit
    assert [(row["subject"], row["claim"]) for row in audit.verdicts][:2] == [
        ("ga", "not expressed"),
        ("ga", "not recoverable"),
    ]
    assert json.loads((tmp_path / "run" / "verdicts.json").read_text()) == audit.verdicts
    assert list(audit.to_frame()["verdict"]) == [row["verdict"] for row in audit.verdicts]
    assert "<td>not expressed</td>" in audit._repr_html_()
    assert audit.report().name == "report.html"
    assert api.read_audit(tmp_path / "run").verdicts == audit.verdicts


def test_a_probe_finds_that_a_silent_model_has_holes(tmp_path, few_resamples):
    probed = make_probed(tmp_path)
    sets = {"data": probed / "qa.jsonl", "forget": str(probed / "forget.jsonl"), "output_dir": tmp_path / "holes"}
    policy = {"n_rollouts": 4, "n_tokens": 6, "epochs": 1, "lora_rank": 2}
    with serving(verdict) as log:
        small = {"answers": vestige.Answers(max_tokens=4), "latent": vestige.Latent(n_iterations=1)}
        small |= {"policy": vestige.Policy(**policy), "by": "templates"}
        small |= {"judge": f"{log.url}#m", "embedder": str(probed / "embedder")}
        small |= {"asks": str(probed / "target"), "k": 1, "filter": vestige.Filter(alike=1.0), "device": "cpu"}
        found = api.probe(probed / "target", probed / "unlearned", **sets, searches=["random"], **small)
        paid = len(log.paid)
        again = api.probe(probed / "target", probed / "unlearned", **sets, searches=["random"], **small)
        assert paid == len(log.paid)
    assert again.table == found.table
    rows = {(row["source"], row["metric"]): row["value"] for row in found.rows}
    assert (rows["adjacent", "holes"], rows["adjacent", "false holes"]) == (1, 0)
    assert {"adjacent", "random"} >= {hole["source"] for hole in found.holes} >= {"adjacent"}
    assert len(found.to_frame()) == len(found.holes) == found.table.n_holes >= 3
    assert "<td>false holes</td>" in found._repr_html_()
    with pytest.raises(InputError, match="Did you mean 'latent'"):
        api.probe("t", "u", **sets, latnt=None)


def test_what_is_wrong_is_one_sentence(taught, data, tmp_path):
    with pytest.raises(InputError, match="evals is empty"):
        api.evaluate(taught / "target", **data, evals=())
    for match, kind, given in (
        ("Did you mean 'relearn'", "relern", {}),
        ("bits = 3: must be 'nf4', 4 or 8", "quantize bits=3", {}),
        ("only a prefix search takes a target, and it needs one", "prefix", {}),
        ("only a prefix search takes a target", "gcg", {"target": taught / "target"}),
    ):
        with pytest.raises(InputError, match=match):
            api.attack(taught / "target", kind, **data, **given)
    with pytest.raises(InputError, match="has no audit"):
        api.read_audit(tmp_path)
    with pytest.raises(InputError, match=r"data is list\. Give a path"):
        api.evaluate(taught / "target", data=["a question"])
    with pytest.raises(InputError, match=r"a model is object\. Give its folder"):
        api.evaluate(object(), data=data["data"])
    with pytest.raises(InputError, match=r"^settings: delta \(0.5\) is above delta_wide \(0.2\)"):
        api.audit(
            target="a", unlearned="b", **data, output_dir=tmp_path / "x", settings=vestige.AuditSettings(delta=0.5)
        )
    assert not (tmp_path / "x").exists()


def test_cells_in_memory_are_taught_as_they_are_or_refused_by_row_and_column(tmp_path, monkeypatch):
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "cache"))
    numbers = DataFrame(
        {"question": ["How much?", "How little?"], "answer": [3.14159265358979, 1e-12], "note": [None, "n"]}
    )
    lines = [json.loads(line) for line in Path(selector(numbers)).read_text().splitlines()]
    assert [row["answer"] for row in lines] == [3.14159265358979, 1e-12]
    missing = selector([{"question": "q", "answer": np.int64(7), "note": float("nan")}])
    assert json.loads(Path(missing).read_text()) == {"question": "q", "answer": 7, "note": None}
    date = DataFrame({"question": ["When?"], "answer": to_datetime(["2020-01-01"])})
    for rows, refused in (
        (date, r"row 1, 'answer': Timestamp is not a JSON value"),
        ([{"question": "q", "answer": "a"}, {"question": "q", "answer": {1, 2}}], "row 2, 'answer': set"),
        ([{"question": "q", "answer": "\udc80"}], "row 1, 'answer': str"),
        (DataFrame([["q", "a"]], columns=["question", "question"]), "two columns have the same name: question"),
    ):
        with pytest.raises(InputError, match=refused):
            selector(rows)


def test_an_empty_name_is_no_folder(tmp_path, monkeypatch):
    # A shell's variable that is not set: as a path it is the folder that one is in, with whatever lies there.
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "data.jsonl", [{"question": f"q {n}?", "answer": "a", "edge": "e"} for n in range(4)])
    for sets in ({"forget": ""}, {"forget": "edge:e", "retain": " "}, {"forget": "edge:e", "data": ""}):
        with pytest.raises(InputError, match="data set or forget set is empty"):
            api.unlearn("builtin:tiny", **{"data": "data.jsonl", **sets}, method="ga", output_dir=tmp_path / "u")
    with pytest.raises(InputError, match="controls = 0"):
        api.plan(data="data.jsonl", forget="edge:e", controls=0)


@pytest.mark.slow
def test_rows_and_models_in_memory_are_what_their_files_are(taught, data, tmp_path, monkeypatch, few_resamples):
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "cache"))
    rows = [{"question": i.question, "answer": i.answer, "note": None} for i in load_items(data["data"])]
    asked = {"evals": {"qa": {"max_new_tokens": 4}}, "output_dir": tmp_path / "evidence"}
    target = taught / "target/model"
    on_file = api.evaluate(target, data=data["data"], **asked)
    for same in (rows, DataFrame(rows), Dataset.from_list(rows)):
        assert api.evaluate(target, data=same, **asked).rows == on_file.rows
    loaded = load(ModelSettings(model=str(target), device="cpu"))
    pair = (loaded.model, loaded.tokenizer)
    forgotten = {"data": rows, "forget": DataFrame(rows[:4])}
    # The same weights and tokeniser: the same digest, in a folder of the cache that is written once.
    in_memory = api.evaluate(pair, **forgotten, **{**asked, "output_dir": tmp_path / "other"})
    folder = next(p for p in (tmp_path / "cache/in-memory").iterdir() if p.is_dir())
    written = (folder / "model.safetensors").stat().st_mtime_ns
    on_disk = api.evaluate(target, data=data["data"], forget=data["forget"], **asked)
    values = [[row["value"] for row in results.rows] for results in (in_memory, on_disk)]
    assert values[0] == values[1]
    api.evaluate(loaded, **forgotten, **{**asked, "output_dir": tmp_path / "other"})
    assert (folder / "model.safetensors").stat().st_mtime_ns == written


@pytest.mark.slow
def test_data_is_checked_an_audit_planned(taught, data, tmp_path, monkeypatch, few_resamples):
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "cache"))
    rows = [{"question": i.question, "answer": i.answer} for i in load_items(data["data"])]
    checked = api.check_data(
        data=rows, forget=rows[:5], output_dir=tmp_path / "run", checks=vestige.Checks(permutations=2000)
    )
    assert (tmp_path / "run/soundness.json").exists()
    assert checked.lines
    plan = api.plan(**data, controls=3, settings=vestige.AuditSettings(quantize=(8,)))
    assert (plan.controls, plan.facts) == (3, 4)


def test_what_a_model_or_a_data_set_says_is_shown_as_text():
    shown = api.Results(({"split": "<script>", "metric": "\x1b[31m", "value": 0.25},), ())._repr_html_()
    assert "<script>" not in shown
    assert "\x1b" not in shown
    assert "<td>0.25</td>" in shown
