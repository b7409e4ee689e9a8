"""Data files and graphs that are damaged: used, or refused in one sentence with the file's name."""

import contextlib
import csv
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.damaging import damage, survive

from vestige.core.errors import InputError
from vestige.data.corpus import SourceSettings, named_splits, open_corpus
from vestige.data.dataset import compile_to_folder, write_dataset
from vestige.data.graph import read_graph
from vestige.probes.adjacent import neighbour_questions

PAIRS = [{"question": f"Who is {n}?", "answer": f'Number {n}, "so".', "edge": f"A_B{n}"} for n in range(4)]
TALK = [
    {"messages": [{"role": "user", "content": p["question"]}, {"role": "assistant", "content": p["answer"]}]}
    for p in PAIRS
]
CHOICES = [{"question": p["question"], "choices": ["a", "b", "c"], "answer": n % 3} for n, p in enumerate(PAIRS)]
TARGETS = [
    {
        "question": p["question"],
        "mc1_targets": {"choices": ["a", "b"], "labels": [1, 0]},
        "mc2_targets": {"choices": ["a", "b", "c"], "labels": [1, 0, 1]},
    }
    for p in PAIRS
]


def written(path: Path, rows: object) -> Path:
    """A folder with one file of that name that holds the rows."""
    path.parent.mkdir()
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            table.writeheader()
            table.writerows(rows)
    else:
        path.write_text("".join(json.dumps(r) + "\n" for r in rows) if path.suffix == ".jsonl" else json.dumps(rows))
    return path.parent


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled") / "data"
    compile_to_folder("star:3", folder)
    return folder


def only(folder: Path) -> Path:
    """The one file of a folder."""
    return next(folder.iterdir(), folder / "gone.csv")


def named(path: Path, read: Callable[[Path], Any]) -> Any:
    """What `read` makes of a file. A refusal names the file."""
    try:
        return read(path)
    except InputError as error:
        if path.name not in str(error):
            raise AssertionError(f"no file's name: {error}") from error
        raise


@pytest.mark.slow
def test_data_files(tmp_path):
    forms = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
    whole = [written(tmp_path / f"pairs{form}" / f"x{form}", PAIRS) for form in forms]
    for name, rows in {"talk": TALK, "choices": CHOICES, "targets": TARGETS}.items():
        whole += [written(tmp_path / f"{name}{form}" / f"x{form}", rows) for form in (".jsonl", ".parquet")]

    def used(folder: Path) -> None:
        corpus = named(only(folder), lambda path: open_corpus(SourceSettings(data=str(path))))
        assert corpus.items
        for text in (text for item in corpus.items for text in (item.question, item.answer)):
            assert text.strip()
            assert "\0" not in text
            assert text.encode()

    survive("data files", whole, tmp_path, used)


def sealed(rng: random.Random, folder: Path) -> str:
    """Damage in files and manifest; of most folders the manifest gives the digests of the files as they are then."""
    what = damage(rng, folder)
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        if rng.random() < 0.8:
            for name, facts in manifest["files"].items():
                facts["sha256"] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
            (folder / "manifest.json").write_text(json.dumps(manifest))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass  # No manifest any more, or none of Vestige's.
    return what


@pytest.mark.slow
def test_compiled_folders(compiled, tmp_path):
    contracts = tmp_path / "contracts"
    compile_to_folder("chain:3", contracts)

    def used(folder: Path) -> None:
        corpus = open_corpus(SourceSettings(data=str(folder)))
        data = corpus.dataset
        for selector in (f"edge:{next(iter(data.graph.edges))}", "random:1", f"type:{data.graph.types[0]}"):
            with contextlib.suppress(InputError):
                splits = named_splits(corpus, selector)
                forget = list(dict.fromkeys(i.edge for i in splits.splits["forget"]))
                neighbour_questions(data, forget, k=4, seed=0)
        write_dataset(data, folder / "again")

    survive("compiled folders", [compiled, contracts], tmp_path, used, sealed)


def test_graph_files(tmp_path):
    graph = nx.MultiGraph()
    for n in range(5):
        graph.add_edge(f"A{n}", f"B{n}", type="sales", id=f"deal {n}")
    rows = [{"source": a, "target": b, "type": "sales"} for a, b in graph.edges()]
    whole = [written(tmp_path / f"graph{form}" / f"g{form}", rows) for form in (".csv", ".tsv")]

    def used(folder: Path) -> None:
        graph = named(only(folder), read_graph)
        assert len(graph.edges) >= 1
        assert len(list(graph.edges)) == len(graph.edges)

    survive("graph files", whole, tmp_path, used)
