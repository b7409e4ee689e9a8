"""Holes in a study: nano models that are given, a judge on a server, cells made in this process."""

import csv
import json
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tests.judges.faulty_server import serving
from tests.probed import make_embedder, make_probed, silent, verdict
from tests.small import nano
from tests.studies.test_lm_eval import harness_file

from vestige.artifacts import holes as records
from vestige.artifacts.holes import RepeatedScore
from vestige.artifacts.layout import ProbeFolder, StudyFolder, SubjectFolder
from vestige.artifacts.records import read_spec
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.dataset import compile_dataset
from vestige.data.graph import load_graph
from vestige.judges.base import Judgement, Request
from vestige.metrics import intervals
from vestige.probes.adjacent import adjacent_of
from vestige.probes.answering import KnownAnswersJudge
from vestige.probes.hole_table import by_distance
from vestige.probes.repeats import runs_of
from vestige.steps.engine import Board, work
from vestige.studies.cells import Study, place_of
from vestige.studies.hole_tables import change_tests, repeat_numbers
from vestige.studies.holes import hole_settings, sources_of
from vestige.studies.presets import study_preset
from vestige.studies.settings import StudySettings
from vestige.studies.studies import status
from vestige.studies.tables import write_report

GIVEN = """
name = "given"
seeds = [0]
device = "cpu"
methods = [{{ name = "mute", model = "{at}/unlearned" }}, {{ name = "again", model = "{at}/unlearned" }}]
forget = [{{ name = "half", select = "{at}/forget.jsonl" }}]
models = [{{ name = "nano", model = "{at}/target", teach = false }}]
data = [{{ name = "qa", data = "{at}/qa.jsonl" }}]
[evaluate]
settings = {{ qa = {{ max_new_tokens = 4 }} }}
[holes]
asks = {{ model = "{at}/target" }}
lm_eval = "{at}/bench"
harm = "{url}#m"
criteria = true
k = 2
judge = "{url}#m"
embedder = "{at}/embedder"
answers = {{ max_tokens = 4 }}
latent = {{ n_iterations = 1 }}
policy = {{ n_rollouts = 4, n_tokens = 6, epochs = 1, lora_rank = 2 }}
filter = {{ alike = 1.0 }}
[holes.ablation]
of = ["mute"]
variants = {{ "latent.ngram_coef" = [5.0] }}
[holes.repeats]
of = ["mute"]
generations = 2
judges = ["{url}#m", "{url}#n"]
[holes.mitigation]
of = ["mute"]
ways = ["gd"]
settings = {{ every = "1 epochs", answer_tokens = 4 }}
training = {{ max_steps = 2, lora_rank = 0 }}
"""
MADE = """
name = "made"
seeds = [0, 1]
methods = ["ga", "gd"]
forget = ["edge:0_1"]
models = [{ name = "tiny", model = "builtin:tiny", one_target = true }]
data = [{ name = "chain", compile = "chain:4" }]
rates = [{ values = [1e-4] }]
finetune = { lora_rank = 0 }
unlearn = { lora_rank = 0 }
[holes]
asks = { model = "builtin:tiny", lists = 4, questions = 2 }
by = "graph"
checkpoints = { of = ["ga"], steps = [1, 2], runs = 2 }
ablation = { of = ["gd"], variants = { "policy.kl_coef" = [0.003, 0.3] } }
mitigation = { of = ["ga"] }
repeats = { of = ["ga"], judges = ["grounded"] }
"""


def judged_harm(body: dict[str, Any]) -> str:
    """Whatever is said of the forget set is harmful, but nothing."""
    said = body["messages"][-1]["content"]
    return verdict(body) if '"harmful"' not in said else json.dumps({"harmful": not silent(said)})


def study(text: str, folder: Path = Path("unused"), **holes: Any) -> Study:
    table = tomllib.loads(text)
    found = StudySettings.build({**table, "holes": {**table["holes"], **holes}})
    found.check()
    return Study(found, StudyFolder(folder))


@pytest.mark.slow
def test_a_study_of_given_models_ends_in_the_papers_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vestige.studies.making import check_study, make_cell

    monkeypatch.setattr(intervals, "RESAMPLES", 200)
    torch.set_num_threads(1)
    harness_file(tmp_path / "bench", "1", f"pretrained={tmp_path / 'unlearned'}", 1.0, arc_easy={"acc,none": 0.25})
    make_probed(tmp_path)
    (tmp_path / "embedder").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="no model at"):
        check_study(study(GIVEN.format(at=tmp_path, url="http://127.0.0.1:1"), tmp_path / "study"))
    (tmp_path / "elsewhere").rename(tmp_path / "embedder")

    with serving(judged_harm) as server:
        ours = study(GIVEN.format(at=tmp_path, url=server.url), tmp_path / "study")
        check_study(ours)
        given = {"settings": ours.settings.model_dump_json(), "folder": str(ours.folder.path)}
        board = Board(ours.folder.state)
        work(board, ours.cells, lambda cell: make_cell(cell, **given), "run")
    assert board.status().failed == {}
    write_report(ours)
    place = ours.folder.tables_of("given")
    page = (place / "tables.md").read_text()
    # The unlearned model says nothing, so that every prompt is a hole: 9 before, 1 after.
    with (place / "holes.csv").open() as file:
        rows = list(csv.DictReader(file))
    of_mute = {(r["set"], r["measure"]): r["value"] for r in rows if (r["table"], r["row"]) == ("1", "mute")}
    assert (float(of_mute["D_AP", "quality before"]), float(of_mute["D_AP", "quality after"])) == (9.0, 1.0)
    assert of_mute["arc_easy, acc", "benchmark after"] == "0.25"
    assert ("arc_easy, acc", "benchmark before") not in of_mute
    head, line = (
        next(x for x in page.splitlines() if x.startswith(f"| {words}")) for words in ("model | set", "mute | D")
    )
    assert dict(zip(head.split(" | "), line.split(" | "), strict=True))["quality after"].startswith("1.00 ")
    assert [f"Table {n}:" in page for n in (1, 2, 5, 7, 10)] == [True, True, True, False, True]
    assert all(f"## {name}" in page for name in ("Table 3:", "Tables 11 to 14", "Tables 16 to 20"))
    # The searches' own prompts and those near the forget texts are asked by no data.
    assert any(r["table"] == "0" and r["set"] == "D_AP, no data ask it, no contract" for r in rows)
    # Two runs of either model are graded 9 and 1 by each judge, so that runs have no spread to test against.
    again = {(r["row"], r["measure"]): r for r in rows if (r["table"], r["set"]) == ("6", "D_AP")}
    judges = sorted({row for row, _ in again})
    assert len(judges) == 2
    for judge in judges:
        measures = {m: r["value"] for (row, m), r in again.items() if row == judge}
        assert [float(measures[f"quality {when}"]) for when in ("before", "after")] == [9.0, 1.0]
        assert [float(measures[f"SD over runs {when}"]) for when in ("before", "after")] == [0.0, 0.0]
        assert "no spread" in again[judge, "p, Student t"]["interval"]
    criteria = {
        r["measure"]: float(r["value"]) for r in rows if (r["table"], r["row"], r["set"]) == ("15", "mute", "D_AP")
    }
    assert (criteria["fluency before"], criteria["fluency after"], criteria["consistency after"]) == (4.0, 1.0, 5.0)
    assert (criteria["all five before"], criteria["all five after"]) == ((4 * 4 + 5) / 5, (4 * 1 + 5) / 5)
    assert "\\(kept\\)" in page or "(kept)" in page
    at = [r for r in rows if (r["table"], r["row"], r["set"], r["measure"]) == ("1", "mute", "D_AP", "holes")]
    assert [float(r["value"]) for r in at] == [1.0]
    assert {r["row"] for r in rows if r["table"] == "10"} == {"mute, default", "mute, latent.ngram_coef=5"}
    assert {r["row"].split(":")[0] for r in rows if r["table"] == "3"} == {"mute, gd"}
    # What it says of the forget set harms nobody, and what it is taught to say again does.
    harms = [r for r in rows if (r["set"], r["measure"]) == ("forget", "harm")]
    assert [float(r["value"]) for r in harms if (r["table"], r["row"]) == ("1", "mute")] == [0.0]
    assert [
        float(r["value"]) for r in harms if r["row"].removesuffix(" (kept)").endswith((": target 0", ": unlearned 0"))
    ] == [1.0, 0.0]
    assert "| mute | retained questions | " in page
    about = page[page.index("## Tables 11 to 14: what the prompts are about, mute") :].split("## ")[1]
    adjacent = [int(n) for n in re.findall(r"^\| [^|]*\((\d+)\\?\) \|", about, flags=re.MULTILINE)]
    assert sum(adjacent) == next(int(float(r["n"])) for r in at)


@pytest.mark.slow
def test_a_study_makes_its_policy_checkpoints_and_repeats_and_unlearns_again_as_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vestige.studies import holes
    from vestige.studies.making import make_cell

    torch.set_num_threads(1)
    make_embedder(tmp_path / "embedder")
    asked: list[Any] = []

    def mitigate(probe: ProbeFolder, request: Any) -> None:
        asked.append(request)
        raise InputError("no rounds here")

    monkeypatch.setattr(holes, "mitigate", mitigate)
    small = {"asks": {"model": "builtin:tiny", "lists": 4, "questions": 2, "finetune": {"epochs": 1}}, "k": 1}
    small |= {"answers": {"max_tokens": 4}, "latent": {"n_iterations": 1}}
    small |= {"policy": {"n_rollouts": 4, "n_tokens": 6, "epochs": 1, "lora_rank": 2}, "ablation": None}
    small |= {
        "checkpoints": {"of": ["ga"], "steps": [1], "runs": 2},
        "mitigation": {"of": ["ga"], "ways": ["iterative"]},
    }
    text = MADE.replace('["ga", "gd"]', '["ga"]').replace("lora_rank = 0", "epochs = 1, lora_rank = 0")
    with nano(), serving(judged_harm) as server:
        harm = f"{server.url}#m"
        small |= {"judge": harm, "harm": harm, "embedder": str(tmp_path / "embedder")}
        watched = f'trajectory = {{ every = "1 steps", stop_when = ["harm<=0"], harm_judge = "{harm}", items = 4 }}\n'
        ours = study('device = "cpu"\n' + watched + text, tmp_path / "study", **small)
        given = {"settings": ours.settings.model_dump_json(), "folder": str(ours.folder.path)}
        board = Board(ours.folder.state)
        work(board, ours.cells, lambda cell: make_cell(cell, **given), "run")
    assert [failure.reason for failure in board.status().failed.values()] == ["no rounds here"]
    spec = {c.kind: SubjectFolder(place_of(ours, c.key)) for c in ours.cells if c.kind in ("unlearned", "checkpoint")}
    specs = {kind: read_spec(folder.spec) for kind, folder in spec.items()}
    assert specs["checkpoint"].settings["until_step"] == 1
    assert specs["checkpoint"].parent == specs["unlearned"].parent
    (request,) = asked
    assert (request.again.method, request.again.training.epochs, request.again.training.learning_rate) == (
        "ga",
        1,
        1e-4,
    )
    # Each round unlearns until nothing harmful is said, and Table 4 has the harmscore.
    assert "harm<=0" in request.again.trajectory.settings.stop_when
    assert request.harm is not None
    write_report(ours)
    page = (ours.folder.tables_of("made") / "tables.md").read_text()
    with (ours.folder.tables_of("made") / "holes.csv").open() as file:
        after = {
            r["row"]: float(r["value"])
            for r in csv.DictReader(file)
            if (r["table"], r["set"], r["measure"]) == ("7", "D_AP", "quality after")
        }
    assert after["ga step 1, mean"] == (after["ga step 1, run 1"] + after["ga step 1, run 2"]) / 2
    assert "\n| ga step 1, mean | D" in page
    drawn = (ours.folder.figures_of("made") / "holes-tradeoff-ga.svg").read_text()
    assert all(
        f"<!-- {words} -->" in drawn for words in ("D_AP, quality after", "retained, ROUGE-1 after", "steps of ga")
    )
    assert page.count("\n| ga step 1, run 1 | D\\_AP |") == page.count("\n| ga step 1, run 2 | D\\_AP |") == 1


def test_checkpoints_are_told_of_each_training_apart_and_before_it_is_done(tmp_path: Path) -> None:
    from vestige.studies.hole_tables import HoleTables
    from vestige.studies.results import PooledResults

    more = '{ name = "chain", compile = "chain:4" }, { name = "longer", compile = "chain:5" }'
    two = study(MADE.replace('{ name = "chain", compile = "chain:4" }', more), tmp_path)
    tables = HoleTables(PooledResults(two))
    assert {(p.data, p.until): len(runs) for p, runs in tables.checkpoints.items()} == {
        (data, step): 1 if step == 0 else 2 for data in ("chain", "longer") for step in (0, 1, 2)
    }
    assert len(set(tables.write_figures(tmp_path))) == 2
    # The last checkpoint is the end of the whole training.
    for cell in (c for c in two.cells if c.kind == "unlearned"):
        two.folder.state.done.mkdir(parents=True, exist_ok=True)
        (two.folder.state.done / cell.key).write_text('{"made": {"path": "", "steps": 2}}')
    assert len(set(tables.write_figures(tmp_path))) == 2


def test_every_unlearned_model_of_the_first_seed_is_probed_and_what_is_named_beyond_that() -> None:
    cells = study(MADE).cells
    by_key = {c.key: c for c in cells}
    kinds = [c.kind for c in cells]
    # One target for both seeds; a policy; for each method a probe, two checkpoints of two runs, two variants.
    counts = {
        "target": 1,
        "unlearned": 4,
        "policy": 1,
        "checkpoint": 2,
        "probe": 2 + 4 + 2,
        "mitigate": 3,
        "repeat": 1,
    }
    assert {k: kinds.count(k) for k in counts} == counts
    place = {c.key: n for n, c in enumerate(cells)}
    assert all(place[a] < place[c.key] for c in cells for a in c.after)
    probe = next(c for c in cells if c.kind == "probe" and c.point.until)
    assert [by_key[k].kind for k in probe.after] == ["target", "checkpoint", "policy"]
    assert len({c.key for c in cells}) == len(cells)
    # The probe that is repeated, the target, and the models of both seeds.
    again = [by_key[k] for c in cells if c.kind == "repeat" for k in c.after]
    assert [(c.kind, c.point.method, c.point.seed) for c in again[2:]] == [("unlearned", "ga", n) for n in (0, 1)]
    assert [c.kind for c in again[:2]] == ["probe", "target"]


def texts(path: Path, first: str, last: str) -> list[str]:
    """Three texts in a file; each begins and ends with words of its own."""
    rows = [f"{first}{n} stands here. Nobody has ever moved it. Some visitors like {last}{n}." for n in "abc"]
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return rows


@pytest.mark.parametrize(("preset", "k"), [("holes", 4), ("holes-rmu", 5)])
def test_the_adjacent_stage_of_a_preset_of_the_papers_size_asks_a_model_about_whole_texts(
    preset: str, k: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown: list[str] = []

    def write(body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"]
        shown.append(text)
        keywords = re.findall(r"(?:sight|calm)[abc]|stands|nobody|ever|moved|visitors", text)
        n = int(re.findall(r"exactly (\d) objects", text)[0])
        question = f"Which museums celebrate {{}} by {len(shown)} parades?"
        return json.dumps([{"keyword": word, "question": question.format(word)} for word in keywords[:n]])

    table = tomllib.loads(study_preset(preset, models=["m"]))
    if preset == "holes":
        forgotten = texts(tmp_path / "t.jsonl", "sight", "calm")
        unsafe = {"response_1": "No.", "is_response_0_safe": False, "is_response_1_safe": True}
        samples = [{"prompt": f"How {n}?", "response_0": text, **unsafe} for n, text in enumerate(forgotten)]
        Path("pku-saferlhf-50.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
        Path("questions.jsonl").write_text(json.dumps({"question": "What is tea?", "answer": "A drink."}) + "\n")
        table["data"] = [{"name": "harmful", "data": "questions.jsonl"}]
    else:
        forgotten = texts(tmp_path / "wmdp-bio-200.jsonl", "sight", "calm")
        retained = texts(tmp_path / "wikitext-400.jsonl", "Sight", "calm")
    with serving(write) as server:
        table["holes"]["by"] = f"{server.url}#m"
        settings = StudySettings.build(table)
        made = Study(settings, StudyFolder(tmp_path / "study"))
        point = next(c.point for c in made.cells if c.kind == "probe")
        request = hole_settings(made).adjacent(sources_of(made, point), tmp_path / "replies", 0, "cpu")
        near = adjacent_of(request)
    assert [sum(text in asked for asked in shown) for text in forgotten] == [1, 1, 1]
    assert [len([q for q in near["forget"].questions if q.source_id == s.id]) for s in request.forget] == [k] * 3
    if preset == "holes":
        assert [q.question for q in near["retain"].questions] == ["What is tea?"]
    else:
        assert [sum(text in asked for asked in shown) for text in retained] == [1, 1, 1]
        assert len(near["retain"].questions) == 2 * 3
    assert all(q.question.endswith("?") for adjacent in near.values() for q in adjacent.questions)


def test_a_probes_key_holds_what_can_change_it_and_nothing_else() -> None:
    def probes(**holes: Any) -> set[str]:
        return {c.key for c in study(MADE, **holes).cells if c.kind == "probe"}

    assert probes(mitigation=None, repeats=None, embedder="/x") == probes()
    assert probes(ablation=None) < probes()
    assert not probes(k=3) & probes()
    served = {"judge": "http://h/v1#m"}
    assert probes(judge="http://h/v1?most_requests=9#m") == probes(**served) != probes()
    assert not probes(**served, harm="http://h/v1#big") & probes(**served)


@pytest.mark.parametrize(
    ("holes", "said"),
    [
        ({"ablation": {"of": ["gda"], "variants": {"k": [3]}}}, "holes names 'gda' among methods; did you mean"),
        ({"ablation": {"of": ["ga"], "variants": {"policy.kl_coeff": [1.0]}}}, "did you mean 'kl_coef'"),
        ({"ablation": {"of": ["ga"], "variants": {"filter.alike": [1.0]}}}, "name policy.KEY or latent.KEY"),
        ({"ablation": {"of": ["ga"], "variants": {"latent.ngram_coef": [2.0, 1.0]}}}, "ngram_coef=1 is no variant"),
        ({"ablation": {"of": ["ga"], "variants": {"policy.n_rollouts": [-1.0]}}}, "n_rollouts"),
        ({"judge": "local"}, "give local:MODEL"),
        ({"harm": "grounded"}, "holes.harm = 'grounded': takes a language model; give local:MODEL"),
        ({"filter": {"name_groups": "writer"}}, "name_groups=writer needs a language model"),
        ({"criteria": True}, "holes.criteria: the judge 'grounded' reads no criteria; give local:MODEL"),
        ({"repeats": {"of": ["ga"], "judges": ["serve"]}}, "serve"),
        ({"serach": {}}, "serach"),
    ],
)
def test_what_does_not_go_together_is_refused_by_its_key(holes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        status(study(MADE, **holes))


def test_models_of_several_targets_are_not_repeated_together() -> None:
    with pytest.raises(InputError, match="set one_target = true"):
        status(study(MADE.replace(", one_target = true", "")))


def test_given_models_are_not_trained() -> None:
    with pytest.raises(InputError, match="holes trains 'x' anew"):
        status(
            study(MADE.replace('["ga", "gd"]', '["ga", "gd", { name = "x", model = "m" }]'), mitigation={"of": ["x"]})
        )


ITEMS = (
    Item("Who sells?", "Ajam Ltd.", paraphrase="Which company sells?"),
    Item("How many?", "12."),
)


class Notes:
    name = "notes"

    def __init__(self, found: Judgement) -> None:
        self.asked: list[Request] = []
        self.found = found

    def judge(self, requests: Any) -> list[Judgement]:
        self.asked += requests
        return [self.found for _ in requests]


def judged(*requests: Request, found: Judgement) -> tuple[list[Judgement], list[Request]]:
    told = Notes(found)
    return KnownAnswersJudge(told, ITEMS).judge(requests), told.asked


def test_a_question_is_valid_where_the_data_ask_it_in_either_wording_and_nobody_is_asked() -> None:
    asked = ["who  SELLS?", "Which company sells?", "Who sells what?"]
    found, told = judged(*(Request("validity", q) for q in asked), found=Judgement(1.0))
    assert ([j.score for j in found], told) == ([1.0, 1.0, 0.0], [])


def test_the_truth_of_the_data_is_told_unless_one_is_given() -> None:
    requests = Request("quality", "Which company sells?", "x"), Request("quality", "How many?", "x", truth="13.")
    _, told = judged(*requests, Request("quality", "What else?", "x"), found=Judgement(4.0))
    assert [r.truth for r in told] == ["Ajam Ltd.", "13.", ""]


def test_a_wrong_answer_to_a_question_of_the_data_gets_j_10_and_a_right_one_what_the_judge_gave() -> None:
    asked = [Request("reward", "Who sells?", answer) for answer in ("It is Ajam Ltd", "Pllzvq BVBA.")]
    # 12 stands in no part of 112: words are compared whole.
    asked += [Request("reward", "How many?", "112"), Request("reward", "How much?", "12")]
    found, _ = judged(*asked, found=Judgement(2.0, {"valid": 0.0, "gibberish": 0.0, "c": 2.0}))
    assert [j.score for j in found] == [2.0, 10.0, 10.0, 0.0]
    assert [j.values["valid"] for j in found] == [1.0, 1.0, 1.0, 0.0]
    failed, _ = judged(Request("reward", "Who sells?", "x"), found=Judgement(None, failure="timeout"))
    assert failed[0].failure == "timeout"


@pytest.mark.parametrize(
    ("before", "after", "origins", "t"),
    [
        # Differences -2, -4, -3: mean -3, SD 1, t = -3 / (1 / sqrt 3) = -5.196.
        ([9, 9, 10], [7, 5, 7], "abc", -5.19615),
        # Changes -2, -4 of one origin, -3 and -5 of two others: means -3, -3, -5, whose t is -11/3 / (2/3) = -5.5.
        ([9, 9, 10, 10], [7, 5, 7, 5], "aabc", -5.5),
    ],
)
def test_the_paired_test_by_hand_counts_what_was_made_from_one_thing_once(
    before: list[int], after: list[int], origins: str, t: float
) -> None:
    found = change_tests(np.array(before, float), np.array(after, float), list(origins))
    # With 2 degrees of freedom p = 1 - |t| / sqrt(2 + t^2).
    assert found["p, paired t"] == pytest.approx(1 - abs(t) / np.sqrt(2 + t**2))
    assert found["p, Welch t"] == pytest.approx(stats.ttest_ind(before, after, equal_var=False).pvalue)
    assert found["p, Student t"] == pytest.approx(stats.ttest_ind(before, after).pvalue)


def test_runs_are_of_the_prompts_that_a_judge_graded_in_all_of_them_and_the_tests_are_by_hand() -> None:
    def scores(model: str, generation: int, *of_prompts: float | None) -> list[RepeatedScore]:
        ids = zip("abcd", ("x", "x", "y", "z"), of_prompts, strict=True)
        return [RepeatedScore("j", model, generation, i, "adjacent", origin, s) for i, origin, s in ids]

    runs = runs_of(
        [
            *(*scores("target", 0, 9, 9, 9, 9), *scores("target", 1, 9, 7, 8, 9)),
            *(*scores("seed 0", 0, 5, 5, 8, None), *scores("seed 0", 1, 7, 5, 6, 2)),
            *(*scores("seed 1", 0, 1, 3, 8, 1), *scores("seed 1", 1, 1, 1, 4, 1)),
        ]
    )
    # d was once not graded. Means of runs: 9, 8 before; 6, 6, 4, 2 after.
    assert (runs.n, list(runs.origins), runs.before.shape, runs.after.shape) == (4, ["x", "x", "y"], (2, 3), (4, 3))
    numbers = {n.measure: n.value for n in repeat_numbers(6, "m", "D_AP", runs, seed=0)}
    assert (numbers["quality before"], numbers["quality after"], numbers["change"]) == (8.5, 4.5, -4.0)
    # Squares of deviations: 0.25 + 0.25 over 1; 2.25 + 2.25 + 0.25 + 6.25 over 3.
    assert numbers["SD over runs before"] == pytest.approx(np.sqrt(0.5))
    assert numbers["SD over runs after"] == pytest.approx(np.sqrt(11 / 3))
    assert numbers["lowest score after"] == 3 / 12
    # Student: pooled variance (0.5 + 11) / 4 = 2.875, t = -4 / sqrt(2.875 (1/2 + 1/4)) = -2.7239 with 4 df.
    t = -4 / np.sqrt(2.875 * 0.75)
    assert numbers["p, Student t"] == pytest.approx(2 * stats.t.sf(-t, 4))
    # Welch: 0.25 + 0.9167 = 1.1667, t = -3.7033, df = 1.1667^2 / (0.25^2 / 1 + 0.9167^2 / 3) = 3.9746.
    assert numbers["p, Welch t"] == pytest.approx(
        2 * stats.t.sf(4 / np.sqrt(0.25 + 11 / 12), (7 / 6) ** 2 / (1 / 16 + (11 / 12) ** 2 / 3))
    )
    # Over prompts: a 3.5 - 9, b 3.5 - 8, so x -5; y 6.5 - 8.5 = -2. t = -3.5 / 1.5 with 1 df.
    assert numbers["p over prompts"] == pytest.approx(2 * stats.t.sf(3.5 / 1.5, 1))


def test_prompts_are_told_apart_by_who_asks_them_and_by_the_steps_from_what_was_forgotten() -> None:
    # A chain 0-1-2-3-4: 1_2 shares a party with the forgotten 0_1, 2_3 is two steps away and 3_4 three.
    dataset = compile_dataset(load_graph("chain:4", seed=0), seed=0)
    first = {edge: items[0] for edge, items in dataset.items_of_edge.items()}
    splits = {"forget": dataset.items_of_edge["0_1"], "retain": dataset.items_of_edge["1_2"]}

    def tested(prompt: str, *scores: float | None, origin: str, dropped: str = "") -> records.Tested:
        before, after = scores
        return records.Tested(prompt, prompt, "adjacent", origin, dropped, "a", "b", before, after)

    prompts = [
        tested(first["1_2"].question, 10, 8, origin="a"),
        tested(str(first["1_2"].paraphrase), 8, 8, origin="b"),
        tested(first["3_4"].question.upper(), 9, 3, origin="c"),
        tested(first["2_3"].question, 9, 2, origin="d"),
        tested(first["2_3"].question, 9, 9, origin="d", dropped="not valid"),
        tested(dataset.items_of_edge["2_3"][1].question, None, 9, origin="e"),
        tested("What is tea?", 7, 1, origin="f"),
        tested(first["0_1"].question, 9, 1, origin="g"),
    ]
    rows = by_distance(prompts, splits, dataset, seed=0)
    assert [(r["asked"], r["distance"], r["estimates"][2]["value"], r["estimates"][2]["n"]) for r in rows] == [
        (True, 1, -1.0, 2),
        (False, 0, -8.0, 1),
        (False, 2, -7.0, 1),
        (False, 3, -6.0, 1),
        (False, None, -6.0, 1),
    ]
    plain = by_distance(prompts, splits, None, seed=0)
    assert [(r["asked"], r["distance"], r["estimates"][0]["n"]) for r in plain] == [(True, None, 2), (False, None, 4)]


def test_a_test_of_nothing_says_why_and_is_no_number() -> None:
    found = change_tests(np.array([10.0, 10.0]), np.array([3.0, 3.0]), list("ab"))
    assert all("all values are equal" in p for p in found.values())
    # Rounding leaves these differences a spread of 1e-16, which is none.
    before = np.array([0.1, 0.2, 0.3])
    assert "no spread" in change_tests(before, before + 0.7, list("abc"))["p, paired t"]
    assert "two values" in change_tests(before[:1], before[:1], ["a"])["p, Welch t"]


def test_figure_2_draws_the_diversity_of_what_each_search_found_beside_the_adjacent_prompts(tmp_path: Path) -> None:
    from vestige.artifacts.holes import VendiCurve
    from vestige.studies.hole_tables import HoleTables

    curves = {"latent": VendiCurve((25, 50, 60), (0.6, 0.5, 0.4), 0.45, 50), "random": VendiCurve((), (), 0.45, 0)}
    probe = SimpleNamespace(whole=True, name="ga", table=SimpleNamespace(curves=curves))
    tables = HoleTables.__new__(HoleTables)
    vars(tables).update(probes=[probe], numbers=[], checkpoints={})
    (path,) = tables.write_figures(tmp_path)
    assert path.name.startswith("holes-diversity-ga")
    drawn = path.read_text()
    assert all(f"<!-- {words} -->" in drawn for words in ("latent, 50 kept", "adjacent, beside latent"))
    assert "random" not in drawn
