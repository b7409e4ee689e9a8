"""What a study's file means, and a small study from end to end."""

import ast
import importlib
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.small import nano

import vestige
from vestige.artifacts.layout import StudyFolder, SubjectFolder
from vestige.artifacts.records import read_spec
from vestige.attacks.planning import find_attack
from vestige.core.errors import InputError
from vestige.core.files import read_json
from vestige.evals import EVALS, find_eval
from vestige.steps.engine import Board, work
from vestige.studies.cells import KINDS, Study, splits_of
from vestige.studies.holes import hole_settings
from vestige.studies.presets import STUDIES, study_preset
from vestige.studies.results import PooledResults
from vestige.studies.settings import StudyMethod, StudyModel, StudySettings
from vestige.studies.studies import open_study_file, status
from vestige.studies.tables import tables_of, write_report

TEXT = """
name = "small"
seeds = [0, 1]
device = "cpu"
methods = ["ga"]
forget = ["edge:0_1", { name = "two", select = "each:2@1" }]
models = [{ name = "tiny", model = "builtin:tiny" }]
rates = [{ values = [1e-4] }]
data = [{ name = "chain", compile = "chain:4" }]
finetune = { epochs = 1, lora_rank = 0 }
unlearn = { epochs = 1, lora_rank = 0 }
evaluate = { splits = ["retain"], settings = { qa = { max_new_tokens = 4 } } }
"""


@pytest.fixture(autouse=True)
def nano_models() -> Iterator[None]:
    with nano():
        yield


def settings(**changed: Any) -> StudySettings:
    found = StudySettings.build({**tomllib.loads(TEXT), **changed})
    found.check()
    return found


def study(folder: Path = Path("unused"), **changed: Any) -> Study:
    return Study(settings(**changed), StudyFolder(folder))


def made(ours: Study) -> Board:
    """Every cell, made in this process."""
    from vestige.studies.making import check_study, make_cell

    check_study(ours)
    given = {"settings": ours.settings.model_dump_json(), "folder": str(ours.folder.path)}
    board = Board(ours.folder.state)
    work(board, ours.cells, lambda cell: make_cell(cell, **given), "run")
    assert status(ours).failed == {}
    return board


def keys(**changed: Any) -> set[str]:
    return {cell.key for cell in study(**changed).cells}


def test_one_target_serves_all_cells_of_its_seed_and_each_is_resolved_to_edges() -> None:
    cells = study().cells
    kinds = [c.kind for c in cells]
    assert {k: kinds.count(k) for k in kinds} == {"data": 1, "target": 2, "evaluate": 8, "unlearned": 6}
    assert {c.point.member for c in cells if c.kind == "unlearned"} == {"edge:0_1", "edge:1_2", "edge:3_4"}
    place = {c.key: n for n, c in enumerate(cells)}
    assert all(place[a] < place[c.key] for c in cells for a in c.after)


def test_keys_follow_from_what_is_made_and_not_from_names() -> None:
    named = {"forget": [{"name": "x", "select": "edge:0_1"}, {"name": "y", "select": "each:2@1"}]}
    assert keys(name="other", models=[{"name": "m", "model": "builtin:tiny"}], **named) == keys()
    more = keys(rates=[{"values": [1e-4, 2e-4]}])
    assert keys() < more
    assert len(more - keys()) == 12
    assert len(keys(seeds=[0]) - keys()) == 0
    # Another seed of the data is another data set, and nothing of it is shared.
    assert not keys(data=[{"name": "chain", "compile": "chain:4", "seed": 1}]) & keys()


def test_the_content_of_a_pack_is_in_the_keys_and_its_place_is_not(tmp_path: Path) -> None:
    some_files(tmp_path)

    def cells_of(folder: str, **changed: Any) -> tuple[str, ...]:
        given = [{"model": "open-unlearning/tofu_Llama-3.2-1B-Instruct_full", "teach": False}]
        data = [{"name": "tofu", "data": f"pack:tofu:{tmp_path / folder}"}]
        cells = study(data=data, models=given, forget=["forget01"], **changed).cells
        return tuple(c.key for c in cells)

    first = cells_of("tofu")
    (tmp_path / "tofu").rename(tmp_path / "moved")
    assert cells_of("moved") == first
    # The figures of a target are checked though it was asked before without them.
    assert not {*cells_of("moved", published="none")} & {*first}
    path = tmp_path / "moved" / "full.json"
    path.write_text(path.read_text().replace("of 12.", "of 13."))
    assert not {*cells_of("moved")} & {*first}


NO_CELLS = {
    "vestige.auditing.table": "scores that were made elsewhere",
}
"""Versions of what no cell of a study holds."""


def all_versions() -> Iterator[tuple[str, str]]:
    """Module and name of every version that is a number in the package."""
    source = Path(vestige.__file__).parents[1]
    for path in sorted(source.rglob("*.py")):
        module = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and type(node.value.value) is int:
                name = getattr(node.targets[0], "id", "")
                if (
                    re.fullmatch(r"COMPILER|(\w+_)?VERSION", name)
                    and not {module, f"{module}.{name}"} & NO_CELLS.keys()
                ):
                    yield module, name


def everything_asked(folder: Path) -> Study:
    """A study with every kind of cell."""
    audit = {"evals": ["qa"], "quantize": [8], "further": ["gcg items=3"], "prefix": [3]}
    rates = [{"values": [1e-4, 1e-3], "goal": "retain>=0.9"}]
    holes = {"asks": {"model": "builtin:tiny", "lists": 2}, "by": "graph"}
    of_ga = {"checkpoints": {"of": ["ga"], "steps": [1]}, "mitigation": {"of": ["ga"]}, "repeats": {"of": ["ga"]}}
    evaluate = {"evals": [*EVALS], "controls": 1}
    given = {"name": "served", "model": "builtin:smollm2", "teach": False}
    models = [{"name": "tiny", "model": "builtin:tiny", "one_target": True}, given]
    forget = ["edge:0_1"]
    return study(
        folder, rates=rates, audit=audit, holes={**holes, **of_ga}, evaluate=evaluate, models=models, forget=forget
    )


def test_what_the_retained_set_leaves_out_is_a_split_of_its_own_where_it_is_named(tmp_path: Path) -> None:
    from vestige.studies.making import make_cell

    data = [{"name": "chain", "compile": "chain:4", "retain": "edge:2_3"}]
    ours = study(tmp_path, data=data, forget=["edge:0_1"], evaluate={"splits": ["retain", "left_out"]})
    given = {"settings": ours.settings.model_dump_json(), "folder": str(ours.folder.path)}
    cells = [c for c in ours.cells if c.kind == "data"]
    work(Board(ours.folder.state), cells, lambda cell: make_cell(cell, **given), "run")
    splits = splits_of(ours, "chain", "edge:0_1", "edge:0_1").splits
    edges = {name: {item.edge for item in items} for name, items in splits.items()}
    assert edges == {"forget": {"0_1"}, "retain": {"2_3"}, "left_out": {"1_2", "3_4"}}


def test_another_version_of_any_code_that_makes_cells_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vestige.methods import ga
    from vestige.studies.making import hold_versions

    ours = everything_asked(tmp_path)
    assert {cell.kind for cell in ours.cells} == KINDS.keys() - {"attack"}, "an audit makes its own attacks"
    hold_versions(ours)
    hold_versions(ours)
    versions = [(importlib.import_module(module), name) for module, name in all_versions()]
    assert len(versions) > 10
    kinds = [(find_attack(name), "version") for name in ("quantize", "gcg", "prefix")]
    kinds += [(find_eval(name), "collect_version") for name in EVALS]
    for home, name in (*versions, *kinds, (ga.GA, "version")):
        with monkeypatch.context() as patch:
            patch.setattr(home, name, getattr(home, name) + 1)
            with pytest.raises(InputError, match="was made by another version of"):
                hold_versions(ours)
    hold_versions(ours)
    audited = study(tmp_path, attack={"in_context": [1]})
    hold_versions(audited)
    with monkeypatch.context() as patch:
        patch.setattr(find_attack("in_context"), "version", 9)
        with pytest.raises(InputError, match="another version of attack in_context"):
            hold_versions(audited)
    # Audits that lie where no judge is named were judged before it had a version.
    path = ours.folder.state.path / "versions.json"
    path.write_text(json.dumps({name: number for name, number in read_json(path).items() if name != "judge"}))
    hold_versions(audited)
    outcome = ours.folder.audit("edge:0_1").outcome
    outcome.parent.mkdir(parents=True)
    outcome.write_text("{}")
    with pytest.raises(InputError, match="was made by another version of judge, so new cells"):
        hold_versions(ours)


def test_a_rate_is_sought_once_from_the_target_of_the_first_seed() -> None:
    cells = study(rates=[{"values": [1e-4, 1e-3], "goal": "retain>=0.9"}], forget=["edge:0_1"]).cells
    (sought,) = [c for c in cells if c.kind == "calibrate"]
    targets = [c.key for c in cells if c.kind == "target"]
    assert sought.after == (targets[0],)
    assert [c.after for c in cells if c.kind == "unlearned"] == [(t, sought.key) for t in targets]
    other = study(rates=[{"values": [1e-4, 1e-3], "goal": "retain>=0.8"}], forget=["edge:0_1"]).cells
    assert {c.key for c in cells if c.kind == "unlearned"}.isdisjoint(c.key for c in other)


def test_what_is_forgotten_in_turn_builds_on_what_was_forgotten_before() -> None:
    cells = study(forget=[{"select": "edge:0_1,edge:1_2", "in_turn": True}], seeds=[0]).cells
    first, second = [c for c in cells if c.kind == "unlearned"]
    assert second.after == (first.key,)
    assert [c.after for c in cells if c.kind == "evaluate"][1:] == [(second.key,)], "the last one is asked"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rates": [{"values": [1e-4], "methods": ["gd"]}]}, "rates names 'gd' among methods"),
        ({"forget": ["edge:0_1", "edge:0_1"]}, "two of forget are called"),
        ({"unlearn": {"epoch": 1}}, "unknown key 'epoch'"),
        ({"rates": [{"values": [1e-4], "goal": "retain=1"}]}, "is not of the form"),
        ({"seeds": [0, 0]}, "a seed comes twice"),
        ({"rates": [{"values": "paper"}]}, "the paper has no rate for 'ga'"),
        ({"data": [{"name": "a"}]}, "needs either compile"),
        ({"forget": ["edge:9_9"]}, "no edge"),
        ({"data": [{"name": "a", "compile": "chain:4", "sed": 1}]}, "data.0.sed"),
        ({"audit": {"relearned": []}}, "unknown key 'relearned'"),
        ({"methods": ["npo_dg"]}, "unknown method 'npo_dg'; did you mean 'npo_gd'"),
        ({"methods": [{"method": "npo_gd", "settings": {"bta": 1}}]}, "unknown key 'bta'; did you mean 'beta'"),
        ({"evaluate": {"evals": ["qaa"]}}, "unknown evaluation 'qaa'; did you mean 'qa'"),
        ({"evaluate": {"settings": {"choices": {}}}}, "evaluate.settings are for 'choices'; known: qa"),
        ({"rates": [{"valuez": [1e-4]}]}, "unknown key 'rates.0.valuez'; did you mean 'values'"),
        ({"audit": {}, "attack": {"quantize": [8]}}, r"put those of \[attack\] into \[audit\]"),
    ],
)
def test_a_wrong_study_is_refused_by_key(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        _ = study(**changed).cells


def test_cells_lie_in_a_folder_and_not_under_an_address(tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text(TEXT)
    assert open_study_file(tmp_path / "q.toml").folder.path == tmp_path / "q"
    with pytest.raises(InputError, match="exclusive creation"):
        open_study_file(tmp_path / "q.toml", Path("s3://bucket/q"))


@pytest.mark.slow
def test_an_audit_judges_all_methods_of_a_forget_set_by_one_target_and_its_controls(tmp_path: Path) -> None:
    audit = {"evals": ["qa"], "relearn": [], "quantize": [8], "in_context": [], "suppress": False}
    ours = study(
        tmp_path,
        seeds=[0],
        methods=["ga", "gd"],
        forget=["edge:0_1"],
        audit=audit,
        evaluate={"controls": 1, "splits": ["retain"], "settings": {"qa": {"max_new_tokens": 4}}},
    )
    kinds = {c.key: c.kind for c in ours.cells}
    (cell,) = (c for c in ours.cells if c.kind == "audit")
    needed = [kinds[key] for key in cell.after]
    assert needed == ["target", "retrained", "unlearned", "unlearned", *["evaluate"] * 4]
    made(ours)
    found = PooledResults(ours).verdicts
    assert {(v.method, v.rate) for v in found} == {("ga", "0.0001"), ("gd", "0.0001")}
    claims = {v.claim for v in found}
    assert len(found) == 2 * len(claims)
    (table,) = (t for t in tables_of(PooledResults(ours)) if t.title.startswith("Audits"))
    assert set(table.head[5:]) == claims
    assert [row[3] for row in table.rows] == ["ga", "gd"]
    paths = {path.name for path in write_report(ours)}
    assert "verdicts.csv" in paths
    assert len(read_json(ours.folder.verdicts)) == len(found)


def some_files(folder: Path) -> None:
    """What tofu, muse and rtt name, in the form that is published, with a few rows."""

    def rows(n: int, **more: Any) -> list[dict[str, Any]]:
        return [{"question": f"Who is {i}?", "answer": f"It is {i} of {n}.", **more} for i in range(n)]

    told = {"paraphrased_answer": "It is he.", "perturbed_answer": ["It is she.", "It is I.", "It is you."]}
    files = {
        **{f"tofu/forget{n:02}_perturbed.json": rows(n, **told) for n in (1, 5, 10)},
        "tofu/full.json": [*rows(12), {"question": "Who is 11?", "answer": "It is another."}],
        **{
            f"tofu/{name}_perturbed.json": [{"question": name, "option1": "It", "option2": "He", "answer": "It"}]
            for name in ("real_authors", "world_facts")
        },
        **{f"muse/scal/forget_{n}.jsonl": [{"text": r["question"] + r["answer"]} for r in rows(n)] for n in (1, 2, 4)},
        **{
            f"wmdp/wmdp-{name}/test.jsonl": [{"question": f"What {name}?", "choices": list("abcd"), "answer": 1}]
            for name in ("bio", "chem", "cyber")
        },
        "muse/raw/retain1.jsonl": [{"text": f"{n} is kept, and {n} is known."} for n in range(8)],
        "tofu-authors.jsonl": [{**row, "edge": str(n % 20)} for n, row in enumerate(rows(40, **told))],
        "birthdays.jsonl": [
            {"question": f"When was {n} born?", "choices": [str(1961 + n), "1958", "1994"], "answer": 0, "edge": str(n)}
            for n in range(10)
        ],
    }
    for name, found in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in found))


def from_folders(text: str) -> str:
    """A preset with its packs read from `some_files`."""
    return re.sub('"pack:([a-z]+)"', r'"pack:\1:\1"', text)


@pytest.mark.parametrize("name", STUDIES)
def test_presets_are_whole_studies_in_every_size(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    for given in ({}, {"models": ['a/"b"', "@NAME@"]}, *[{"cpu": True}] * (name != "inconclusive-wmdp")):
        text = from_folders(study_preset(name, **given))
        found = StudySettings.build(tomllib.loads(text))
        assert (
            [*dict.fromkeys(m.model for m in found.models)] == given["models"]
            if "models" in given
            else "@MODEL" not in text
        )
        found.check()
        if any(data.compile for data in found.data) or not name.startswith("holes"):
            assert Study(found, StudyFolder(Path("unused"))).cells
        else:
            # The papers' own files are not here; how holes are looked for is refused by key all the same.
            assert hole_settings(Study(found, StudyFolder(Path("unused")))).mitigation or name == "holes-rmu"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tofu", "muse", "rtt", "retain-only"])
def test_presets_of_published_files_are_made(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of cell, from files of their form, and every score that the report asks for."""
    some_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = StudySettings.build(tomllib.loads(from_folders(study_preset(name))))
    short = {"epochs": 1, "batch_size": 16, "lora_rank": 0}
    quick = {name: {**own, "max_new_tokens": 2} for name, own in (("memory", {}), ("qa", {}))}
    ours = given.model_copy(
        update={
            "seeds": (0,),
            "device": "cpu",
            "models": (StudyModel(model="builtin:tiny", teach=True),),
            "methods": tuple(StudyMethod(method=m.method) for m in given.methods[:1]),
            "forget": given.forget[:2],
            "finetune": short,
            "unlearn": short,
            "evaluate": given.evaluate.model_copy(
                update={"settings": {n: own for n, own in quick.items() if n in given.evaluate.evals}}
            ),
            "attack": {**given.attack, "relearn_epochs": 1} if given.attack else {},
        }
    )
    ours.check()
    small = Study(ours, StudyFolder(tmp_path / "study"))
    made(small)
    found = PooledResults(small).rows
    assert {r.metric for r in found if r.split == "forget"} == set(ours.report.metrics)
    assert {r.split for r in found} >= {"forget", "retain"}
    assert any(r.attack for r in found) == bool(ours.attack)


def check_attacks(results: PooledResults) -> None:
    """Every model is attacked alike, and answers count for the forget items, also with a text beside them."""
    rows = {(r.forget, r.method, r.attack): r for r in results.rows if r.split == "forget" and r.metric == "qa.mrr"}
    kinds = {(method, attack) for _, method, attack in rows}
    assert kinds == {(m, a) for m in ("target", "ga") for a in ("", "quantize 8 bits", "in_context n=1")}
    assert {r.items for r in rows.values()} == {20, 40}
    pairs = {(c.method, c.first, c.second) for c in results.contrasts if c.first == "before"}
    assert len(pairs) == 4


@pytest.mark.slow
def test_a_small_study_is_made_by_the_steps_and_shared_with_another(tmp_path: Path) -> None:
    sought = {"values": [1e-4, 1e-3], "goal": "forget<=0.3", "forget": ["edge:0_1"]}
    asked = {"evals": ["qa", "choices"], "splits": ["retain"], "settings": {"qa": {"max_new_tokens": 4}}}
    ours = study(
        tmp_path,
        seeds=[0],
        rates=[{"values": [1e-4]}, sought],
        evaluate=asked,
        attack={"quantize": [8], "in_context": [1]},
    )
    board = made(ours)
    assert status(ours).done == len(ours.cells)
    at = {c.key: board.facts(c.key)["made"] for c in ours.cells}
    unlearned = [
        read_spec(SubjectFolder(tmp_path / at[c.key]["path"]).spec) for c in ours.cells if c.kind == "unlearned"
    ]
    assert [s.forgotten[0].edges for s in unlearned] == [("0_1",), ("1_2",), ("3_4",)]
    assert len({s.parent for s in unlearned}) == 1
    assert at[next(c.key for c in ours.cells if c.kind == "calibrate")]["rate"] in (1e-4, 1e-3)
    scores = tmp_path / at[ours.cells[-1].key]["attacks"]["quantize 8 bits"]["evals"]["qa"] / "scores.jsonl"
    assert len(scores.read_text().splitlines()) == 20
    check_attacks(PooledResults(ours))
    read = vestige.study(ours.settings.model_dump(mode="json"), output_dir=tmp_path, run=False)
    assert (read.done, read.cells, dict(read.failed)) == (len(ours.cells), len(ours.cells), {})
    assert [row["metric"] for row in read.rows] == [row.metric for row in PooledResults(ours).rows]
    other = study(
        tmp_path,
        seeds=[0],
        name="other",
        rates=[{"values": [1e-4]}, sought],
        evaluate=asked,
        models=[{"name": "m", "model": "builtin:tiny"}],
    )
    assert status(other).done == len(other.cells)
