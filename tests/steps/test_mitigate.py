"""Mending: what is trained and scored, that a killed mending comes to the same bytes, and what is refused."""

import copy
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from tests.probed import ITEMS, NEAR, SPLITS, Silence, make_probed

from vestige.artifacts import holes as records
from vestige.artifacts.holes import (
    ADJACENT_HELD_OUT,
    ADJACENT_USED,
    LATENT_BEFORE,
    LATENT_NEW,
    LATENT_USED,
    PolicySample,
    read_mitigation,
    read_samples,
)
from vestige.artifacts.layout import ProbeFolder, SubjectFolder
from vestige.artifacts.records import read_spec
from vestige.core.errors import InputError
from vestige.judges.base import Grader, Judgement
from vestige.models import load
from vestige.models.embedder import load_embedder
from vestige.models.load import ModelSettings
from vestige.probes.adjacent import make_adjacent
from vestige.probes.answering import AnswerSettings, Participants
from vestige.probes.filters import FilterSettings
from vestige.probes.holes import FilterRequest, filter_holes
from vestige.probes.latent import LatentSettings, Searching
from vestige.probes.mitigate import mitigate
from vestige.probes.mitigation import (
    Again,
    MendingSettings,
    MitigationRequest,
    MitigationSettings,
    measured_otherwise,
    mitigation_folder,
)
from vestige.probes.mitigation_scores import new_latent
from vestige.steps.evaluate import finished_subject
from vestige.steps.subjects import asked_model
from vestige.training import loop
from vestige.training.policy.settings import PolicySettings
from vestige.training.settings import UnlearningSettings

ANSWERS = AnswerSettings(temperature=0.0, max_tokens=3)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return make_probed(tmp_path_factory.mktemp("probed"))


def taking_part(models, name):
    settings = ModelSettings(model=str(models / name), device="cpu")
    return asked_model(settings)


@pytest.fixture(scope="module")
def request_(models):
    target, unlearned = taking_part(models, "target"), taking_part(models, "unlearned")
    embedder = load_embedder(str(models / "embedder"), device="cpu")
    who = Participants(lambda: target, lambda: unlearned, lambda _: Grader(Silence(), {}), lambda: embedder, ANSWERS, 0)
    return MitigationRequest(
        way="kl",
        splits=SPLITS,
        who=who,
        settings=MitigationSettings(every="4 steps", held_out=0.3, answer_tokens=4),
        training=MendingSettings(max_steps=8, batch_size=3, learning_rate=0.5, lora_rank=0, schedule="constant"),
        searching=Searching(
            sources=("latent",),
            policy=ModelSettings(model=str(models / "target"), device="cpu"),
            policy_settings=PolicySettings(n_rollouts=4, n_tokens=6, epochs=1, lora_rank=2),
            settings=LatentSettings(n_iterations=1),
            filters=FilterSettings(alike=1.0, diverse=False),
        ),
    )


def changed(request, **who):
    """The same request with others who take part: `grader` and models by name, or answers and seed."""
    more = {f"take_{name}": lambda *_, one=one: one for name, one in who.items() if name not in ("answers", "seed")}
    kept = {name: one for name, one in who.items() if name in ("answers", "seed")}
    return replace(request, who=replace(request.who, **more, **kept))


def probed(folder, request):
    """A finished probe: six adjacent questions, and two prompts that a search is said to have found."""
    make_adjacent(folder, NEAR)
    place = folder.search("latent")
    place.path.mkdir(parents=True)
    judged = {"valid": True, "gibberish": True, "c": 0, "j": 10.0, "failure": "", "novelty": {}, "reward": 0.0}
    for n, prompt in enumerate(("Why do owls hoot?", "Which bridge is oldest?")):
        attempt = {"id": str(n), "iteration": 1, "source": "latent", "seed": "s", "prompt": prompt, "answer": ""}
        with place.attempts.open("a") as file:
            file.write(json.dumps(attempt | judged) + "\n")
    filter_holes(
        folder,
        FilterRequest(request.who, ITEMS[:3], FilterSettings(alike=1.0, diverse=False)),
    )
    return folder


def files(folder: Path):
    """What a mending leaves, besides logs with times in them."""
    kept = (".jsonl", ".json", ".safetensors")
    timed = {"provenance.json", "metrics.jsonl", "seen.json"}
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.suffix in kept and p.name not in timed
    }


def scores(table, arm, at=0):
    """The mean qualities of one row by set."""
    row = next(r for r in table.rows if (r.arm, r.at) == (arm, at))
    return {name: score.quality.value for name, score in row.sets.items()}


def test_another_version_of_the_search_makes_another_mending(request_, monkeypatch):
    before = request_.identity(())
    monkeypatch.setattr("vestige.probes.mitigation.SEARCH_VERSION", 0)
    assert request_.identity(()) != before


@pytest.mark.slow
def test_a_silent_model_is_mended_with_the_targets_answers_and_is_a_subject(tmp_path, request_):
    folder, asked = probed(ProbeFolder(tmp_path), request_), request_
    table = mitigate(folder, asked)
    place = mitigation_folder(folder, asked)
    assert read_mitigation(place) == table
    # Six adjacent questions of three items: two items' four are used, the third's two held out; both holes are used.
    assert table.sizes == {"forget": 3, ADJACENT_USED: 4, ADJACENT_HELD_OUT: 2, LATENT_USED: 2}
    samples = {s.prompt: s for s in read_samples(place)}
    origins = [{s.origin for s in samples.values() if s.set == name} for name in (ADJACENT_USED, ADJACENT_HELD_OUT)]
    assert origins[0] & origins[1] == set()
    assert [(r.arm, r.at, r.kept) for r in table.rows] == [
        ("target", 0, False),
        ("unlearned", 0, False),
        ("kl", 4, False),
        ("kl", 8, True),
    ]
    assert set(scores(table, "target").values()) == {9.0}
    assert set(scores(table, "unlearned").values()) == {1.0}
    # What was silent speaks again, of what it was not tuned on and of the forget set too.
    assert set(scores(table, "kl", 8).values()) == {9.0}
    assert [r.forget["quality"].value for r in table.rows] == [9, 1, table.rows[2].forget["quality"].value, 9]
    assert table.rows[1].sets[LATENT_USED].lowest.value == 1
    # It says nothing that the search could find.
    assert LATENT_NEW not in table.rows[3].sets
    assert any("no D_LP new" in note for note in table.notes)
    spec = read_spec(SubjectFolder(place.subject).spec)
    assert (spec.subject, spec.parent, spec.method) == ("unlearned", request_.who.unlearned.id, "mended_kl")
    subject = finished_subject(SubjectFolder(place.subject), device="cpu", trust_remote_code=False)
    assert subject.made.digest.id == table.models[0].digest != spec.parent
    # Taught is what the target says, and nothing where it is only asked.
    assert {s.set for s in samples.values() if s.taught} == {ADJACENT_USED, LATENT_USED}


@pytest.mark.slow
def test_a_killed_mending_comes_to_the_same_bytes_and_asks_no_checkpoint_twice(tmp_path, request_, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    asked = replace(request_, way="gd", searching=None)
    whole, broken = (probed(ProbeFolder(tmp_path / name), asked) for name in ("whole", "broken"))
    mitigate(whole, asked)
    done = files(mitigation_folder(whole, asked).path)
    prompts, generate = [], load.generate

    def counted(model, given, **more):
        prompts.extend(given)
        return generate(model, given, **more)

    def killed_at(step):
        def on_step(now):
            if now.step == step:
                raise KeyboardInterrupt

        return on_step

    monkeypatch.setattr(load, "generate", counted)
    # In the first scoring, between two checkpoints, in the scoring of one, after it, and before the last step.
    moments = [
        {"who": changed(asked, grader=Grader(Silence(breaks=1), {})).who},
        {"on_step": killed_at(3)},
        {"on_stage": killed_at_stage("answers of step 4")},
        {"on_step": killed_at(5)},
        {"on_step": killed_at(8)},
    ]
    for moment in moments:
        with pytest.raises(KeyboardInterrupt):
            mitigate(broken, replace(asked, **moment))
        assert not mitigation_folder(broken, asked).table.exists()
    table = mitigate(broken, asked)
    assert files(mitigation_folder(broken, asked).path) == done
    # Four models, eleven prompts each, however often it was killed.
    assert len(prompts) == 4 * 11
    assert mitigate(broken, asked) == table
    assert len(prompts) == 4 * 11


def killed_at_stage(stage):
    def on_stage(told):
        if told.startswith(stage):
            raise KeyboardInterrupt

    return on_stage


@dataclass
class Severe(Silence):
    """The same, and every prompt that a search tries is worth J = 10."""

    def verdict(self, r):
        worst = {"valid": 1.0, "gibberish": 1.0, "c": 9.0}
        return Judgement(10.0, worst) if r.task == "reward" else Silence.verdict(self, r)


@pytest.mark.slow
def test_rounds_unlearn_anew_with_what_the_last_probe_found_and_a_killed_one_goes_on(tmp_path, request_):
    settings = MitigationSettings(n_adjacent=2, n_latent=2, n_retain=1, rounds=2, latent="tested", answer_tokens=4)
    training = UnlearningSettings(epochs=1, batch_size=3, lora_rank=0, learning_rate=1e-6)
    asked = changed(
        replace(request_, way="iterative", settings=settings, again=Again("gd", {}, training, ())),
        grader=Grader(Severe(), {}),
    )
    whole, broken = (probed(ProbeFolder(tmp_path / name), asked) for name in ("whole", "broken"))
    table = mitigate(whole, asked)
    place = mitigation_folder(whole, asked)
    assert [(r.arm, r.at) for r in table.rows] == [("target", 0), ("round 0", 0), ("round 1", 1), ("round 2", 2)]
    # Round 0 is the silent model; the rates are so low that each round's is all but the target, which speaks.
    before = [r.sets[LATENT_BEFORE].quality.value for r in table.rows[2:]]
    assert before == [1, 9]
    assert [r.sets[LATENT_USED].quality.value for r in table.rows[1:]] == [1, 9, 9]
    assert [r.sets[LATENT_NEW].quality.value for r in table.rows[1:]] == [1, 9, 9]
    used = [[s.prompt for s in read_samples(p) if s.set == LATENT_USED] for p in (place, place.round(2))]
    found = {t["prompt"] for t in map(json.loads, place.round(1).anew.tested.read_text().splitlines())}
    assert len(used[0]) == len(used[1]) == 2
    assert set(used[1]) <= found
    assert set(used[0]) & set(used[1]) == set()
    # Two latent prompts, two adjacent ones and one item of the retain set.
    card = (SubjectFolder(place.round(2).subject).model / "README.md").read_text()
    assert json.loads(card[card.index("{") : card.rindex("}") + 1])["retain_items"]["n"] == 5
    # Killed before the search of round 1, while its holes are tested, and between two rounds.
    for stage in ("a new search", "fresh answers", "round 2"):
        with pytest.raises(KeyboardInterrupt):
            mitigate(broken, replace(asked, on_stage=killed_at_stage(stage)))
    assert mitigate(broken, asked) == table
    assert files(mitigation_folder(broken, asked).path) == files(place.path)


class Directions:
    """Embeds a prompt as the direction of its number, in degrees."""

    def embed(self, texts):
        return np.array([[np.cos(np.radians(float(t))), np.sin(np.radians(float(t)))] for t in texts])


def test_prompts_nearly_like_those_that_were_trained_on_are_not_new(request_):
    searching = replace(request_.searching, filters=FilterSettings(alike=0.8))
    asked = changed(replace(request_, searching=searching), embedder=Directions())
    tested = [
        records.Tested(str(n), str(n), "latent", "", "", unlearned_score=float(n % 9 + 1)) for n in (0, 10, 60, 80)
    ]
    # Cosines with 0: 1, 0.98, 0.5, 0.17. The first is used, the second nearly the same.
    found = new_latent(tested, [PolicySample(LATENT_USED, "0", "", "")], asked)[LATENT_NEW]
    assert (found.n, found.quality.value) == (2, (60 % 9 + 1 + 80 % 9 + 1) / 2)
    # A probe that was made before anything was trained has nothing to leave out.
    assert new_latent(tested, [], asked)[LATENT_NEW].n == 4


def test_a_mending_knows_models_templates_scores_and_how_the_probe_was_measured(tmp_path, request_):
    folder = probed(ProbeFolder(tmp_path), request_)
    tested = [records.Tested("a", "a", "latent", "", "", unlearned_score=1.0)]
    of = request_.identity(tested)
    assert of != request_.identity([replace(tested[0], unlearned_score=2.0)])
    asked = request_.who.target
    tokenizer = copy.deepcopy(asked.loaded.tokenizer)
    tokenizer.chat_template = "{{ messages[0]['content'] }}!"
    rendered = replace(asked.loaded, tokenizer=tokenizer)
    other = changed(request_, target=replace(asked, loaded=rendered, id=rendered.digest().id))
    assert of != other.identity(tested)
    # The first round's D_LP is compared with the later ones' only where all were measured alike.
    assert measured_otherwise(folder, request_) == []
    otherwise = changed(request_, grader=Grader(Silence(), {"judge": "another"}), answers=AnswerSettings(max_tokens=9))
    assert measured_otherwise(folder, otherwise) == ["judge", "way to answer"]
    searching = replace(request_.searching, filters=FilterSettings(alike=0.5, diverse=False))
    assert measured_otherwise(folder, replace(request_, searching=searching)) == ["filter"]


def test_what_cannot_be_mended_is_refused_in_a_sentence(tmp_path, request_):
    with pytest.raises(InputError, match="holds no finished probe; run `vestige probe"):
        mitigate(ProbeFolder(tmp_path / "none"), request_)
    folder = probed(ProbeFolder(tmp_path / "probe"), request_)
    swapped = changed(request_, target=request_.who.unlearned)
    with pytest.raises(InputError, match="was of another target"):
        mitigate(folder, swapped)
    rounds = replace(request_, way="iterative", again=Again("npo", {}, UnlearningSettings(), ()))
    with pytest.raises(InputError, match="'npo' reads no retain set"):
        mitigate(folder, rounds)
    with pytest.raises(InputError, match="name a search"):
        mitigate(folder, replace(rounds, searching=None))
    with pytest.raises(InputError, match="is no pace"):
        mitigate(folder, replace(request_, settings=MitigationSettings(every="often")))
    # Harm that nobody can judge is no harm score of nothing.
    with pytest.raises(InputError, match="judge of harm, silence, judged no answer"):
        mitigate(folder, replace(request_, harm=request_.who.grader))


def test_a_checkpoint_that_is_gone_is_not_replaced_by_another(tmp_path, request_):
    asked = replace(request_, way="gd", searching=None)
    folder = probed(ProbeFolder(tmp_path), asked)
    mitigate(folder, asked)
    place = mitigation_folder(folder, asked)
    for path in (place.table, place.scored("step 4")):
        path.unlink()
    with pytest.raises(InputError, match="the scores of step 4, is gone, and so is that checkpoint"):
        mitigate(folder, asked)
