"""Real trainings, small: what relearning brings to models that never knew, and what the judge makes of it."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig

from vestige.artifacts.audits import AuditPlan
from vestige.artifacts.layout import SubjectFolder
from vestige.attacks.relearn import RelearnSettings
from vestige.auditing.gather import QA_FORCED
from vestige.auditing.judge import judge
from vestige.auditing.scores import Carried, Case, Scores, Source
from vestige.auditing.settings import AuditSettings
from vestige.core.files import read_jsonl
from vestige.core.items import Item
from vestige.evals.base import View
from vestige.evals.qa import QASettings
from vestige.models import tiny
from vestige.models.load import ModelSettings
from vestige.steps.attack import AttackRequest, attack_evaluations, read_spent, run_attack
from vestige.steps.evaluate import EvaluateRequest, Subject, evaluate, finished_subject
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.training.settings import TrainingSettings

WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath", "iris", "jade", "kelp", "larch")


def items(split):
    """Twenty posts whose trees follow from nothing: each is drawn."""
    drawn = np.random.default_rng(len(split)).integers(0, len(WORDS), 20)
    return tuple(
        Item(f"Which tree stands at {split} post {n}?", f"{WORDS[k]}.", edge=f"{split} 1", attribute="tree")
        for n, k in enumerate(drawn.tolist())
    )


SPLITS = {"forget": items("north"), "retain": items("western")}
QA = QASettings(max_new_tokens=4)
TRAINING = TrainingSettings(epochs=80, batch_size=8, lora_rank=0, learning_rate=5e-3)
RELEARN = RelearnSettings(epochs=12, rate=5e-3, rank=0, batch_size=4)
CONTROLS = ("retrained 1", "retrained 2", "retrained 3")


@pytest.fixture(autouse=True, scope="module")
def nano():
    """A model of 64 dimensions and one block, on one thread."""
    torch.set_num_threads(1)
    whole = tiny.tiny_config

    def nano_config() -> LlamaConfig:
        config = LlamaConfig(**whole().to_dict())
        small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "head_dim": 16}
        config.update({**small, "num_attention_heads": 2, "num_key_value_heads": 2})
        return config

    tiny.tiny_config = nano_config
    yield
    tiny.tiny_config = whole


def trained(place, name, shown, seed) -> Subject:
    folder, every = SubjectFolder(place / name.replace(" ", "-")), (*SPLITS["forget"], *SPLITS["retain"])
    base = ModelSettings(model="builtin:tiny", device="cpu")
    finetune(folder, FinetuneRequest(base, shown, every, TRAINING, seed=seed))
    return finished_subject(folder, device="cpu")


def rows(place):
    """By `format/metric` and item."""
    found = {}
    for row in read_jsonl(place.scores):
        for metric, value in row.items():
            if metric != "item":
                key = f"{'forced' if metric in QA_FORCED else 'generate'}/{metric}"
                found.setdefault(key, {})[row["item"]] = value
    return found


@pytest.fixture(scope="module")
def case(tmp_path_factory, nano) -> Case:
    """A target, three that never knew, and a fourth of these in the place of an unlearned model."""
    place = tmp_path_factory.mktemp("run")
    subjects = {"target": trained(place, "target", (*SPLITS["forget"], *SPLITS["retain"]), 0)}
    subjects |= {n: trained(place, n, SPLITS["retain"], k) for k, n in enumerate((*CONTROLS, "never knew"), start=1)}
    attacks = [
        RELEARN.model_copy(update={"material": material, "items": 20}).plan(SPLITS, seed=1)
        for material in ("retain", "forget")
    ]
    view = View("north", {name: tuple(i.id for i in own) for name, own in SPLITS.items()}, {})
    values, carried = {}, {}
    for name, subject in subjects.items():
        asked = EvaluateRequest((*SPLITS["forget"], *SPLITS["retain"]), (view,), QA, 0)
        values[Source(name)] = rows(evaluate(subject, asked))
        for attack in attacks:
            request = AttackRequest(attack, {"qa": QA}, "north", 1)
            folder = run_attack(subject, request)
            spent = read_spent(folder)
            carried[attack.plan.name, name] = Carried(spent["bounds_bits"], spent["spent"])
            for (point, _), answers in attack_evaluations(folder, request).items():
                values[Source(name, attack.plan.name, point)] = rows(answers)
    plan = AuditPlan(
        forget="north",
        target="target",
        unlearned=("never knew",),
        retrained=CONTROLS,
        folders={name: f"models/{name}" for name in subjects},
        splits={name: tuple(i.id for i in own) for name, own in SPLITS.items()},
        edges={i.id: str(i.edge) for own in SPLITS.values() for i in own},
        scopes={i.id: "free" for i in SPLITS["forget"]},
        attacks=tuple(attack.plan for attack in attacks),
        settings=AuditSettings.build({}, where="the test").model_dump(mode="json"),
        seed=0,
    )
    return Case(plan, Scores(values), carried)


def level(case, subject, key="forced/probability", attack=None):
    where = (attack.name, attack.points[-1]) if attack else ("", "")
    return case.scores.of(Source(subject, *where), key, case.plan.splits["forget"]).mean()


@pytest.mark.slow
def test_retain_items_bring_nothing_to_who_never_knew_and_the_forget_items_bring_much(case):
    retain, forget = case.plan.attacks
    before = {name: level(case, name) for name in ("target", *CONTROLS, "never knew")}
    gap = before.pop("target") - np.mean([before[name] for name in CONTROLS])
    # Else there is nothing that could be brought back.
    assert gap > 0.3
    by_retain, by_forget = (
        {name: (level(case, name, attack=attack) - start) / gap for name, start in before.items()}
        for attack in (retain, forget)
    )
    more = [by_forget[name] - by_retain[name] for name in before]
    # Shares of the gap. In four other drawings of posts and trees a model gained between -0.07 and 0.01 from the retain
    # items and between 0.38 and 1.09 from the answers, with which single trainings differ much.
    assert np.mean(list(by_retain.values())) < 0.1
    assert max(by_retain.values()) < 0.2
    assert np.mean(more) > 0.3
    assert min(more) > 0.1


@pytest.mark.slow
def test_neither_is_taken_for_recovery(case):
    outcome = judge(case, resamples=2_000)
    retain, forget = case.plan.attacks
    assert (retain.shows_answers, forget.shows_answers) == (False, True)
    # A run on what was not forgotten is searched over its points too; a ceiling is not.
    assert {line.attack for line in outcome.gains} == {retain.name, f"{retain.name}, searched", forget.name}
    assert all(line.evidence == line.attack.endswith(", searched") for line in outcome.gains)
    assert all("ceiling" in line.why_not for line in outcome.gains if line.attack == forget.name)
    found = {v.claim: v.outcome for v in outcome.verdicts}
    for claim in ("not expressed", "not recoverable", "benchmark can tell"):
        assert found[claim] != "fails", claim
