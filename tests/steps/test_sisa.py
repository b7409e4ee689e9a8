"""SISA: forgetting is training without, byte for byte, and the ensemble is a subject like any other."""

import dataclasses
import json
import shutil

import pytest
from tests.small import TINY, model_bytes, squares

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import read_spec, write_spec
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.evals.qa import QASettings, View
from vestige.models.ensemble import EnsembleModel
from vestige.models.load import ModelSettings, load
from vestige.steps import sisa
from vestige.steps.controls import Taught
from vestige.steps.evaluate import EvaluateRequest, evaluate, finished_subject
from vestige.steps.finetune import FinetuneRequest, finetune, starting_model, teach
from vestige.steps.making import read_done
from vestige.steps.sisa import (
    Cost,
    SisaForgetting,
    SisaSettings,
    forget_in_shards,
    parts_of,
    place_of,
    read_cost,
    train_in_shards,
)
from vestige.training.settings import TrainingSettings

ITEMS = squares(18, edge=lambda i: f"b{i // 2}")
DIVIDED = SisaSettings(shards=2, slices=2)
# Dropout, since it is what a resumed or repeated training most easily draws anew.
LORA = {"epochs": 3, "batch_size": 4, "learning_rate": 1e-3, "lora_rank": 2, "lora_dropout": 0.1}
FULL = {"epochs": 3, "batch_size": 4, "learning_rate": 1e-3, "lora_rank": 0}


def asked(items=ITEMS, settings=FULL, **changes) -> FinetuneRequest:
    request = FinetuneRequest(TINY, items, ITEMS, TrainingSettings.build(settings), seed=0)
    return dataclasses.replace(request, **changes)


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> SubjectFolder:
    folder = SubjectFolder(tmp_path_factory.mktemp("sisa") / "target")
    train_in_shards(folder, asked(), DIVIDED)
    assert all(len(placed(s, r)) >= 4 for s in range(2) for r in range(2)), "the items fill every slice"
    return folder


def placed(shard: int, number: int) -> list[Item]:
    return [i for i in ITEMS if place_of(i, DIVIDED, 0) == (shard, number)]


def edge_in(shard: int, number: int) -> str:
    return str(placed(shard, number)[0].edge)


def test_steps_are_those_of_whole_epochs_unless_max_steps_ends_them_before():
    counted = [part for shard in parts_of(asked(), DIVIDED) for part in shard]
    # Of 3 epochs each of 2 slices gets 2 * 3 / 3 = 2, in batches of 4.
    assert [p.steps for p in counted] == [2 * -(-len(p.request.items) // 4) for p in counted]
    assert max(p.steps for p in counted) > 3
    cut = parts_of(asked(settings={**FULL, "max_steps": 3}), DIVIDED)
    assert [p.steps for shard in cut for p in shard] == [min(3, p.steps) for p in counted]


def forgetting(target: SubjectFolder, *edges: str) -> SisaForgetting:
    return SisaForgetting(target, " ".join(edges), Taught(ITEMS, ITEMS), without(*edges), device="cpu")


def without(*edges: str) -> tuple[Item, ...]:
    return tuple(i for i in ITEMS if i.edge not in edges)


def test_an_items_place_depends_on_its_edge_and_the_seed_alone():
    settings = SisaSettings(shards=5, slices=3)
    places = {i.id: place_of(i, settings, 0) for i in ITEMS}
    assert all(0 <= s < 5 and 0 <= r < 3 for s, r in places.values())
    # Two items of an edge stay together, in `item` mode they need not.
    assert all(places[a.id] == places[b.id] for a, b in zip(ITEMS[::2], ITEMS[1::2], strict=True))
    alone = settings.model_copy(update={"together": "item"})
    assert any(place_of(a, alone, 0) != place_of(b, alone, 0) for a, b in zip(ITEMS[::2], ITEMS[1::2], strict=True))
    assert any(place_of(i, settings, 1) != places[i.id] for i in ITEMS)
    # An item without an edge stands for itself.
    loose = [dataclasses.replace(i, edge=None) for i in ITEMS]
    assert len({place_of(i, settings, 0) for i in loose}) > len({i.edge for i in ITEMS}) // 2
    # Neither order nor the presence of others counts.
    some = parts_of(asked(items=ITEMS[::-3]), settings)
    assert {(i.id, part.shard) for shard in some for part in shard for i in part.request.items} == {
        (i.id, places[i.id][0]) for i in ITEMS[::-3]
    }


def test_a_slices_training_holds_all_slices_up_to_it():
    for shard, parts in enumerate(parts_of(asked(), DIVIDED)):
        assert [p.number for p in parts] == [0, 1]
        assert set(parts[0].request.items) == set(placed(shard, 0))
        assert set(parts[1].request.items) == set(placed(shard, 0)) | set(placed(shard, 1))
        # In the order in which they were given.
        assert list(parts[1].request.items) == [i for i in ITEMS if place_of(i, DIVIDED, 0)[0] == shard]


def test_epochs_are_dealt_out_as_in_the_paper():
    # Four slices of twelve epochs: 2 * 12 / 5 = 4.8 each, so that the running sum is 4, 9, 14, 19. By the paper a
    # slice more on a quarter of the data each time: 4.8 (1 + 2 + 3 + 4) / 4 = 12 passes over the whole shard.
    request = asked(items=tuple(Item(f"q{i}", "a") for i in range(64)), settings={**FULL, "epochs": 12})
    parts = parts_of(request, SisaSettings(shards=1, slices=4))[0]
    assert [p.request.training.epochs for p in parts] == [4, 5, 5, 5]
    # One slice is plain training.
    assert [p.request.training.epochs for p in parts_of(request, SisaSettings(shards=1, slices=1))[0]] == [12]
    # No two trainings share their dropout and order.
    assert len({p.request.seed for p in parts}) == 4


def test_a_shard_and_early_slices_without_items_are_left_out():
    only = tuple(placed(1, 1))
    ((part,),) = parts_of(asked(items=only), DIVIDED)
    assert (part.shard, part.number, part.request.items) == (1, 1, only)


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({}, SisaSettings(slices=6), "3 epochs leave some of 6 slices without a single one"),
        ({"items": ()}, DIVIDED, "no items to train on"),
    ],
)
def test_what_cannot_be_divided_is_refused(tmp_path, changes, settings, message):
    with pytest.raises(InputError, match=message):
        train_in_shards(SubjectFolder(tmp_path / "x"), asked(**changes), settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shard", "number", "training"), [(0, 1, FULL), (1, 0, FULL), (0, 1, LORA)], ids=["last", "first", "lora"]
)
def test_forgetting_is_training_without_to_the_last_byte(target, tmp_path, shard, number, training):
    if training is not FULL:
        target = SubjectFolder(tmp_path / "target")
        train_in_shards(target, asked(settings=training), DIVIDED)
    edge = edge_in(shard, number)
    forgot, never = SubjectFolder(tmp_path / "forgot"), SubjectFolder(tmp_path / "never")
    made = forget_in_shards(forgot, forgetting(target, edge))
    # From the start: nothing of the target is at hand, and another name on it changes nothing.
    scratch = train_in_shards(
        never, asked(items=without(edge), settings=training, role="retrained", name="r", forget=edge), DIVIDED
    )
    assert model_bytes(forgot) == model_bytes(never)
    assert made.digest == scratch.digest != read_done(target).digest
    for s in range(2):
        for r in range(2):
            assert model_bytes(forgot.slice(s, r)) == model_bytes(never.slice(s, r))
    # What had not seen the item is the target's own; what came after is not.
    assert model_bytes(forgot.slice(1 - shard, 1)) == model_bytes(target.slice(1 - shard, 1))
    assert model_bytes(forgot.slice(shard, number)) != model_bytes(target.slice(shard, number))


@pytest.mark.slow
def test_each_slice_goes_on_from_the_weights_after_the_one_before(target, tmp_path):
    # By hand, in memory and in one go: all shards begin with the same model, and a slice is a fine-tuning of its own.
    for first, second in parts_of(asked(), DIVIDED):
        model = starting_model(TINY, ITEMS, 0)
        for part in (first, second):
            teach(SubjectFolder(tmp_path / part.request.name), part.request, model, lambda _: None)
            assert model.digest() == read_done(target.slice(part.shard, part.number)).digest
        assert set(first.request.items) < set(second.request.items)


@pytest.mark.slow
def test_the_cost_is_that_of_the_slices_that_saw_the_item(target, tmp_path):
    # Epochs: 2 * 3 / 3 = 2 for each slice; steps: 2 * ceil(n / 4) of the n items in the slices so far.
    edge = edge_in(0, 1)
    sizes = {(s, r): len([i for i in placed(s, r) if i.edge != edge]) for s in range(2) for r in range(2)}
    upto = {(s, r): sizes[s, 0] + (sizes[s, 1] if r else 0) for s, r in sizes}
    steps = {key: 2 * -(-n // 4) for key, n in upto.items()}
    folder = SubjectFolder(tmp_path / "forgot")
    made = forget_in_shards(folder, forgetting(target, edge))
    assert read_cost(folder) == Cost(1, 4, steps[0, 1], sum(steps.values()))
    assert (made.steps, made.stopped) == (steps[0, 1], "1 of 4 slices trained")
    # The target paid for everything.
    whole = read_cost(target)
    assert (whole.slices_trained, whole.steps_trained) == (4, whole.steps)
    # The first slice is in all later ones.
    forget_in_shards(SubjectFolder(tmp_path / "early"), forgetting(target, edge_in(1, 0)))
    assert read_cost(SubjectFolder(tmp_path / "early")).slices_trained == 2


def test_a_shard_of_which_nothing_is_left_has_no_voice(target, tmp_path):
    edges = {str(i.edge) for i in (*placed(0, 0), *placed(0, 1))}
    folder = SubjectFolder(tmp_path / "forgot")
    forget_in_shards(folder, forgetting(target, *edges))
    loaded = load(ModelSettings(model=str(folder.path), device="cpu"))
    assert isinstance(loaded.model, EnsembleModel)
    assert loaded.model.shards == (1,)
    assert read_cost(folder).slices_trained == 0


@pytest.mark.slow
def test_what_forgot_once_can_forget_again_without_the_target(target, tmp_path):
    once, twice = SubjectFolder(tmp_path / "once"), SubjectFolder(tmp_path / "twice")
    copy = SubjectFolder(tmp_path / "copy")
    shutil.copytree(target.path, copy.path)
    first, second = edge_in(0, 1), edge_in(1, 1)
    forget_in_shards(once, forgetting(copy, first))
    shutil.rmtree(copy.path)
    kept = without(first)
    # What it forgot the first time is no longer what it was taught.
    with pytest.raises(InputError, match="was taught other items"):
        forget_in_shards(twice, forgetting(once, second))
    forget_in_shards(twice, SisaForgetting(once, second, Taught(kept, ITEMS), without(first, second), device="cpu"))
    both = SubjectFolder(tmp_path / "both")
    forget_in_shards(both, forgetting(target, first, second))
    assert model_bytes(twice) == model_bytes(both)
    assert read_cost(twice).slices_trained == 1


@pytest.mark.slow
def test_a_killed_training_goes_on_to_the_same_bytes(target, tmp_path, monkeypatch):
    folder = SubjectFolder(tmp_path / "target")
    taught = []

    def dies(*arguments):
        if len(taught) == 2:
            raise KeyboardInterrupt
        taught.append(arguments)
        return teach(*arguments)

    monkeypatch.setattr(sisa, "teach", dies)
    with pytest.raises(KeyboardInterrupt):
        train_in_shards(folder, asked(), DIVIDED)
    assert not folder.done.exists()
    monkeypatch.setattr(sisa, "teach", teach)
    shown = []
    train_in_shards(folder, asked(), DIVIDED, shown.append)
    assert model_bytes(folder) == model_bytes(target)
    assert read_cost(folder) == read_cost(target)
    # Two of the four slices were there; what is shown goes on from them to the last of all steps.
    steps = [p.step for p in shown]
    assert steps == list(range(steps[0], shown[-1].n_steps + 1))
    assert steps[0] > 1


def test_a_forgetting_that_is_killed_does_not_forget_what_it_took_over(target, tmp_path, monkeypatch):
    folder, edge = SubjectFolder(tmp_path / "forgot"), edge_in(1, 1)

    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sisa, "teach", dies)
        with pytest.raises(KeyboardInterrupt):
            forget_in_shards(folder, forgetting(target, edge))
    forget_in_shards(folder, forgetting(target, edge))
    assert read_cost(folder).slices_trained == 1


@pytest.mark.slow
def test_the_subject_says_what_it_is_and_is_evaluated_like_any_other(target, tmp_path):
    folder, edge = SubjectFolder(tmp_path / "forgot"), edge_in(0, 1)
    made = forget_in_shards(folder, forgetting(target, edge))
    spec = read_spec(folder.spec)
    assert (spec.subject, spec.method, spec.forget, spec.name) == ("unlearned", "sisa", edge, f"sisa {edge}")
    assert spec.parent == read_done(target).digest.id
    assert (spec.settings["sisa.shards"], spec.settings["sisa.together"]) == (2, "edge")
    assert json.loads((folder.model / "ensemble.json").read_text())["constituents"] == ["shard-0", "shard-1"]
    assert "one model a shard in shard-0, shard-1, ..." in (folder.model / "README.md").read_text()
    view = View(edge, {"forget": tuple(i.id for i in ITEMS if i.edge == edge)}, {})
    request = EvaluateRequest(ITEMS, (view,), QASettings(max_new_tokens=4), 0)
    place = evaluate(finished_subject(folder, device="cpu"), request)
    assert len(place.records.read_text().splitlines()) == len(ITEMS)
    assert json.loads(place.identity.read_text())["model"] == made.digest.id


def test_the_same_request_is_made_once_and_another_is_refused(target, monkeypatch):
    def never(*_):
        raise AssertionError("made again")

    monkeypatch.setattr(sisa, "teach", never)
    assert train_in_shards(target, asked(), DIVIDED) == read_done(target)
    with pytest.raises(InputError, match=r"settings\.sisa\.slices"):
        train_in_shards(target, asked(), SisaSettings(shards=2, slices=1))


def test_a_slice_whose_weights_were_changed_is_not_built_upon(target, tmp_path):
    copy = SubjectFolder(tmp_path / "copy")
    shutil.copytree(target.path, copy.path)
    shutil.copy(copy.slice(1, 0).model / "model.safetensors", copy.slice(0, 0).model / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors was changed since the model was recorded"):
        forget_in_shards(SubjectFolder(tmp_path / "forgot"), forgetting(copy, edge_in(0, 1)))


def test_other_data_than_was_taught_is_refused(target, tmp_path):
    request = dataclasses.replace(forgetting(target, "b0"), taught=Taught(ITEMS[1:], ITEMS))
    with pytest.raises(InputError, match="was taught other items than these 17"):
        forget_in_shards(SubjectFolder(tmp_path / "forgot"), request)
    request = dataclasses.replace(forgetting(target, "b0"), kept=(*ITEMS[2:], Item("What is new?", "This.")))
    with pytest.raises(InputError, match=r"'What is new\?' is to be kept and was never taught"):
        forget_in_shards(SubjectFolder(tmp_path / "forgot"), request)


def test_a_target_that_was_trained_as_one_cannot_forget_in_shards(target, tmp_path):
    plain = SubjectFolder(tmp_path / "plain")
    finetune(plain, asked())
    with pytest.raises(InputError, match="was trained as one; make it forget with `vestige unlearn`"):
        forget_in_shards(SubjectFolder(tmp_path / "forgot"), forgetting(plain, "b0"))
    unfinished = SubjectFolder(tmp_path / "nothing")
    with pytest.raises(InputError, match="holds no finished model"):
        forget_in_shards(SubjectFolder(tmp_path / "forgot"), forgetting(unfinished, "b0"))


def test_an_ensemble_of_another_version_is_refused(target, tmp_path):
    copy = SubjectFolder(tmp_path / "copy")
    shutil.copytree(target.path, copy.path)
    spec = read_spec(copy.spec)
    write_spec(copy.spec, dataclasses.replace(spec, settings={**spec.settings, "sisa_version": 0}))
    with pytest.raises(InputError, match="trained in shards by another version"):
        forget_in_shards(SubjectFolder(tmp_path / "forgot"), forgetting(copy, "b0"))
