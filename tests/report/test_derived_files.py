"""Files that follow from sealed ones are made anew before they leave the run, so that an edit reaches nobody."""

import json
import re
import shutil

import pytest
from synthetic_audit import outcome, write_audit
from synthetic_run import write_run
from typer.testing import CliRunner

from vestige.artifacts.layout import EvalFolder, RunFolder
from vestige.artifacts.records import evaluation_number, next_number, read_finished, write_collected, write_finished
from vestige.artifacts.verdicts import read_baseline, verdict_rows, write_verdicts
from vestige.cli.app import app
from vestige.core.errors import InputError, MachineError, out_of_memory
from vestige.core.ids import content_id, file_digest
from vestige.core.store import write_sealed
from vestige.models.http import _spellings
from vestige.report.build import build_bundle, build_report
from vestige.report.evidence import read_evidence


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    run = write_run(tmp_path_factory.mktemp("run") / "demo", hostile=False, forgets=("edge:A_B",))
    write_audit(run, outcome())
    return run


@pytest.fixture
def edited(audited, tmp_path):
    """A run in which somebody turned every verdict into a pass, in all files that are not sealed."""
    run = tmp_path / "demo"
    shutil.copytree(audited, run)
    write_verdicts(RunFolder(run))
    path = RunFolder(run).verdicts
    path.write_text(re.sub('"verdict": "(fail|inconclusive)"', '"verdict": "pass"', path.read_text()))
    return run


def verdicts(rows):
    return [row["verdict"] for row in rows]


EXPECTED = verdicts(verdict_rows([outcome()]))


@pytest.mark.slow
def test_a_report_and_a_bundle_have_the_verdicts_of_the_sealed_outcome(edited, tmp_path):
    assert verdicts(json.loads(RunFolder(edited).verdicts.read_text())) != EXPECTED
    build_bundle(edited, tmp_path / "bundle")
    assert verdicts(json.loads((tmp_path / "bundle" / "verdicts.json").read_text())) == EXPECTED
    build_report(edited)
    assert verdicts(json.loads(RunFolder(edited).verdicts.read_text())) == EXPECTED


@pytest.mark.parametrize("name", ["", "verdicts.json"])
def test_a_baseline_is_that_of_the_sealed_outcome(edited, name):
    assert verdicts(read_baseline(edited / name).values()) == EXPECTED


@pytest.mark.slow
def test_a_report_elsewhere_leaves_the_run_as_it_is_and_tells_what_is_missing(edited, tmp_path):
    sorted(edited.rglob("done.json"))[-1].unlink()
    before = {p: p.read_bytes() for p in edited.rglob("*") if p.is_file()}
    done = CliRunner().invoke(app, ["report", str(edited), "--output-dir", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert {p: p.read_bytes() for p in edited.rglob("*") if p.is_file()} == before
    assert verdicts(json.loads((tmp_path / "out" / "verdicts.json").read_text())) == EXPECTED
    assert (tmp_path / "out" / "tables" / "results.csv").is_file()
    missing = read_evidence(RunFolder(edited)).missing
    assert missing
    assert all(sentence in done.stderr for sentence in missing)
    # A second time it is Vestige's own page that is replaced.
    build_report(edited, output_dir=tmp_path / "out")


@pytest.mark.slow
def test_a_bundle_names_evaluations_that_it_leaves_out(edited, tmp_path):
    path = next(edited.rglob("identity.json"))
    identity = json.loads(path.read_text())
    path.write_text(json.dumps({**identity, "model": "0" * 64}))
    write_collected(EvalFolder(path.parent), 1)
    done = CliRunner().invoke(app, ["evidence", str(edited), str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    model = path.parents[2].relative_to(edited)
    assert f"{model} holds evaluations of another model. The report leaves them out." in done.stderr


def test_a_table_of_edges_that_was_changed_after_it_was_compiled_is_refused(edited):
    run = RunFolder(edited)
    manifest = {"files": {"edges.csv": {"sha256": file_digest(run.edges)}}}
    (run.data / "manifest.json").write_text(json.dumps(manifest))
    build_report(edited)
    run.edges.write_text(run.edges.read_text().replace("sales", "sale"))
    with pytest.raises(InputError, match=r"edges\.csv was changed after it was compiled"):
        build_report(edited)


@pytest.mark.parametrize("name", ["report.html", "verdicts.json", "tables/results.csv"])
def test_a_file_of_the_users_is_not_overwritten(audited, tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    with pytest.raises(InputError, match="Vestige did not write it"):
        build_report(audited, output_dir=tmp_path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("place", ["run.toml", *(f"{p}provenance.json" for p in ("", "models/*/", "*/*/evals/*/"))])
def test_a_file_that_lost_its_checksum_is_refused(edited, place):
    path = next(edited.glob(place))
    text = path.read_text()
    path.write_text(text.rpartition("# checksum")[0] or text.replace('"seal"', '"sea"').replace('"files"', '"file"'))
    with pytest.raises(InputError, match=rf"{path.name}.*(Delete|Restore)"):
        build_report(edited)


def test_answers_that_no_checksum_verifies_are_named(edited):
    path = next(edited.glob("models/target/evals/*/collected.json"))
    told = f"models/target: no checksum verifies the answers in {path.parent.name}, as in files of earlier versions."
    assert told not in read_evidence(RunFolder(edited)).missing
    stored = {**json.loads(path.read_text()), "schema": 2}
    path.write_text(json.dumps({name: value for name, value in stored.items() if name != "seal"}))
    assert told in read_evidence(RunFolder(edited)).missing


@pytest.mark.parametrize(("name", "result"), [("outcome", "verdicts"), ("collected", "answers")])
def test_the_advice_for_a_damaged_sealed_file_names_the_result_to_make_again(edited, name, result):
    path = next(edited.rglob(f"{name}.json"))
    path.write_text(path.read_text().replace('"n": ', '"n": 1'))
    for damage in ("is gone or was changed", "line .* not JSON"):
        with pytest.raises(InputError, match=rf"{name}\.json.* {damage}.* Delete .* It makes the {result} anew"):
            build_report(edited)
        path.write_text(path.read_text() + "x")


MODEL = {"weights": "w", "tokenizer": "t"}


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored.update(digest="0" + stored["digest"][1:]),
        lambda stored: stored["model"].update(weights="v"),
        lambda stored: stored.update(steps=4),
        lambda stored: stored["files"].update(model="0"),
        lambda stored: stored.pop("seal"),
    ],
)
def test_an_edit_of_what_was_finished_is_refused(tmp_path, change):
    path = tmp_path / "done.json"
    write_finished(path, {"digest": content_id(MODEL, length=64), "model": MODEL, "steps": 3, "files": {}})
    assert read_finished(path, "files")["steps"] == 3
    stored = json.loads(path.read_text())
    change(stored)
    path.write_text(json.dumps(stored))
    with pytest.raises(InputError, match=r"was changed after it was written|no field 'seal'"):
        read_finished(path)


def test_an_edit_of_how_the_model_was_made_is_refused(tmp_path):
    spec, done = tmp_path / "spec.json", tmp_path / "done.json"
    spec.write_text('{"epochs": 6}')
    write_finished(done, {"digest": content_id(MODEL, length=64), "model": MODEL})
    read_finished(done)
    for change in (lambda: spec.write_text('{"epochs": 7}'), spec.unlink):
        change()
        with pytest.raises(InputError, match=r"spec\.json was changed after the model was made"):
            read_finished(done)


def test_the_newest_evaluation_is_the_one_with_the_highest_number(tmp_path):
    first, second = (EvalFolder(tmp_path / name) for name in ("b", "a"))
    assert next_number(first) == 1
    for folder, number, year in ((first, 1, 2026), (second, 2, 1999)):
        folder.path.mkdir()
        write_sealed(folder.provenance, {"number": number, "times": {"started": f"{year}-01-01"}})
    assert next_number(first) == 3
    assert [evaluation_number(folder) for folder in (first, second)] == [1, 2]


@pytest.mark.slow
def test_a_clock_that_was_set_back_shows_no_older_answer(audited, tmp_path):
    run = RunFolder(tmp_path / "demo")
    shutil.copytree(audited, run.path)
    (subject, *_) = run.subjects()
    (old,) = [folder for folder in subject.evaluations() if folder.path.name.startswith("qa")][:1]
    new = EvalFolder(old.path.with_name(f"{old.path.name}-new"))
    shutil.copytree(old.path, new.path)
    for folder, number, started in ((old, 1, "2026-01-01T00:00:00"), (new, 2, "2024-01-01T00:00:00")):
        write_sealed(folder.provenance, {"number": number, "times": {"started": started}})
    name = subject.path.relative_to(run.path).as_posix()
    shown = next(s for s in read_evidence(run).subjects if s.path == name)
    assert shown.answers == new


def test_a_memory_that_gave_out_is_known_by_torchs_words_for_a_cpu():
    text = "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried"
    assert out_of_memory(RuntimeError(text))
    assert out_of_memory(MemoryError())
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not out_of_memory(MachineError("can't allocate memory"))


KEY = "sk-Test+Key/1234567890"


@pytest.mark.parametrize(
    "quoted",
    [
        KEY,
        KEY.lower(),
        KEY.upper(),
        KEY[::-1],
        "c2stVGVzdCtLZXkvMTIzNDU2Nzg5MA==",
        "c2stVGVzdCtLZXkvMTIzNDU2Nzg5MA".replace("+", "-"),
        "sk-Test%2BKey%2F1234567890",
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
    ],
)
def test_a_key_is_masked_however_a_server_quotes_it(quoted):
    masked = _spellings(KEY).sub("[key]", f"no: {quoted}.")
    assert masked.startswith("no: [key]")
    assert len(masked) <= len("no: [key]==.")
