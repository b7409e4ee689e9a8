"""What was written in any form is read as it was."""

import csv
import io
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.data.loaders import load_items

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


@settings(max_examples=15, deadline=None)
@given(pairs=PAIRS)
def test_what_was_written_is_read(pairs):
    rows = [{"question": q, "answer": a} for q, a in pairs]
    assert load(".jsonl", as_lines(rows)) == pairs
    assert load(".json", json.dumps({"data": rows}, ensure_ascii=False).encode()) == pairs
    assert load(".json", as_lines(rows)) == pairs
    assert load(".csv", as_cells(pairs, ",")) == pairs
    assert load(".tsv", as_cells(pairs, "\t")) == pairs
    assert load(".parquet", as_parquet(rows)) == pairs
