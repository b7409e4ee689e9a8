"""Requests that are forgotten one after another: what each step is made of, its audits, and its curves."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.small import nano, vestige, written

import vestige as vestige_api
from vestige.artifacts.layout import RunFolder
from vestige.artifacts.records import read_spec
from vestige.artifacts.verdicts import sequence_lines
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.settings import to_toml
from vestige.report.sequence import sequence_block
from vestige.studies.sequence import IN_TURN, RequestSequence, SequenceSettings

ITEMS = [Item(f"What is the code of {name}{n}?", f"{n * 7}{name}.", edge=name) for name in "abcd" for n in range(8)]
AUDIT = {"evals": ["qa"], "relearn": [], "quantize": [], "ablate": [], "in_context": [], "suppress": False}
AUDIT |= {"kept_items": 8, "max_new_tokens": 4}


@pytest.fixture(autouse=True)
def nano_models() -> Iterator[None]:
    with nano():
        yield


def values(folder: Path, **changes: Any) -> dict[str, Any]:
    data = str(written(folder / "data.jsonl", ITEMS))
    training = {"epochs": 1, "lora_rank": 0}
    given = {"data": data, "model": "builtin:tiny", "method": "ga", "requests": ["edge:a", "edge:b"], "controls": 1}
    given |= {"finetune": training, "unlearn": training, "audit": AUDIT, "read": {"device": "cpu"}}
    return given | changes


def sequence(folder: Path, **changes: Any) -> RequestSequence:
    return RequestSequence(RunFolder(folder / "run"), SequenceSettings.build(values(folder, **changes)))


def test_a_step_forgets_its_request_from_the_model_before_and_controls_never_saw_any_so_far(tmp_path):
    made = sequence(tmp_path, requests=["edge:a", "edge:b", "edge:c"])
    of = {e: {i.id for i in ITEMS if i.edge == e} for e in "abcd"}
    step = {name: {i.id for i in items} for name, items in made.splits[2].splits.items()}
    assert (step["forget"], step["retain"]) == (of["c"], of["d"])
    together = {i.id for i in made.at_once(3).splits["forget"]}
    assert together == of["a"] | of["b"] | of["c"]
    # The audit of the first request after the third asks about it alone, and keeps what nobody asked to forget.
    audit = made.audit(3, 1)
    assert {i.id for i in audit.splits.splits["forget"]} == of["a"]
    assert audit.splits.forget == "edge:a after 3"
    assert audit.names("unlearned") == ("in turn", "at once")
    assert made.audit(1, 1).names("unlearned") == ("in turn",)
    assert [task.name for task in made.trainings(1)] == ["target", "retrained 1", "in turn"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"requests": ["edge:a"]}, "takes two requests or more"),
        ({"requests": ["edge:a", "edge:z"]}, "edge:z|'z'"),
        ({"requests": ["edge:a", "edge:b,edge:a"]}, "both hold the question 'What is the code of a0"),
        ({"requests": ["edge:a", "edge:b,edge:c,edge:d"]}, "leaves nothing to keep"),
        ({"method": "gaa"}, "ga"),
        ({"method": "retrain"}, "trains from the start, as the controls of a sequence do"),
        ({"method_settings": {"nonsense": 1}}, "nonsense"),
        ({"target": "nowhere"}, "nowhere"),
        ({"requests": ["edge:a", ""]}, "an empty name"),
        ({"unlearn": {"learning_rat": 1e-4}}, "learning_rate"),
        ({"audit": {"evals": ["qq"]}}, "qa"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_trained(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        sequence(tmp_path, **changes).check()
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_all_earlier_requests_are_audited_after_each_and_a_longer_file_goes_on(tmp_path):
    def run(**changes: Any) -> RunFolder:
        given = values(tmp_path, **changes)
        tables = {k: given.pop(k) for k in [*given] if isinstance(given[k], dict)}
        flat = given | {f"{k}.{name}": v for k, table in tables.items() for name, v in table.items()}
        (tmp_path / "requests.toml").write_text(to_toml(flat))
        ended = vestige("sequence", tmp_path / "requests.toml", "--workers", 1, code=None)
        assert ended.exit_code in (3, 4), ended.output
        return RunFolder(tmp_path / "requests")

    first = run()
    before = {p: p.stat().st_mtime_ns for p in first.path.rglob("done.json")}
    assert len(before) == 1 + 2 + 3, "the target, a control and a model in turn a step, and one at once"
    made = run(requests=["edge:a", "edge:b", "edge:c"])
    assert all(p.stat().st_mtime_ns == time for p, time in before.items())
    asked = {f"edge:{name} after {step}" for step, names in ((1, "a"), (2, "ab"), (3, "abc")) for name in names}
    audit = vestige_api.read_audit(made.path)
    assert {row["forget"] for row in audit.verdicts} == asked
    assert not any("not verified" in sentence for sentence in audit.untested), (
        "controls were trained without all so far"
    )
    last = read_spec(RequestSequence(made, SequenceSettings.build(values(tmp_path))).unlearned(3, IN_TURN).spec)
    assert [s.name for s in last.forgotten] == ["edge:a", "edge:b", "edge:c"]
    rows = list(csv.DictReader((made.tables / "sequence.csv").open()))
    assert [dict(row, value=float(row["value"])) for row in rows] == [
        {key: "" if value is None else str(value) for key, value in row.items()} | {"value": row["value"]}
        for row in audit.curves
    ]
    otherwise = SequenceSettings.build(values(tmp_path, requests=["edge:b", "edge:a"]))
    with pytest.raises(InputError, match="holds another sequence"):
        RequestSequence(made, otherwise).check()


def test_curves_have_a_line_a_request_and_model_in_the_format_that_tells_most():
    def row(step, request, model, value, form="forced", what="left", split="forget"):
        names = {"step": step, "request": request, "model": model, "what": what, "split": split, "format": form}
        return names | {"value": value, "low": value - 0.1, "high": value + 0.1, "n": 9}

    rows = [row(1, "a", IN_TURN, 0.2), row(2, "a", IN_TURN, 0.5), row(2, "a", "at once", 0.1), row(2, "b", IN_TURN, 0)]
    rows += [row(2, "a", IN_TURN, 0.9, form="choose")]  # more is left by it, but one audit alone has it
    rows += [
        row(1, "a", IN_TURN, 0.03, "generate", what="lost", split="retain"),
        row(1, "a", IN_TURN, 0.3, "generate", what="lost", split="factual"),
    ]
    values = {names: {s: r["value"] for s, r in line.items()} for names, line in sequence_lines(rows).items()}
    assert values == {
        ("left of a", "in turn"): {1: 0.2, 2: 0.5},
        ("left of b", "in turn"): {2: 0},
        ("left of a", "at once"): {2: 0.1},
        ("lost of what is kept", "in turn"): {1: 0.03},
    }


def test_a_picture_holds_its_intervals_and_says_each_number():
    ends = {"what": "left", "split": "forget", "format": "forced", "n": 9, "request": "edge:a"}
    rows = [
        {"step": 1, "model": IN_TURN, "value": 0.5, "low": -0.5, "high": 1.5} | ends,
        {"step": 2, "model": "at once", "value": 0.0, "low": None, "high": None} | ends,
    ]
    block = sequence_block(rows)
    (picture,) = block["pictures"]
    first, second = (curve["marks"][0] for curve in picture["curves"])
    # The range [-0.5, 1.5] lies on 170 pixels down to 180: 0.5 is at 95, and 0 at 137.5. Step 1 of 2 is at a quarter.
    assert (first["bottom"], first["y"], first["top"], first["x"]) == (180, 95, 10, 132 - 4)
    assert (second["y"], second["bottom"], second["told"]) == (137.5, 137.5, "at once: 0.00 [no interval]")
    assert block["table"][0] == ("left of edge:a", "in turn", ["0.50 [-0.50, 1.50]", ""])
    assert sequence_block([]) is None
