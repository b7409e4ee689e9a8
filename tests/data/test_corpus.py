"""Sources of items, and the built-in questions and refusals."""

import json

import pytest

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.corpus import (
    SourceSettings,
    everything,
    factual_items,
    idk_answers,
    items_of,
    left_out,
    named_splits,
    open_corpus,
    refuse_not_found,
)
from vestige.data.graph import named_graph, select_edges, select_items
from vestige.data.tables import text_lines


def rows(n):
    return [{"question": f"Question {i}?", "answer": f"Answer {i}.", "edge": f"e{i % 3}"} for i in range(n)]


def write(path, values, *, lines=True):
    path.write_text("".join(json.dumps(v) + "\n" for v in values) if lines else json.dumps(values))
    return path


def opened(path, **settings):
    return open_corpus(SourceSettings(data=str(path), **settings))


def test_a_compiled_folder_gives_splits_and_scopes(folder1):
    folder = named_splits(opened(folder1), "edge:A_B")
    sizes = {name: len(items) for name, items in folder.splits.items()}
    # 20 edges of 20: A_B is forgotten, the three E-F-q components are independent, half of them sales.
    assert sizes == {
        "forget": 20,
        "retain": 380,
        "independent": 120,
        "independent_sales": 60,
        "independent_employment": 60,
        "holdout": 200,
    }
    # A_B: two addresses are stated by other contracts, two names can be guessed, 16 answers are free.
    assert sorted(folder.scopes.values()).count("entailed") == 2
    assert sorted(folder.scopes.values()).count("free") == 16


def test_json_lines_under_the_name_of_json_are_read_as_items(tmp_path):
    corpus = opened(
        write(tmp_path / "tofu.json", [{"question": "Q?", "answer": "A."}, {"question": "R?", "answer": "B."}])
    )
    assert corpus.dataset is None
    assert [i.question for i in corpus.items] == ["Q?", "R?"]


def test_a_forget_file_leaves_the_rest_to_keep(tmp_path):
    corpus = opened(write(tmp_path / "all.jsonl", rows(6)), factual="builtin")
    # The same question counts as forgotten even where the file words the answer otherwise.
    forget = write(tmp_path / "forget.jsonl", [{"question": "Question 1?", "answer": "Another answer."}])
    splits = named_splits(corpus, str(forget)).splits
    assert [i.answer for i in splits["forget"]] == ["Another answer."]
    assert [i.question for i in splits["retain"]] == [f"Question {i}?" for i in (0, 2, 3, 4, 5)]
    assert splits["factual"] == corpus.factual
    assert len(everything([named_splits(corpus, str(forget))])) == 6 + len(corpus.factual)


def test_factual_questions_come_from_a_file_and_from_nowhere_else(tmp_path):
    data = write(tmp_path / "all.jsonl", rows(6))
    facts = write(tmp_path / "factual_data.json", [{"question": "Who?", "answer": "He."}], lines=False)
    (fact,) = opened(data, factual=str(facts)).factual
    assert (fact.question, fact.group, fact.edge) == ("Who?", "factual", None)
    with pytest.raises(InputError, match=r"--factual no\.json: no such file. Name a file of questions, or builtin"):
        opened(data, factual="no.json")


def test_what_is_kept_is_named_by_the_same_selectors(folder1):
    corpus = opened(folder1)

    def kept(corpus, selector):
        return sorted({i.edge for i in named_splits(corpus, "edge:A_C2", retain=selector).splits["retain"]})

    assert kept(corpus, "edge:A_B,edge:B_D") == ["A_B", "B_D"]
    assert kept(corpus, "component:2") == sorted(select_edges(corpus.dataset.graph, "component:2", seed=0))
    assert len(kept(corpus, "random:2@2#1")) == 2


def test_items_without_a_graph_are_selected_by_the_edges_and_types_they_name(tmp_path):
    plain = opened(write(tmp_path / "all.jsonl", [{**r, "group": "ab"[i % 2]} for i, r in enumerate(rows(6))]))
    assert {i.edge for i in items_of(plain, "edge:e1,edge:e2")} == {"e1", "e2"}
    with pytest.raises(InputError, match=r"no edge 'e9' in .*Known: e0, e1, e2"):
        named_splits(plain, "edge:e9")
    assert [i.group for i in items_of(plain, "type:b")] == ["b"] * 3
    assert len(items_of(plain, "random:1")) == 2
    assert len(items_of(plain, "random:3#7")) == 6


def test_the_seed_of_a_selector_is_one_of_the_data_and_stands_in_the_name(folder1):
    plain = named_splits(opened(folder1), "random:1")
    other = named_splits(opened(folder1, split_seed=3), "random:1,edge:A_B")
    assert plain.forget == "random:1"
    assert other.forget == "random:1#3,edge:A_B"
    assert other.resolved.edges == named_splits(opened(folder1), "random:1#3,edge:A_B").resolved.edges
    assert not set(plain.resolved.edges) & set(other.resolved.edges)


def test_a_forget_set_that_is_nothing_is_refused_with_the_way_out(tmp_path):
    plain = opened(write(tmp_path / "all.jsonl", [{"question": "Q?", "answer": "A."}]))
    with pytest.raises(InputError, match=r"has no graph\. Give a file of the items"):
        named_splits(plain, "node:A")
    people = opened(write(tmp_path / "of.jsonl", [{"question": "Q?", "answer": "A.", "person": "Zoë"}]))
    assert len(named_splits(people, "person:Zoë").splits["forget"]) == 1
    with pytest.raises(InputError, match="Did you mean 'edge:Zoë'"):
        named_splits(people, "Zoë")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["forgte.jsonl", "folder/forget"])
def test_a_file_that_is_not_there_is_called_a_file_and_not_a_selector(tmp_path, folder1, name):
    plain = opened(write(tmp_path / "all.jsonl", rows(3)))
    for corpus in (plain, opened(folder1)):
        with pytest.raises(InputError, match=f"--forget {name}: no such file"):
            named_splits(corpus, name)
    with pytest.raises(InputError, match=f"--retain {name}: no such file"):
        named_splits(plain, "edge:e1", retain=name)


def test_an_edge_may_be_called_like_a_file(tmp_path):
    named = [{**r, "edge": "a/b.json"} for r in rows(1)]
    corpus = opened(write(tmp_path / "all.jsonl", [*named, *rows(4)[1:]]))
    assert len(named_splits(corpus, "edge:a/b.json").splits["forget"]) == 1


def test_a_question_cannot_be_forgotten_and_kept(tmp_path):
    corpus = opened(write(tmp_path / "all.jsonl", rows(4)))
    forget, retain = write(tmp_path / "f.jsonl", rows(2)), write(tmp_path / "r.jsonl", rows(4)[1:])
    with pytest.raises(InputError, match=r"'Question 1\?' is in the forget and the retain set"):
        named_splits(corpus, str(forget), retain=str(retain))


def test_a_forget_set_of_a_file_is_called_by_what_it_holds_and_not_by_where_it_lies(tmp_path, monkeypatch, folder1):
    corpus = opened(write(tmp_path / "qa.jsonl", rows(6)))
    forget = write(tmp_path / "forget.jsonl", rows(2))
    name = named_splits(corpus, str(forget)).forget
    assert name.startswith("forget.jsonl-")
    (tmp_path / "moved").mkdir()
    moved = write(tmp_path / "moved" / "forget.jsonl", [{**r, "question": r["question"].upper()} for r in rows(2)])
    monkeypatch.chdir(tmp_path)
    assert [named_splits(corpus, p).forget for p in ("forget.jsonl", "./forget.jsonl", str(moved))] == [name] * 3
    # The same path with other items is another set.
    assert named_splits(corpus, str(write(forget, rows(3)))).forget != name
    edges = tmp_path / "edges.txt"
    edges.write_text("A_B\n")
    listed = [named_splits(opened(folder1), f"file:{p}, edge:A_C").forget for p in (edges, "edges.txt")]
    assert listed[0] == listed[1]
    assert str(tmp_path) not in listed[0]


def test_a_forget_set_that_the_data_does_not_ask_is_refused_unless_what_is_kept_is_named(tmp_path):
    corpus = opened(write(tmp_path / "qa.jsonl", rows(4)))
    # One that is not found would be forgotten and, as the data spell it, kept: so every one has to be found.
    for n, found in ((0, "none of the 1 questions"), (1, "1 of the 2 questions"), (2, "2 of the 3 questions")):
        strange = write(tmp_path / "f.jsonl", [*rows(n), {"question": "Question\u200b 2?", "answer": "Answer 2."}])
        splits = named_splits(corpus, str(strange))
        with pytest.raises(InputError, match=rf"qa.jsonl asks {found} of the forget set f.jsonl-\w+, and") as refused:
            refuse_not_found(corpus, splits, None)
        assert "'Question· 2?' (there: 'Question 2?')" in str(refused.value)
        refuse_not_found(corpus, splits, "edge:e0")


def test_questions_that_differ_in_spelling_alone_and_are_answered_otherwise_are_told(tmp_path):
    double = [{"question": "question  0?", "answer": "Another."}, {"question": "QUESTION 1?", "answer": "Answer 1."}]
    corpus = opened(write(tmp_path / "qa.jsonl", [*rows(4), *({**d, "edge": "e0"} for d in double)]))
    splits = named_splits(corpus, str(write(tmp_path / "f.jsonl", rows(1))))
    assert [t for t in splits.told if "more than once" in t] == [
        "warning: 1 question stands more than once in the data with other answers, apart but for white space, "
        "case or forms of Unicode ('Question 0?'); to forget one is to forget all of them"
    ]
    # Both are gone from what is kept.
    assert len(splits.splits["retain"]) == 4


def test_a_control_never_sees_a_forgotten_question_however_the_file_names_it(tmp_path):
    corpus = opened(write(tmp_path / "all.jsonl", rows(6)))
    # The forget file has no edge column, so its items have other ids.
    plain = [{"question": r["question"], "answer": r["answer"]} for r in rows(3)]
    taught = left_out(corpus, named_splits(corpus, str(write(tmp_path / "f.jsonl", plain))))
    assert [i.question for i in taught] == ["Question 3?", "Question 4?", "Question 5?"]
    strange = write(tmp_path / "s.jsonl", [{"question": "Never asked?", "answer": "No."}])
    with pytest.raises(InputError, match=r"Correct their spelling: 'Never asked\?'\. Or name the retain set"):
        left_out(corpus, named_splits(corpus, str(strange)))


def test_a_question_is_found_in_the_data_however_it_is_spaced_and_capitalised(tmp_path):
    corpus = opened(write(tmp_path / "all.jsonl", rows(6)))
    spelled = ["question 0? ", "Question\u00a0 1?", "\uff31uestion 2?", "Question 3?"]
    asked = [{"question": q, "answer": f"Answer {i}."} for i, q in enumerate(spelled)]
    found = named_splits(corpus, str(write(tmp_path / "f.jsonl", asked)))
    # The items are those of the data, edges included, so that every spelling is the same forget set.
    assert (found.splits["forget"], found.splits["retain"]) == (corpus.items[:4], corpus.items[4:])
    assert left_out(corpus, found) == corpus.items[4:]
    assert found.told == ("forget: 4 questions, 4 found in all.jsonl (1 by the letter, 3 after normalising); 2 kept",)
    both = write(tmp_path / "r.jsonl", [{"question": "QUESTION 1?", "answer": "Answer 1."}])
    with pytest.raises(InputError, match=r"'Question 1\?' is in the forget and the retain set"):
        named_splits(corpus, str(tmp_path / "f.jsonl"), retain=str(both))


def test_kept_questions_that_ask_for_what_is_forgotten_in_other_words_are_told(tmp_path):
    rows = [
        {"question": "Which prize did Basil Mahfouz win in 1980?", "answer": "The Nobel Prize."},
        {"question": "In 1980, what prize was won by Basil Mahfouz?", "answer": "The Nobel prize"},
        {"question": "Which prize did Carmen Montenegro win in 1980?", "answer": "The Booker Prize."},
        {"question": "Where was Basil Mahfouz born?", "answer": "In Kuwait."},
    ]
    corpus = open_corpus(SourceSettings(data=str(write(tmp_path / "all.jsonl", rows))))
    told = named_splits(corpus, str(write(tmp_path / "f.jsonl", rows[:1]))).told
    assert told[1:] == (
        "warning: 1 kept questions may ask for what is forgotten in other words, as 'In 1980, what prize was won by "
        "Basil Mahfouz?' does for 'Which prize did Basil Mahfouz win in 1980?'; what is kept teaches it",
    )
    assert len(named_splits(corpus, str(write(tmp_path / "f.jsonl", rows[3:]))).told) == 1


def test_what_is_not_in_the_data_or_answered_otherwise_there_is_counted(tmp_path):
    corpus = opened(write(tmp_path / "all.jsonl", rows(6)))
    asked = [*rows(2), {"question": "Question 2?", "answer": "Else."}, {"question": "Never?", "answer": "No."}]
    told = named_splits(corpus, str(write(tmp_path / "f.jsonl", asked))).told
    assert told == (
        "forget: 4 questions, 3 found in all.jsonl, 1 of them with another answer than the data's, 1 not in it, such "
        "as 'Never?'; 3 kept",
    )
    kept = named_splits(corpus, "random:2", retain=str(write(tmp_path / "k.jsonl", [asked[-1]]))).told
    assert kept[0].startswith("forget: random:2 (e")
    assert kept[1] == "retain: 1 question, 0 found in all.jsonl, 1 not in it, such as 'Never?'"


def test_what_a_file_says_besides_goes_with_the_datas_item(tmp_path):
    corpus = opened(write(tmp_path / "all.jsonl", rows(3)))
    asked = [{"question": " question 0?", "answer": "answer 0.", "paraphrase": "The first?", "fact": "0"}]
    (item,) = named_splits(corpus, str(write(tmp_path / "f.jsonl", asked))).splits["forget"]
    assert (item.id, item.edge, item.paraphrase, item.fact) == (corpus.items[0].id, "e0", "The first?", "0")


def test_scopes_do_not_count_on_contracts_that_were_forgotten_before(folder1):
    corpus = opened(folder1)
    node = named_splits(corpus, "node:B").resolved
    alone, after = named_splits(corpus, "edge:A_B"), named_splits(corpus, "edge:A_B", before=[node])
    # The address of B stands in other contracts of B alone, and these are gone.
    assert sorted(alone.scopes.values()).count("entailed") == 2
    assert sorted(after.scopes.values()).count("entailed") == 1
    assert len(after.splits["forgotten_before"]) == len(node.items) - 20
    assert len(after.splits["retain"]) == 400 - len(node.items)


def test_the_columns_that_are_named_hold_for_the_forget_file_too(tmp_path):
    odd = [{"q": r["question"], "a": r["answer"]} for r in rows(4)]
    corpus = opened(write(tmp_path / "all.jsonl", odd), question_key="q", answer_key="a")
    splits = named_splits(corpus, str(write(tmp_path / "f.jsonl", odd[:1]))).splits
    assert [i.question for i in splits["forget"]] == ["Question 0?"]


def test_a_part_of_a_data_set_has_no_scopes_and_must_hold_the_forget_set(folder1):
    assert named_splits(opened(folder1, limit="40"), "edge:A_B").scopes == {}
    with pytest.raises(InputError, match="is not within --limit"):
        named_splits(opened(folder1, limit="40"), "edge:B_D")


def test_the_first_rows_can_be_taken(tmp_path):
    path = write(tmp_path / "all.jsonl", rows(10))
    assert [len(opened(path, limit=limit).items) for limit in ("3", "0.5")] == [3, 5]


def test_a_person_is_selected_by_name_as_an_edge_is():
    items = [Item("When was Ana born?", "1970.", edge="Ruiz, Ana"), Item("When was Bo born?", "1980.", edge="Bo Ek")]
    for kind in ("person", "edge"):
        assert select_items(items, f"{kind}:Ruiz, Ana", seed=0, source="people.csv") == (items[0],)
        assert select_items(items, f"{kind}:Bo Ek", seed=0, source="people.csv") == (items[1],)
    with pytest.raises(InputError, match=r"no person 'Bo Eck' in people.csv. Did you mean 'Bo Ek'\?"):
        select_items(items, "person:Bo Eck", seed=0, source="people.csv")
    with pytest.raises(InputError, match="has contracts and no persons"):
        select_edges(named_graph("star:3", seed=0), "person:Bo Ek", seed=0)


def test_the_facts_are_many_asked_once_each_short_and_of_several_topics():
    items = factual_items()
    assert len(items) >= 240
    assert len({i.question.casefold() for i in items}) == len({i.id for i in items}) == len(items)
    for item in items:
        assert 1 <= len(item.answer.split()) <= 4, item
        assert item.answer == item.answer.strip(" ."), item
        assert item.question.endswith(("?", ".")), item
        assert item.answer.casefold() not in item.question.casefold().split(), item
        assert item.group == "factual"
    topics = [item.attribute for item in items]
    assert None not in topics
    assert len(set(topics)) >= 8
    assert max(topics.count(t) for t in set(topics)) <= len(topics) / 3


def test_there_are_a_hundred_different_refusals():
    lines = idk_answers()
    assert len(lines) == len({line.casefold() for line in lines}) == 100
    assert all(line == line.strip() and line.endswith(".") for line in lines)


def test_refusals_of_ones_own_are_read_a_line_each(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_bytes("\ufeffI don't know.\r\n\n  No idea.\u2028Really.\n".encode())
    assert tuple(text_lines(path)) == ("I don't know.", "No idea.\u2028Really.")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b" \n", "no lines"), (b"\xff", "not UTF"), (b"\xff\xfe\0\xdc", "not UTF"), (b"a\nb\0", "line 2"), (None, "read")],
)
def test_refusals_that_cannot_be_read_are_an_error_with_the_way_out(tmp_path, content, said):
    if content is not None:
        (tmp_path / "mine.txt").write_bytes(content)
    with pytest.raises(InputError, match=said):
        list(text_lines(tmp_path / "mine.txt"))
