"""`vestige probe` as a person runs it: parts in one folder, a table of holes, what is refused."""

import json
import shutil

import pytest
from tests.judges.faulty_server import serving
from tests.probed import ITEMS, make_embedder, make_probed, verdict
from typer.testing import CliRunner

from vestige import api
from vestige.artifacts import records
from vestige.artifacts.holes import read_table, read_tested
from vestige.artifacts.layout import ProbeFolder
from vestige.cli.app import app
from vestige.core.errors import InputError
from vestige.core.items import ForgetSet
from vestige.data.dataset import compile_dataset, compile_to_folder
from vestige.models import load
from vestige.probes import adjacent
from vestige.probes.adjacent import adjacent_of, read_adjacent

pytestmark = pytest.mark.usefixtures("few_resamples")
SMALL = (
    "policy.n_rollouts=4",
    "policy.n_tokens=6",
    "policy.epochs=1",
    "policy.lora_rank=2",
    "latent.n_iterations=2",
    "answers.temperature=0.0",
    "answers.max_tokens=4",
    "filter.alike=1.0",
)


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    return make_probed(tmp_path_factory.mktemp("probed"))


def probe(probed, out, *words):
    shared = ["--output-dir", out, "--device", "cpu", *(w for s in SMALL for w in ("--set", s))]
    return CliRunner().invoke(app, ["probe", *map(str, [*words, *shared])])


def data(probed):
    return ["--data", probed / "qa.jsonl", "--forget", probed / "forget.jsonl"]


def models(probed):
    return [probed / "target", probed / "unlearned"]


def judged_by(log, probed):
    judge = f"{log.url}?first_wait_seconds=0&concurrency=2#m"
    return ["--judge", judge, "--embedder", probed / "embedder"]


@pytest.mark.slow
def test_the_whole_finds_that_a_silent_model_has_holes_and_the_placebo_none(probed, tmp_path):
    whole = [*models(probed), *data(probed), "--policy", probed / "target", "--searches", "latent,random"]
    with serving(verdict) as log:
        done = probe(probed, tmp_path / "out", *whole, *judged_by(log, probed))
        assert done.exit_code == 0, done.output
        paid = len(log.paid)
        again = probe(probed, tmp_path / "out", *whole, *judged_by(log, probed), "--json")
    assert again.exit_code == 0, again.output
    # Nothing was paid for twice, neither by the first run nor by the second.
    assert len(log.paid) == paid == len(set(log.paid))
    folder = ProbeFolder(tmp_path / "out")
    table, identity = read_table(folder)
    holes = [t for t in read_tested(folder) if t.hole]
    assert {h.source for h in holes} >= {"adjacent", "latent"}
    assert {(h.target_score, h.unlearned_score, h.unlearned_answer) for h in holes} == {(9, 1, "")}
    adjacent = table.rows[0]
    assert (adjacent.source, adjacent.holes.value, adjacent.change.value) == ("adjacent", 1, -8)
    assert adjacent.placebos[0].rate.value == 0
    # Answers are greedy here, so that the placebo repeats the target.
    assert "word for word, so it shows nothing" in done.stdout
    assert f"{table.n_holes} holes" in done.stdout
    # Progress is on stderr, so that stdout is the table alone, or one JSON document.
    assert "questions near the forget set" in done.stderr
    assert "prompts got J = 10" in done.stderr
    assert json.loads(again.stdout)["n_holes"] == len(holes) == table.n_holes
    assert identity["judge"]["url"] == log.url


@pytest.mark.slow
def test_a_search_is_not_gone_on_with_by_another_embedder_whose_novelty_it_would_be(probed, tmp_path):
    make_embedder(tmp_path / "other", seed=1)
    out, search = tmp_path / "out", [*models(probed), *data(probed), "--k", 1, "--policy", probed / "target"]
    search += ["--searches", "random"]
    with serving(verdict) as log:
        done = probe(probed, out, *search, *judged_by(log, probed))
        assert done.exit_code == 0, done.output
        assert "random" in done.stdout
        refused = probe(probed, out, *search, *judged_by(log, probed)[:-1], tmp_path / "other")
    assert "holds another part 'search' (it differs in embedder)" in str(refused.exception)


def alone(probed):
    """The words of a probe of the adjacent questions alone, one of each forget item."""
    return [*models(probed), *data(probed), "--k", 1, "--searches", "none"]


def test_the_same_words_give_the_same_bytes_and_the_judge_needs_no_other_model(probed, tmp_path):
    out, words = tmp_path / "out", [*alone(probed), "--embedder", probed / "embedder"]
    done = probe(probed, out, *words)
    assert done.exit_code == 0, done.output
    folder = ProbeFolder(out)
    assert [k.of for k in read_adjacent(folder)].count("forget") == 3
    first, summary = folder.holes.read_bytes(), folder.summary.read_bytes()
    tested = [json.loads(line) for line in folder.tested.read_text().splitlines()]
    assert len(tested) == 3
    # The same bytes again from answers on the disk, and with nothing there.
    folder.summary.unlink()
    assert probe(probed, out, *words).exit_code == 0
    assert (folder.holes.read_bytes(), folder.summary.read_bytes()) == (first, summary)


def test_an_unlearned_model_may_be_on_a_server_and_a_grounded_target_may_not(probed, tmp_path):
    out, rest = tmp_path / "out", alone(probed)[2:]
    with serving(verdict) as log:
        served = f"{log.url}?silent=yes#silent"
        done = probe(probed, out, probed / "target", served, *rest, *judged_by(log, probed))
        assert done.exit_code == 0, done.output
        grounded = ["--embedder", probed / "embedder"]
        refused = probe(probed, tmp_path / "b", served, probed / "unlearned", *rest, *grounded)
    table, _ = read_table(ProbeFolder(out))
    assert table.n_holes == 3
    said = [body["messages"] for body in log.bodies if body["model"] == "silent"]
    # As a user alone, without a system message that the model was not made for; no prompt is asked twice.
    prompts = [t["prompt"] for t in map(json.loads, ProbeFolder(out).tested.read_text().splitlines())]
    asked = [m for m in said if m[0]["content"] in prompts]
    assert sorted(asked, key=str) == sorted(([{"role": "user", "content": p}] for p in prompts), key=str)
    provenance = json.loads((out / "provenance.json").read_text())
    assert provenance["models"]["unlearned"] == served.replace("?silent=yes", "")
    assert "reads the target's own likelihoods" in str(refused.exception)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--judge", "grouned"], "no judge 'grouned'. Did you mean 'grounded'"),
        (["--judge", "server"], "judge 'server': give its address, as in http://localhost:8000/v1#name"),
        (["--judge", "server:http://h/v1#m"], "give its address, as in"),
        (["--judge", "local"], "give local:MODEL, as in local:builtin:smollm2"),
        (["--judge", "http://h/v1?key=sk-1#m"], "the address http://h/v1#m: unknown key 'key'"),
        (["--searches", "latnt"], "no search 'latnt'. Did you mean 'latent'"),
        (["--set", "filters.alike=0.5"], "Did you mean 'filter.alike'"),
        (["--set", "filter.alik=0.5"], "unknown key 'filter.alik'. Did you mean 'filter.alike'"),
        (["--by", "graph"], "the data has no graph"),
        (["--by", "grph"], "--by grph: Did you mean 'graph'"),
        (["--by", "server"], "Give local:MODEL"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(probed, tmp_path, words, complaint):
    refused = probe(probed, tmp_path / "out", *models(probed), *data(probed), *words)
    assert isinstance(refused.exception, InputError)
    assert complaint in str(refused.exception)


def test_placebos_are_told_apart_and_from_the_pair(probed, tmp_path):
    out = tmp_path / "out"
    # A placebo in a folder that is called "unlearned" is not the unlearned model.
    for name in ("unlearned", "a/kept", "b/kept"):
        shutil.copytree(probed / "target", tmp_path / name)
    placebos = [w for name in ("unlearned", "a/kept", "b/kept") for w in ("--placebo", tmp_path / name)]
    with serving(verdict) as log:
        done = probe(probed, out, *alone(probed), *judged_by(log, probed), *placebos)
    assert done.exit_code == 0, done.output
    (row,) = read_table(ProbeFolder(out))[0].rows
    assert row.after.value == 1
    names = [str(tmp_path / name) for name in ("unlearned", "a/kept", "b/kept")]
    assert [p.name for p in row.placebos] == ["target at another seed", *names]


def test_texts_to_forget_are_probed_like_questions(probed, tmp_path):
    texts = [
        {"title": "Cranes", "text": f"{i.answer} It took a winter, and the rivets are still there."} for i in ITEMS[:3]
    ]
    kept = [{"text": f"{i.answer} Visitors have asked about it ever since the market was moved."} for i in ITEMS[3:]]
    for name, rows in (("texts.jsonl", texts), ("kept.jsonl", kept)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    sets = ["--data", tmp_path / "kept.jsonl", "--forget", tmp_path / "texts.jsonl", "--forget-n", 2]
    out, embedder = tmp_path / "out", ["--embedder", probed / "embedder"]
    done = probe(probed, out, *models(probed), *sets, "--searches", "none", *embedder)
    assert done.exit_code == 0, done.output
    near = read_adjacent(ProbeFolder(out))
    # Two texts are drawn, with four questions at most of each; of three that are kept there are two of each.
    assert len({k.question.source_id for k in near if k.of == "forget"}) == 2
    assert [k.of for k in near].count("retain") == 6
    rows = [json.loads(line) for line in ProbeFolder(out).tested.read_text().splitlines()]
    assert len(rows) > 4
    assert {r["origin"] for r in rows} == {k.question.source_id for k in near if k.of == "forget"}
    refused = probe(probed, tmp_path / "b", *models(probed), *data(probed), "--forget-n", 2)
    assert "--forget-n 2 draws from texts and harmful answers" in str(refused.exception)


def test_another_forget_set_or_model_does_not_take_over_a_folder(probed, tmp_path):
    out, embedder = tmp_path / "out", ["--embedder", probed / "embedder"]
    assert probe(probed, out, *alone(probed), *embedder).exit_code == 0
    refused = probe(probed, out, *alone(probed), "--k", 2, *embedder)
    assert "holds another part 'adjacent' (it differs in settings)" in str(refused.exception)
    swapped = probe(probed, out, *reversed(models(probed)), *alone(probed)[2:], *embedder)
    assert "holds another part 'holes' (it differs in target, unlearned)" in str(swapped.exception)


def test_what_a_model_was_made_to_forget_beside_the_forget_set_is_not_kept_and_not_asked(tmp_path, monkeypatch):
    compile_to_folder("chain:6", tmp_path / "data")
    dataset = compile_dataset("chain:6", seed=0)
    gone = ForgetSet.of("edge:3_4", dataset.items_of_edge["3_4"])
    monkeypatch.setattr(records, "forgotten_by", lambda model: (gone,) if model == "unlearned" else ())
    monkeypatch.setattr(load, "look_for", lambda settings: None)
    seen = []

    def made(folder, request):
        seen.append(adjacent_of(request))
        raise InputError("enough was seen")

    monkeypatch.setattr(adjacent, "make_adjacent", made)
    near = {}
    for models in (("target", "target"), ("target", "unlearned")):
        with pytest.raises(InputError, match="enough was seen"):
            api.probe(
                *models, data=tmp_path / "data", forget="edge:2_3", output_dir=tmp_path / "out", searches=["none"], k=9
            )
        near[models] = {of: {q.question for q in adjacents.questions} for of, adjacents in seen[-1].items()}
    asked = {i.question for i in dataset.items_of_edge["3_4"]}
    assert [bool(asked & near["target", "target"][of]) for of in ("forget", "retain")] == [True, True]
    assert [asked & near["target", "unlearned"][of] for of in ("forget", "retain")] == [set(), set()]
