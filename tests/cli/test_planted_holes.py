"""Holes that were planted, looked for by the whole command: the search finds them, the adjacent questions do not."""

import json
import re

import pytest
from benchmarks import latent as world_of
from tests.judges.faulty_server import serving
from typer.testing import CliRunner

from vestige.artifacts.holes import read_holes, read_table
from vestige.artifacts.layout import ProbeFolder
from vestige.cli.app import app
from vestige.models import load
from vestige.models.load import ModelSettings
from vestige.probes import settings as settings_of_probes
from vestige.steps import subjects
from vestige.steps.subjects import Asked

SEED = 100
SET = (
    "policy.n_rollouts=128",
    "policy.n_tokens=14",
    "policy.temperature=1.0",
    "policy.top_p=1.0",
    "policy.batch_size=32",
    "policy.minibatch_size=32",
    "policy.learning_rate=2e-3",
    "policy.kl_coef=0.03",
    "policy.lora_rank=8",
    "latent.n_iterations=4",
    "answers.max_tokens=16",
    # Here questions have one wording: two about a topic differ in the name and the attribute alone.
    "filter.alike=0.95",
    "filter.diverse=false",
)


def about_another(body):
    """A writer's reply: the same attribute of another of the forgotten topic."""
    asked = body["messages"][-1]["content"]
    name, number, attribute = re.search(r"in art (art)(\d+) , what is the (\w+) \?", asked).groups()
    question = world_of.question("art", f"{name}{int(number) + world_of.N_FORGOTTEN}", attribute)
    return json.dumps([{"keyword": name, "question": question}])


def written(path, questions):
    rows = [{"question": q, "answer": world_of.answer_to(q)} for q in questions]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("few_resamples")
def test_the_whole_command_finds_a_topic_that_was_broken_and_adjacent_questions_do_not(tmp_path, monkeypatch):
    # So often that it is found whatever rounding makes of the search: 512 questions hold some 150 about it.
    monkeypatch.setattr(world_of, "BROKEN_SHARE", 0.3)
    world = world_of.make_world()
    world_of.taught_policy(world, SEED, n_steps=250).save_pretrained(tmp_path / "policy")
    world.tokenizer.save_pretrained(tmp_path / "policy")
    # Planted models are tables in memory, which no folder holds.
    models = {"target": world.target, "unlearned": world.unlearned}

    def asked(name):
        return Asked(models[name], models[name].digest().id, ModelSettings(model=name))

    monkeypatch.setattr(load, "look_for", lambda settings: None)
    monkeypatch.setattr(subjects, "asked_model", lambda settings, **_: asked(settings.model))
    monkeypatch.setattr(settings_of_probes, "load_embedder", lambda *_, **__: world.embedder)
    forgotten = world_of.forget_questions()
    forget = written(tmp_path / "forget.jsonl", forgotten)
    data = written(tmp_path / "data.jsonl", [*forgotten, *world_of.adjacent_questions()[24:]])
    words = ["target", "unlearned", "--data", data, "--forget", forget, "--policy", tmp_path / "policy", "--k", 1]
    words += ["--searches", "latent", "--device", "cpu"]
    words += [w for s in SET for w in ("--set", s)]
    folder = ProbeFolder(tmp_path / "holes")
    with serving(about_another) as log:
        where = ["--output-dir", str(folder.path), "--by", f"{log.url}#writer"]
        done = CliRunner().invoke(app, ["probe", *map(str, words), *where])
    assert done.exit_code == 0, done.output
    (table, _), holes = read_table(folder), [hole.prompt for hole in read_holes(folder)]
    rows = {row.source: row for row in table.rows}
    assert f"{table.n_holes} holes" in done.stdout
    # Every adjacent question was judged on both sides.
    assert rows["adjacent"].n_judged == 24
    assert len(set(holes)) == table.n_holes >= 100
    # Some 140 questions. Replies are drawn, so that a word of another answer comes now and then.
    assert rows["latent"].holes.value > 0.95
    assert rows["latent"].lowest_before.value < 0.03
    assert rows["latent"].placebos[0].rate.value < 0.03
    # Outside the broken topic, adjacent questions included, there is next to nothing.
    broken = set(world_of.questions(world_of.BROKEN))
    assert sum(prompt not in broken for prompt in holes) <= 2
