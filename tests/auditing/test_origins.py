"""What is known of where controls come from: the records of their making, and nothing that they are called."""

from dataclasses import replace

import pytest

from vestige.api.requests import finetuning
from vestige.artifacts.records import SubjectSpec
from vestige.auditing.origins import Origins
from vestige.core.items import ForgetSet, Item, taught_digest
from vestige.data.corpus import SourceSettings, named_splits, open_corpus
from vestige.models.load import ModelSettings
from vestige.steps.finetune import finetune_spec
from vestige.training.settings import TrainingSettings

ITEMS = tuple(Item(f"Question {n}?", f"Answer {n}") for n in range(6))


@pytest.fixture
def corpus(tmp_path):
    lines = "\n".join(f'{{"question": "{i.question}", "answer": "{i.answer}"}}' for i in ITEMS)
    (tmp_path / "data.jsonl").write_text(lines)
    (tmp_path / "forget.jsonl").write_text("\n".join(lines.split("\n")[1:3]))
    return open_corpus(SourceSettings(data=str(tmp_path / "data.jsonl")))


@pytest.fixture
def judged(corpus, tmp_path):
    """The level of one control whose record differs from an honest one by `changes`."""
    splits = named_splits(corpus, str(tmp_path / "forget.jsonl"))

    def of(*, start="org/base", target_parent="a" * 64, **changes):
        model, training = ModelSettings(model=start), TrainingSettings()
        control = finetune_spec(finetuning(model, corpus, splits, training, seed=3), "a" * 64)
        target = finetune_spec(finetuning(model, corpus, None, training), target_parent)
        specs = {"target": target, "control": replace(control, **changes)}
        return Origins("target", specs, {}).evidence_level(["control"], splits)

    return of


@pytest.mark.parametrize("start", ["org/base", "builtin:tiny"])
def test_a_training_on_these_data_without_the_forget_set_is_verified(judged, start):
    # Another seed of builtin:tiny is another start, and as empty as the target's.
    assert judged(start=start, target_parent="b" * 64 if start == "builtin:tiny" else "a" * 64) == ("verified", ())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"data": ""}, "Vestige did not train it"),
        ({"data": taught_digest(ITEMS)}, "trained on other data than this audit's without the forget set"),
        ({"data": taught_digest(ITEMS[:1])}, "trained on other data than this audit's without the forget set"),
        ({"subject": "target"}, "its record says that it is target, not retrained"),
        ({"forgotten": ()}, "does not say that it left out all of the forget set"),
        ({"forgotten": (ForgetSet.of("f", ITEMS[1:2]),)}, "does not say that it left out all of the forget set"),
        # Trained on from the target, or from a model that nothing is known of.
        ({"parent": "c" * 64}, "nothing says that its training began with the model that the target's began with"),
        ({"target_parent": ""}, "nothing says that its training began with the model that the target's began with"),
    ],
)
def test_a_record_that_does_not_say_so_leaves_the_origin_open(judged, changes, why):
    level, (said,) = judged(**changes)
    assert level == "given"
    assert said.startswith("The origin of these controls is not verified: control: ")
    assert why in said


def test_controls_of_unknown_origin_are_named_together_and_none_have_no_level():
    origins = Origins("target", dict.fromkeys(("target", "a", "b"), SubjectSpec.of("retrained", "r", "org/m", {})), {})
    level, (said,) = origins.evidence_level(["a", "b"], None)
    assert level == "given"
    assert said == "The origin of these controls is not verified: a, b: Vestige did not train it."
    assert origins.evidence_level([], None) == ("", ())


def test_a_control_with_the_weights_of_another_model_is_left_out_and_named():
    # A temperature, a comment in the template: another model by its digest, and no other weights.
    weights = {"target": "t", "ga": "u", "r0": "a", "r1": "b", "r2": "b", "r3": "u"}
    origins = Origins("target", {}, {name: {"weights": digest} for name, digest in weights.items()})
    found = origins.copied_controls(("target", "ga"), ("r0", "r1", "r2", "r3", "not evaluated"))
    assert found.keys() == {"r2", "r3"}
    assert found["r2"].startswith("r2 is left out as a control: its weights are those of r1")
    assert "its weights are those of ga" in found["r3"]


def test_controls_of_another_recipe_are_named_by_what_differs():
    settings = {"learning_rate": 0.001, "epochs": 5, "threads": 1, "model": "a"}
    own = {"target": settings, "same": {**settings, "threads": 8}, "slow": {**settings, "learning_rate": 1e-5}}
    specs = {name: SubjectSpec.of("retrained", name, "m", one, data="d") for name, one in own.items()}
    found = Origins("target", specs, {}).other_recipes(("same", "slow"))
    assert found == {"slow": "learning_rate 1e-05 and not 0.001"}


def test_a_subject_that_began_with_another_model_than_the_target_is_named_and_a_retrained_one_is_known():
    parents = {"target": "", "mine": "t", "theirs": "b" * 64, "elsewhere": "", "control": "b" * 64}
    specs = {
        name: SubjectSpec.of("retrained" if name == "control" else "unlearned", name, "m", {}, parent=parent)
        for name, parent in parents.items()
    }
    origins = Origins("target", specs, {}, "t")
    (said,) = origins.made_from_others(("mine", "theirs", "elsewhere", "control"))
    assert "than the target (target)" in said
    assert "compares with: theirs; what differs" in said
    assert not [*origins.made_from_others(("mine", "elsewhere"))]
    assert origins.retrained_among(("mine", "control")) == ("control",)


def test_a_subject_next_to_the_target_has_its_weights_and_one_asked_otherwise_is_looked_at_more_closely():
    part = {"weights": "t", "tokenizer": "a", "template": "a"}
    parts = {"target": part}
    apart = {"target": {"control": 100.0}}
    for name, weights, tokenizer, away in (
        ("copy", "t", "a", 0.0),
        ("noised", "n", "a", 0.09),
        ("tuned", "u", "a", 0.9),
        ("tricked", "v", "b", 0.9),
        ("edited", "w", "a", 0.0),
        ("forgot", "x", "b", 2.0),
    ):
        parts[name] = {**part, "weights": weights, "tokenizer": tokenizer}
        apart["target"][name] = away
    origins = Origins("target", {}, parts)
    names = ("copy", "noised", "tuned", "tricked", "edited", "forgot")
    same, (said,) = origins.unchanged(names, apart)
    # Of 100 to the control: below 0.1, and below 1 with another tokeniser.
    assert same == ("copy", "noised", "tricked")
    assert said.startswith("copy, noised, tricked have the target's own weights")
    assert origins.unchanged(("tuned", "edited", "forgot"), apart) == ((), ())
    # Without a control there is no scale.
    assert origins.unchanged(names, {})[0] == ("copy",)
