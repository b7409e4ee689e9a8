"""What a command works on: items, and the graph they come from where there is one.

A source is a compiled folder, a file in PISTOL's published form, or items of one's own. A forget or retain set is named
by a selector over the graph (`edge:A_B`) or over items that carry edges, or by a file of items. A question is the same
question however it is spaced and capitalised (`normalised`).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vestige.core.errors import InputError
from vestige.core.files import read_json
from vestige.core.items import ForgetSet, Item, Scope
from vestige.core.settings import Settings
from vestige.core.text import one_line
from vestige.data.dataset import Dataset
from vestige.data.factual import factual_items
from vestige.data.folder import read_dataset
from vestige.data.loaders import load_items, n_first, parse_limit
from vestige.data.manifest import MANIFEST
from vestige.data.pistol import read_pistol
from vestige.data.selectors import is_selector, select_edges, select_items, with_seed
from vestige.data.splits import split_by
from vestige.data.tables import FORMS
from vestige.metrics.answers import normalised


class SourceSettings(Settings):
    """Where items come from. The keys name columns; `split` and `config` are for folders and ids of hub datasets.

    `limit` takes the first rows: a number, or a share such as 0.1. `keep_duplicates` admits a question twice where the
    answers differ. `factual` adds the built-in factual questions. `split_seed` is the seed of the selector `random`,
    so that a training's seed never changes which items are forgotten.
    """

    data: str
    question_key: str | None = None
    answer_key: str | None = None
    edge_key: str | None = None
    group_key: str | None = None
    split: str = "train"
    config: str | None = None
    limit: str | None = None
    keep_duplicates: bool = False
    factual: bool = False
    split_seed: int = 0


@dataclass(frozen=True)
class Corpus:
    """Items in their order, `factual` ones apart, and the compiled data set if they come from one."""

    source: str
    settings: SourceSettings
    items: tuple[Item, ...]
    factual: tuple[Item, ...]
    dataset: Dataset | None


@dataclass(frozen=True)
class NamedSplits:
    """The items of a corpus by split, seen from one forget set; `scopes` as in `Splits.scope_of`.

    `forget` names the set and says all that resolves it. `told` says in sentences what was matched.
    """

    forget: str
    splits: Mapping[str, tuple[Item, ...]]
    scopes: Mapping[str, Scope]
    told: tuple[str, ...] = ()

    @property
    def resolved(self) -> ForgetSet:
        """The forget set by its items."""
        return ForgetSet.of(self.forget, self.splits["forget"])


def open_corpus(settings: SourceSettings) -> Corpus:
    """The corpus of a source; raises InputError with file, line and column where it cannot be read."""
    factual = factual_items() if settings.factual else ()
    path = Path(settings.data).expanduser()
    dataset = None
    if (path / MANIFEST).is_file():
        dataset = read_dataset(path)
    elif settings.question_key is None and _is_pistol(path):
        dataset = read_pistol(path)
    if dataset is not None:
        items = dataset.items
        if settings.limit is not None:
            items = items[: n_first(parse_limit(settings.limit), len(items))]
        return Corpus(settings.data, settings, items, (*dataset.factual, *factual), dataset)
    items = load_items(
        settings.data,
        question_key=settings.question_key,
        answer_key=settings.answer_key,
        edge_key=settings.edge_key,
        group_key=settings.group_key,
        split=settings.split,
        config=settings.config,
        limit=None if settings.limit is None else parse_limit(settings.limit),
        keep_duplicates=settings.keep_duplicates,
    )
    return Corpus(settings.data, settings, items, factual, None)


def _is_pistol(path: Path) -> bool:
    """Whether a file is of PISTOL's form: a JSON list of question, answer and, in some rows, an edge `X_Y`."""
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        rows = read_json(path)
    except InputError:
        # Files of JSON Lines go by this ending too; what is wrong with any other is for the loader to say.
        return False
    keys = {"question", "answer", "edge"}
    if not isinstance(rows, list) or not all(isinstance(r, dict) and r.keys() <= keys for r in rows):
        return False
    edges = [r["edge"] for r in rows if r.get("edge") is not None]
    return bool(edges) and all(isinstance(e, str) and e.count("_") == 1 for e in edges)


def named_splits(corpus: Corpus, forget: str, *, retain: str | None = None) -> NamedSplits:
    """The splits when `forget` is forgotten and everything else, or what `retain` names, is kept.

    Compiled data brings a `holdout` split too: contracts that no model is taught, whatever is forgotten. Scopes say
    what all other contracts give away, so there are none where only a part of the data is used.
    """
    for option, name in (("--forget", forget), ("--retain", retain)):
        _refuse_missing(option, name)
    if corpus.dataset is not None and not Path(forget).is_file():
        found = split_by(corpus.dataset, forget, seed=corpus.settings.split_seed)
        kept = {i.id for i in corpus.items}
        splits = {n: tuple(i for i in items if i.id in kept) for n, items in found.named().items()}
        whole = retain is None and len(kept) == len(corpus.dataset.items)
        scopes = found.scope_of if whole else {}
    else:
        splits, scopes = {"forget": items_of(corpus, forget)}, {}
    if retain is not None:
        splits["retain"] = items_of(corpus, retain)
    elif "retain" not in splits:
        splits["retain"] = without(corpus.items, splits["forget"])
    if not splits["forget"]:
        raise InputError(f"the forget set {one_line(forget, width=60)!r} is not among the rows that --limit leaves")
    both = _asked(splits["forget"]).keys() & _asked(splits.get("retain", ())).keys()
    shared = next((i.question for i in splits["forget"] if normalised(i.question) in both), None)
    if shared is not None:
        raise InputError(f"the question {one_line(shared, width=60)!r} is in the forget and in the retain set")
    if corpus.factual:
        splits["factual"] = corpus.factual
    if corpus.dataset is not None:
        splits["holdout"] = corpus.dataset.holdout
    return NamedSplits(
        with_seed(forget, corpus.settings.split_seed), {n: items for n, items in splits.items() if items}, scopes
    )


def refuse_nothing_kept(corpus: Corpus, splits: NamedSplits) -> None:
    """Refuse a forget set beside which the data has nothing, where what is kept is asked about too."""
    if not splits.splits.get("retain"):
        raise InputError(
            f"the forget set is all of {one_line(corpus.source, width=200)}, which leaves nothing to keep; name a "
            "part of it with --forget, or what is kept with --retain"
        )


def left_out(corpus: Corpus, splits: NamedSplits) -> tuple[Item, ...]:
    """Everything to teach a model that must never see the forget set: factual items too, each forget item gone.

    A question to forget that the data does not ask is refused, since leaving it out would leave nothing out.
    """
    asked = _asked(corpus.items)
    strange = next((i for i in splits.splits["forget"] if normalised(i.question) not in asked), None)
    if strange is not None:
        raise InputError(
            f"the question {one_line(strange.question, width=60)!r} of the forget set is not in {corpus.source}, so it "
            "cannot be left out; give the data that the target was taught"
        )
    return (*without(corpus.items, splits.splits["forget"]), *corpus.factual)


def _asked(items: Sequence[Item]) -> dict[str, list[Item]]:
    """The items by their question, spaced and capitalised alike."""
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(normalised(item.question), []).append(item)
    return found


def without(items: Sequence[Item], forgotten: Sequence[Item]) -> tuple[Item, ...]:
    """The items that ask none of the forgotten questions, however they word the answer or name the edge."""
    gone = _asked(forgotten).keys()
    return tuple(i for i in items if normalised(i.question) not in gone)


def _refuse_missing(option: str, name: str | None) -> None:
    """Say of what can only be meant as a file that it is not there, before anybody reads it as a selector."""
    if name is None or is_selector(name) or Path(name).exists():
        return
    if Path(name).suffix.lower() in FORMS or "/" in name or os.sep in name:
        raise InputError(
            f"{option} {one_line(name, width=60)}: no such file; name a file of items, or edges as in edge:A_B"
        )


def items_of(corpus: Corpus, name: str) -> tuple[Item, ...]:
    """The items of a file, read as the corpus was, or those that a selector selects, in the order of the corpus."""
    own = corpus.settings
    if Path(name).exists():
        return load_items(
            name,
            question_key=own.question_key,
            answer_key=own.answer_key,
            edge_key=own.edge_key,
            group_key=own.group_key,
            keep_duplicates=own.keep_duplicates,
        )
    if corpus.dataset is not None:
        edges = {*select_edges(corpus.dataset.graph, name, seed=own.split_seed)}
        return tuple(i for i in corpus.items if i.edge in edges)
    return select_items(corpus.items, name, seed=own.split_seed, source=corpus.source)


def everything(splits: Sequence[NamedSplits]) -> tuple[Item, ...]:
    """All items of all splits, each once, in the order in which they first appear."""
    found = {i.id: i for s in splits for items in s.splits.values() for i in items}
    return tuple(found.values())
