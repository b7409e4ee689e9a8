import pytest

from vestige.core.errors import InputError
from vestige.data.corpus import factual_items, idk_answers, read_idk


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
    assert len(lines) == 100
    assert len({line.casefold() for line in lines}) == 100
    assert all(line == line.strip() and line.endswith(".") for line in lines)


def test_refusals_of_ones_own_are_read_a_line_each(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_bytes("\ufeffI don't know.\r\n\n  No idea.\u2028Really.\n".encode())
    assert read_idk(path) == ("I don't know.", "No idea.\u2028Really.")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b" \n", "mine.txt: holds no line"), (b"\xff", "not UTF-8"), (b"a\nb\0", "line 2: holds a NUL"), (None, "read")],
)
def test_refusals_that_cannot_be_read_are_an_error_with_the_way_out(tmp_path, content, said):
    if content is not None:
        (tmp_path / "mine.txt").write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_idk(tmp_path / "mine.txt")
