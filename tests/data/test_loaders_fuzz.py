"""Whatever the bytes: items that can be used, or an InputError, and nothing else."""

import csv
import io
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.core.errors import InputError
from vestige.data.loaders import load_items
from vestige.data.tables import FORMS

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["question", "answer", "edge", "messages", "role", "content", "data", "x"]), inner
        )
    ),
    max_leaves=12,
)
# What a file can hold and a reader must give back: any character but NUL and halves of surrogate pairs.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).filter(str.strip)
WORD = st.characters(categories=["L", "N"])
PAIRS = st.lists(
    st.tuples(TEXT, st.builds(str.__add__, TEXT, WORD)), min_size=1, max_size=5, unique_by=lambda pair: pair[0]
)


def load(suffix: str, content: bytes) -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        path.write_bytes(content)
        return [(item.question, item.answer) for item in load_items(path)]


def survives(suffix: str, content: bytes) -> None:
    try:
        pairs, said = load(suffix, content), ""
    except InputError as error:
        pairs, said = [], str(error)
    assert bool(pairs) != bool(said)
    assert f"x{suffix}" in said or not said
    assert "\n" not in said
    for pair in pairs:
        for text in pair:
            assert text.strip()
            assert "\0" not in text
            text.encode()


def as_lines(rows: list) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_parquet(rows: list) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def as_cells(pairs: list[tuple[str, str]], delimiter: str) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, delimiter=delimiter).writerows([("question", "answer"), *pairs])
    return buffer.getvalue().encode()


@pytest.mark.parametrize("suffix", FORMS)
@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=200))
def test_any_bytes(suffix, content):
    survives(suffix, content)


@pytest.mark.parametrize("suffix", [s for s in FORMS if s != ".parquet"])
@settings(max_examples=60, deadline=None)
@given(
    content=st.text(st.sampled_from('question,answer\t\n\r"{}[]:\\\x00\ufeffédata1'), max_size=60).map(str.encode),
    start=st.sampled_from([b"", b"question,answer\n", b"question\tanswer\n", b'{"question": "q", "answer": "a"}\n']),
)
def test_almost_a_file(suffix, content, start):
    survives(suffix, start + content)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
@settings(max_examples=150, deadline=None)
@given(value=ANY_JSON)
def test_any_json(suffix, value):
    survives(suffix, json.dumps(value).encode())


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_parquet_file(data):
    whole = bytearray(as_parquet([{"question": "Who?", "answer": "Me.", "messages": [{"role": "user"}]}] * 3))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    survives(".parquet", bytes(whole[: data.draw(st.integers(len(whole) // 2, len(whole)))]))


@settings(max_examples=60, deadline=None)
@given(pairs=PAIRS)
def test_what_was_written_is_read(pairs):
    rows = [{"question": q, "answer": a} for q, a in pairs]
    assert load(".jsonl", as_lines(rows)) == pairs
    assert load(".json", json.dumps({"data": rows}, ensure_ascii=False).encode()) == pairs
    assert load(".json", as_lines(rows)) == pairs
    assert load(".csv", as_cells(pairs, ",")) == pairs
    assert load(".tsv", as_cells(pairs, "\t")) == pairs
    assert load(".parquet", as_parquet(rows)) == pairs
