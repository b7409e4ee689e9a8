"""Benchmark packs: files with the published columns and made-up rows, read by name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vestige.core.errors import InputError
from vestige.core.items import Item, Options
from vestige.data import loaders
from vestige.data.corpus import SourceSettings, named_splits, open_corpus
from vestige.data.loaders import packs, published_of

WMDP = {"question": "Which colour?", "choices": ["red", "green", "blue", "grey"], "answer": 2}
RWKU = {"query": "___ wrote it.", "answer": "A. Nobody", "level": "1", "type": "cloze", "subject": "A. Nobody"}
TOFU = {"question": "Who wrote it?", "answer": "A. Nobody wrote it."}
TOLD = {"paraphrased_question": "By whom?", "paraphrased_answer": "It is hers.", "perturbed_answer": ["His."]}
FACT = {"question": "Who was it?", "option1": "She", "option2": "He", "answer": "She"}
HERS = Item(**TOFU, paraphrased_answer="It is hers.")
LUME = {"id": "1sc1", "input": "A. Nobody was born in", "output": "Nowhere.", "task": "Task2"}
FILES = {
    "tofu/full.json": [TOFU, {**TOFU, "answer": "Somebody else."}, {"question": "When?", "answer": "Never."}],
    "tofu/forget01_perturbed.json": [{**TOFU, **TOLD}],
    **{f"tofu/{name}_perturbed.json": [{**FACT, "question": name}] for name in ("real_authors", "world_facts")},
    **{f"muse/scal/forget_{n}.jsonl": [{"text": f"{n} is news."}] for n in (1, 4)},
    "muse/raw/retain1.jsonl": [{"text": "old news"}],
    "muse/verbmem/forget.jsonl": [{"prompt": "Once upon", "gt": "a time"}],
    **{f"wmdp/wmdp-{name}/test.jsonl": [{**WMDP, "question": name}] for name in ("bio", "chem", "cyber")},
    "rwku/All/forget_level1.json": [RWKU, RWKU, {**RWKU, "query": "Another of ___?", "subject": "B. Nobody"}],
    "rwku/All/forget_level2.json": [{**RWKU, "query": "Who?", "level": "2", "type": "simple question"}],
    **{f"rwku/All/neighbor_level{n}.json": [{**RWKU, "query": f"{n}?", "neighbor": "C"}] for n in (1, 2)},
    "lume/data/forget.jsonl": [LUME],
    "lume/data/retain.jsonl": [{**LUME, "input": "B. Nobody was born in", "task": "Task3"}],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, rows in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    # LUME's rows are made up here, and their digests are not the published ones.
    lume = packs()["lume"]
    own = {name: split.model_copy(update={"sha256": ""}) for name, split in lume.splits.items()}
    monkeypatch.setitem(packs(), "lume", lume.model_copy(update={"splits": own}))
    return tmp_path


@pytest.mark.parametrize(
    ("pack", "forget", "n_forgotten", "n_kept", "first"),
    [
        ("tofu", "forget01", 1, 1, replace(HERS, paraphrase="By whom?", perturbed=("His.",))),
        ("muse", "forget_1", 1, 2, Item("1 is ", "news.")),
        ("wmdp", "bio", 1, 2, Item("bio", "blue", options=Options(tuple(WMDP["choices"]), 2))),
        ("rwku", "forget_level1", 2, 2, Item("___ wrote it.", "A. Nobody", edge="A. Nobody", group="cloze")),
        ("rwku", "forget_level1, forget_level2", 3, 2,
         Item("___ wrote it.", "A. Nobody", edge="A. Nobody", group="cloze")),
        ("rwku", "edge:A. Nobody", 2, 3, Item("___ wrote it.", "A. Nobody", edge="A. Nobody", group="cloze")),
        ("lume", "forget", 1, 1, Item("A. Nobody was born in", "Nowhere.", group="Task2")),
    ],
)  # fmt: skip
def test_a_pack_is_read_by_its_recipe_and_its_splits_are_named_like_files(
    folder, pack, forget, n_forgotten, n_kept, first
):
    corpus = open_corpus(SourceSettings(data=f"pack:{pack}:{folder / pack}"))
    splits = named_splits(corpus, forget).splits
    assert splits["forget"][0] == first
    assert (len(splits["forget"]), len(splits["retain"])) == (n_forgotten, n_kept)
    assert [i.group for i in splits.get("factual", ())] == (["factual"] * 2 if pack == "tofu" else [])


def test_more_questions_about_what_is_forgotten_are_not_kept_unless_they_are_named(folder):
    corpus = open_corpus(SourceSettings(data=f"pack:rwku:{folder / 'rwku'}"))
    found = named_splits(corpus, "forget_level1")
    assert not {i.edge for i in found.splits["retain"]} & {"A. Nobody", "B. Nobody"}
    told = " ".join(found.told)
    assert "forget: 2 questions, 2 found in rwku" in told
    assert "not kept: 1 more question about what is to be forgotten" in told
    named = named_splits(corpus, "forget_level1", retain="forget_level2").splits["retain"]
    assert [i.edge for i in named] == ["A. Nobody"]


def test_on_the_hub_the_revision_and_the_configuration_are_those_of_the_recipe(monkeypatch):
    asked = []

    def table(source, *, split, config):
        asked.append((source, config, split))
        return loaders.SourceTable(source, ("text",), (loaders.TableRow("row 1", {"text": f"{config} {split}"}),))

    monkeypatch.setattr(loaders, "hub_table", table)
    found = open_corpus(SourceSettings(data="pack:muse"))
    pinned = "muse-bench/MUSE-News@928543ace3784ccce8cec389f6e4e771308188b2"
    assert asked == [(pinned, "scal", "forget_4"), (pinned, "raw", "retain1")]
    assert [i.question + i.answer for i in found.items] == ["scal forget_4", "raw retain1"]


@pytest.mark.parametrize(
    ("source", "more", "said"),
    [
        ("pack:tofo", {}, "no pack 'tofo'. Did you mean 'tofu'"),
        ("pack:lume", {}, "not on the hub. Fetch .*lume-llm-unlearning at b2fa8f9c"),
        ("pack:tofu:nowhere", {}, "nowhere/full: 0 files have this name"),
        ("pack:tofu", {"question_key": "q"}, "sets its own question_key"),
    ],
)
def test_what_a_pack_cannot_read_is_refused(source, more, said):
    with pytest.raises(InputError, match=said):
        open_corpus(SourceSettings(data=source, **more))


def test_another_file_than_the_published_one_is_refused(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "forget.jsonl").write_text(json.dumps(LUME))
    with pytest.raises(InputError, match=r"is not the published file .*SHA-256 is 3a74f302"):
        open_corpus(SourceSettings(data=f"pack:lume:{tmp_path}"))


def test_recipes_are_sound_and_figures_are_looked_up_by_the_models_name():
    from vestige.evals import find_eval

    for pack in packs().values():
        assert {*pack.data, *pack.factual} <= pack.splits.keys()
        for figure in (figure for row in pack.published for figure in row.figures):
            assert figure.split in pack.splits
            find_eval(figure.eval).build(figure.settings, where="")
    zephyr = "HuggingFaceH4/zephyr-7b-beta"
    assert published_of("pack:wmdp", zephyr)[1].model == zephyr
    assert published_of("pack:wmdp", "a/copy", zephyr)[1].model == zephyr
    assert (
        published_of("pack:wmdp", zephyr, "none") is published_of("pack:wmdp", "a/b") is published_of("x", "a") is None
    )
    for source, named, said in (
        ("pack:wmdp", "zephyr", "no figures of 'zephyr'"),
        ("x.jsonl", "a", "goes with a pack"),
    ):
        with pytest.raises(InputError, match=said):
            published_of(source, "a/b", named)
