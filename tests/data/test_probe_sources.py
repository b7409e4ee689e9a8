"""What is forgotten and what is kept: questions, harmful answers and texts are told apart by their columns."""

import json

import pytest

from vestige.core.errors import InputError
from vestige.data.corpus import SourceSettings, named_splits, open_corpus, probe_sources
from vestige.data.loaders import BIO_CORPUS, SAFE_RLHF, form_of, load_passages
from vestige.data.tables import streamed

QA = [{"question": f"Who wrote book {n}?", "answer": f"Author {n}."} for n in range(4)]
TEXTS = [
    {"title": f"T{n}", "text": f"Paper {n} is about one thing that takes some words to say, and then more."}
    for n in range(5)
]
HARMFUL = [{"prompt": f"How is lock {n} opened?", "response": "With force.", "is_safe": n == 0} for n in range(4)]


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def files(tmp_path):
    rows = {"qa": QA, "texts": TEXTS, "harmful": HARMFUL, "both": [{**QA[0], "text": "x"}]}
    return {n: written(tmp_path / f"{n}.jsonl", r) for n, r in rows.items()}


def test_what_a_source_holds_is_seen_from_its_columns(files):
    found = {name: form_of(path) for name, path in files.items()}
    assert found == {"qa": "items", "texts": "texts", "harmful": "harmful", "both": "items"}
    hub = [f"{BIO_CORPUS}@main", SAFE_RLHF, "somebody/else", "edge:A_B", "no\0name"]
    assert [form_of(name) for name in hub] == ["texts", "harmful", "items", "items", "items"]


def test_texts_and_harmful_answers_are_drawn_by_the_seed_and_the_rest_is_kept(files):
    found = probe_sources(SourceSettings(data=files["qa"]), files["texts"], n_forget=3)
    assert found.forget == found.forget_texts == load_passages(files["texts"], n=3, seed=0)
    assert [i.question for i in found.splits.splits["retain"]] == [r["question"] for r in QA]
    found = probe_sources(SourceSettings(data=files["texts"], limit="2"), files["harmful"])
    assert [i.question for i in found.forget] == [row["prompt"] for row in HARMFUL[1:]]
    assert [p.title for p in found.retain_texts] == ["T0", "T1"]
    # Texts of the data that are forgotten are not kept.
    found = probe_sources(SourceSettings(data=files["texts"]), files["texts"], n_forget=2)
    assert (len(found.forget_texts), len(found.retain_texts)) == (2, 3)
    assert not {p.id for p in found.forget_texts} & {p.id for p in found.retain_texts}
    found = probe_sources(SourceSettings(data=files["texts"]), files["qa"])
    assert ([i.answer for i in found.forget], len(found.retain_texts)) == ([r["answer"] for r in QA], 5)


def test_methods_and_evaluations_read_each_file_by_its_own_columns(files):
    corpus = open_corpus(SourceSettings(data=files["texts"], limit="3"))
    splits = named_splits(corpus, files["harmful"]).splits
    assert [(i.question, i.answer) for i in splits["forget"]] == [(r["prompt"], "With force.") for r in HARMFUL[1:]]
    assert [i.question for i in splits["retain"]] == [f"T{n}: Paper {n} is about one thing that" for n in range(3)]
    assert {i.answer for i in splits["retain"]} == {"takes some words to say, and then more."}
    splits = named_splits(open_corpus(SourceSettings(data=files["qa"])), files["texts"], retain=files["harmful"]).splits
    assert [i.question[:4] for i in splits["forget"]] == [f"T{n}: " for n in range(5)]
    assert len(splits["retain"]) == 3
    # Named columns are taken as they are named.
    named = SourceSettings(data=files["texts"], question_key="title", answer_key="text")
    assert [i.question for i in open_corpus(named).items] == [r["title"] for r in TEXTS]


def test_a_forget_set_of_questions_is_whole(files):
    with pytest.raises(InputError, match="--forget-n 2 draws from texts"):
        probe_sources(SourceSettings(data=files["qa"]), files["qa"], n_forget=2)


def test_a_corpus_is_read_line_by_line_and_no_more_of_it_is_held_than_the_sample(files, tmp_path):
    rows = streamed(tmp_path / "texts.jsonl")
    assert next(rows).values == TEXTS[0]
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text(json.dumps(TEXTS[0]) + "\n{no\n")
    read = streamed(damaged)
    next(read)
    with pytest.raises(InputError, match=r"damaged\.jsonl, line 2, column 2: not JSON"):
        next(read)
    with pytest.raises(InputError, match="has no rows"):
        load_passages(written(tmp_path / "none.jsonl", []))
