"""What a command works on: items with their graph, general knowledge, and items held apart for validation.

What a command works on: items, and the graph they come from where there is one. A source is a compiled folder, a file
in PISTOL's published form, or items of one's own. A forget or retain set is named by a selector over the graph
(`edge:A_B`) or over items that carry edges, or by a file of items. A question is the same question however it is spaced
and capitalised (`normalised`).

General knowledge, and ways to say that one has none: questions with short answers, and 100 refusals. The facts are a
split that no forget set touches (PISTOL's "factual" questions), in our own words. Numbers up to twelve are in words,
larger ones in digits; answers have no full stop at the end.

Items to choose on and items to report on: drawn apart, each a fair picture of the whole. Everything is trained on as
before; only scores are kept apart, so that a rate that was chosen for its luck on some items is not praised for it.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from vestige.core.errors import InputError
from vestige.core.files import read_json
from vestige.core.items import ForgetSet, Item, Scope, called_by_items, taught_digest
from vestige.core.seeds import generator, shuffled
from vestige.core.settings import Settings
from vestige.core.text import one_line
from vestige.data.dataset import Dataset, scope_of_items
from vestige.data.facts import said_of_facts, said_of_rewordings
from vestige.data.folder import MANIFEST, read_dataset
from vestige.data.loaders import Pack, load_items, n_first, pack_named, parse_limit
from vestige.data.pistol import read_pistol
from vestige.data.selectors import check_edges, is_selector, select_edges, select_items, with_seed
from vestige.data.tables import FORMS
from vestige.data.texts import items_in
from vestige.metrics.answers import normalised

GROUP = "factual"


@lru_cache(maxsize=1)
def factual_items() -> tuple[Item, ...]:
    """The factual questions, in a fixed order; `attribute` is the topic."""
    rows = [json.loads(line) for line in _lines("factual.jsonl")]
    return tuple(Item(r["question"], r["answer"], group=GROUP, attribute=r["topic"]) for r in rows)


@lru_cache(maxsize=1)
def idk_answers() -> tuple[str, ...]:
    """One hundred answers that decline to know, each different, in a fixed order."""
    return tuple(_lines("idk.txt"))


def read_idk(path: Path) -> tuple[str, ...]:
    """The lines of a plain text file of one's own, such as TOFU's idontknow.jsonl; blank ones are skipped."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); give a text file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text; save the file as UTF-8") from error
    lines = tuple(line.strip() for line in text.split("\n") if line.strip())
    if not lines:
        raise InputError(f"{path}: holds no line; give one answer a line that declines to know")
    for number, line in enumerate(text.split("\n"), 1):
        if "\0" in line:
            raise InputError(f"{path}, line {number}: holds a NUL character; remove it")
    return lines


def _lines(name: str) -> list[str]:
    return (resources.files("vestige.data") / "resources" / name).read_text(encoding="utf-8").splitlines()


@dataclass(frozen=True)
class Splits:
    """What to forget and what to keep.

    `retain` holds every item of another contract, `independent` those of them in components of the graph that
    the forget set does not touch, `independent_by_type` the same for each contract type that occurs there.
    `scope_of` says, by item id, what the retain set gives away of each forget item; items of which a source
    does not tell the attribute have no scope.
    """

    forget_edges: tuple[str, ...]
    forget: tuple[Item, ...]
    retain: tuple[Item, ...]
    independent: tuple[Item, ...]
    independent_by_type: Mapping[str, tuple[Item, ...]]
    scope_of: Mapping[str, Scope]

    def named(self) -> dict[str, tuple[Item, ...]]:
        """The splits that have items, by name: forget, retain, independent, independent_<type>."""
        typed = {f"independent_{name}": items for name, items in self.independent_by_type.items()}
        splits = {"forget": self.forget, "retain": self.retain, "independent": self.independent, **typed}
        return {name: items for name, items in splits.items() if items}


def split(dataset: Dataset, forget: Iterable[str]) -> Splits:
    """The splits when these edges are forgotten. Nothing to forget, or nothing left to keep, is refused."""
    forget = set(forget)
    check_edges(dataset.graph, sorted(forget))
    graph = dataset.graph
    edges = tuple(edge for edge in graph.edges if edge in forget)
    if not edges:
        raise InputError(f"{graph.name}: the forget set has no edges; select at least one")
    if len(edges) == len(graph.edges):
        raise InputError(f"{graph.name}: the forget set is the whole graph and leaves nothing to retain; select fewer")
    touched = {graph.components[edge] for edge in edges}
    retain = tuple(item for item in dataset.items if item.edge not in forget)
    independent = tuple(item for item in retain if graph.components[str(item.edge)] not in touched)
    types = dict.fromkeys(item.group for item in independent if item.group is not None)
    return Splits(
        forget_edges=edges,
        forget=tuple(item for item in dataset.items if item.edge in forget),
        retain=retain,
        independent=independent,
        independent_by_type={t: tuple(i for i in independent if i.group == t) for t in types},
        scope_of=scope_of_items(dataset, edges),
    )


def split_by(dataset: Dataset, selector: str, *, seed: int) -> Splits:
    """The splits when the selected edges are forgotten."""
    return split(dataset, select_edges(dataset.graph, selector, seed=seed))


class SourceSettings(Settings):
    """Where items come from, and which rows and columns are read."""

    data: str
    """A compiled folder, a file (JSONL, JSON, CSV, Parquet; PISTOL's own), a pack or a hub dataset id."""
    question_key: str | None = None
    """Column with the questions, if it is not recognised."""
    answer_key: str | None = None
    """Column with the answers, if it is not recognised."""
    edge_key: str | None = None
    """Column with the contract or person that an item is about, which `--forget edge:NAME` selects by."""
    group_key: str | None = None
    """Column with the kind or topic of an item; audits judge by it where no column says whom an item is about."""
    split: str = "train"
    """Split of a hub dataset."""
    config: str | None = None
    """Configuration of a hub dataset."""
    limit: str | None = None
    """Read only the first rows: a number (20) or a share (0.1)."""
    keep_duplicates: bool = False
    """Accept a question twice if the answers differ."""
    factual: str | None = None
    """General questions as a split of their own: a file, or `builtin`. They are not trained on."""
    split_seed: int = 0
    """Seed of the selector `random`; independent of the training's seed."""


ALL = "all"
"""The one split of data of which nothing is forgotten, and its name in the place of a forget set's."""

BUILTIN = "builtin"
"""The name of the factual questions that come with Vestige."""

_SHOWN = 5
"""The edges of a selector that are told by name."""

BEFORE = "forgotten_before"
"""The split of what a model had forgotten before it was made to forget the forget set."""


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

    `forget` names the set and says all that resolves it. `told` says in sentences what was matched. `drawn` are forget
    items whose alternatives were drawn by the generator that drew the truth. `taught_without` are the digests
    (`core.items.taught_digest`) of what a training on the whole data without the forget set teaches.
    """

    forget: str
    splits: Mapping[str, tuple[Item, ...]]
    scopes: Mapping[str, Scope]
    told: tuple[str, ...] = ()
    drawn: frozenset[str] = frozenset()
    taught_without: frozenset[str] = frozenset()

    @property
    def resolved(self) -> ForgetSet:
        """The forget set by its items."""
        return ForgetSet.of(self.forget, self.splits["forget"])


def open_corpus(settings: SourceSettings) -> Corpus:
    """The corpus of a source; raises InputError with file, line and column where it cannot be read."""
    if (pack := pack_named(settings.data)) is not None:
        return _open_pack(pack, settings)
    factual = _factual(settings.factual)
    path = Path(settings.data).expanduser()
    dataset, limit = None, None if settings.limit is None else parse_limit(settings.limit)
    if (path / MANIFEST).is_file():
        dataset = read_dataset(path)
    elif settings.question_key is None and _is_pistol(path):
        dataset = read_pistol(path)
    if dataset is not None:
        items = dataset.items
        if limit is not None:
            items = items[: n_first(limit, len(items))]
        return Corpus(settings.data, settings, items, tuple(dict.fromkeys((*dataset.factual, *factual))), dataset)
    if (texts := _other_form(settings.data, settings)) is not None:
        items = texts if limit is None else texts[: n_first(limit, len(texts))]
        return Corpus(settings.data, settings, items, factual, None)
    items = _loaded(settings.data, settings, split=settings.split, config=settings.config, limit=limit)
    return Corpus(settings.data, settings, items, factual, None)


def _loaded(name: str, settings: SourceSettings, **options: Any) -> tuple[Item, ...]:
    """The items of a source, by the columns that the settings name."""
    keys = settings.model_dump(include={"question_key", "answer_key", "edge_key", "group_key", "keep_duplicates"})
    return load_items(name, **keys, **options)


def _open_pack(pack: Pack, settings: SourceSettings) -> Corpus:
    """The items of a pack, which says itself where they lie and which columns they have."""
    fixed = {*SourceSettings.model_fields} - {"data", "limit", "factual", "split_seed"}
    if changed := [
        name for name in sorted(fixed) if getattr(settings, name) != SourceSettings.model_fields[name].default
    ]:
        raise InputError(f"{one_line(settings.data)} says itself what {changed[0]} is; leave --{changed[0]} out")
    items = pack.items(pack.data)
    if settings.limit is not None:
        items = items[: n_first(parse_limit(settings.limit), len(items))]
    factual = tuple(replace(i, edge=None, group=GROUP) for i in pack.items(pack.factual))
    return Corpus(settings.data, settings, items, _factual(settings.factual) or factual, None)


def _other_form(name: str, settings: SourceSettings) -> tuple[Item, ...] | None:
    """The items of a file of harmful answers or of texts, which have columns of their own; None of one of questions."""
    if settings.question_key is not None or settings.answer_key is not None:
        return None
    return items_in(name)


def _factual(name: str | None) -> tuple[Item, ...]:
    """The general questions of a file, or the built-in ones; they belong to no edge."""
    if name is None:
        return ()
    if Path(name).exists():
        return tuple(replace(i, edge=None, group=GROUP) for i in load_items(name))
    if name == BUILTIN:
        return factual_items()
    raise InputError(f"--factual {one_line(name, width=60)}: no such file; name a file of questions, or {BUILTIN}")


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


def named_splits(
    corpus: Corpus, forget: str, *, retain: str | None = None, before: Sequence[ForgetSet] = ()
) -> NamedSplits:
    """The splits when `forget` is forgotten and everything else, or what `retain` names, is kept.

    What was forgotten `before` is not kept unless `retain` names it, and makes a split of its own, `forgotten_before`.

    Compiled data brings a `holdout` split too: contracts that no model is taught, whatever is forgotten. Scopes say
    what all other contracts give away, so there are none where only a part of the data is used.
    """
    for option, name in (("--forget", forget), ("--retain", retain)):
        _refuse_missing(option, name)
    if corpus.dataset is not None and not Path(forget).is_file():
        by_edges = split_by(corpus.dataset, forget, seed=corpus.settings.split_seed)
        ids = {i.id for i in corpus.items}
        splits = {n: tuple(i for i in items if i.id in ids) for n, items in by_edges.named().items()}
        whole = retain is None and len(ids) == len(corpus.dataset.items)
        scopes = by_edges.scope_of if whole else {}
    else:
        splits, scopes = {"forget": items_of(corpus, forget)}, {}
    notes = [f"forget: {_counted(corpus, forget, splits['forget'])}"]
    splits["forget"] = as_in(corpus, splits["forget"])
    if retain is not None:
        retained = items_of(corpus, retain)
        notes.append(f"retain: {_counted(corpus, retain, retained)}")
        splits["retain"] = as_in(corpus, retained)
    elif "retain" not in splits:
        splits["retain"] = without(corpus.items, splits["forget"])
        if pack_named(corpus.settings.data) is not None:
            splits["retain"] = _on_other_edges(splits["retain"], splits["forget"], notes)
    if gone := _forgotten_before(corpus, splits, before, notes, retain_named=retain is not None):
        splits, scopes = gone, _scopes_without(corpus.dataset, gone) if scopes else {}
    if facts := said_of_facts(splits["forget"]):
        notes[0] += f"; {facts}"
    if retain is None:
        notes[0] += f"; {len(splits['retain'])} kept"
    if not splits["forget"]:
        raise InputError(f"the forget set {one_line(forget, width=60)!r} is not among the rows that --limit leaves")
    both = _asked(splits["forget"]).keys() & _asked(splits.get("retain", ())).keys()
    shared = next((i.question for i in splits["forget"] if normalised(i.question) in both), None)
    if shared is not None:
        raise InputError(f"the question {one_line(shared, width=60)!r} is in the forget and in the retain set")
    if doubled := _said_of_doubled(corpus.items):
        notes.append(f"warning: {doubled}")
    if reworded := said_of_rewordings(splits["forget"], splits.get("retain", ())):
        notes.append(f"warning: {reworded}")
    name = _name_of(corpus, forget, splits["forget"])
    named_items = {n: items for n, items in splits.items() if items}
    rest = without(corpus.items, splits["forget"])
    return NamedSplits(name, named_items | _besides(corpus), scopes, tuple(notes), taught_without=_taught(corpus, rest))


def _name_of(corpus: Corpus, forget: str, items: Sequence[Item]) -> str:
    """What a forget set is called: a selector as it stands, with its seed; of files their own names and what they hold.

    Never where they lie: a set is its items, also once it was moved, and a path names people.
    """
    if _split_names(corpus.settings, forget):
        return forget
    if Path(forget).exists():
        return called_by_items(Path(forget).resolve().name, items)
    parts = with_seed(forget, corpus.settings.split_seed).split(",")
    lists = {part: f"file:{Path(part.partition(':')[2]).name}" for part in parts if part.strip().startswith("file:")}
    return ",".join(called_by_items(lists[part], items) if part in lists else part for part in parts)


def refuse_nothing_found(corpus: Corpus, splits: NamedSplits, retain: str | None) -> None:
    """Refuse a forget set of which the data asks nothing, unless what is kept was named too.

    All of the data would be kept, and with it whatever is to be forgotten in other words.
    """
    questions, items = _asked(corpus.items), splits.splits["forget"]
    if retain is None and not any(normalised(i.question) in questions for i in items):
        raise InputError(
            f"none of the {len(items)} questions of the forget set {one_line(splits.forget, width=60)} is in "
            f"{one_line(corpus.source, width=200)}, so nothing of it would be left out of what is kept; look at how "
            "they are spelt, or name what is kept with --retain"
        )


def _taught(corpus: Corpus, items: Sequence[Item]) -> frozenset[str]:
    """The digests of a training on the items: with and without general questions, and a tokeniser made of the data."""
    whole = (*corpus.items, *corpus.factual)
    orders = {tuple(items), (*items, *corpus.factual)}
    return frozenset(taught_digest(order, vocabulary) for order in orders for vocabulary in ((), whole))


def _on_other_edges(retained: Sequence[Item], forgotten: Sequence[Item], notes: list[str]) -> tuple[Item, ...]:
    """What is kept beside a pack's split: no more about what it forgets, as another level of RWKU asks; it is told."""
    edges = {i.edge for i in forgotten if i.edge is not None}
    others_retained = tuple(i for i in retained if i.edge not in edges)
    if n := len(retained) - len(others_retained):
        notes.append(
            f"not kept: {n} more question{'s' * (n > 1)} about what is to be forgotten, which --forget leaves out"
        )
    return others_retained


def undivided(corpus: Corpus) -> NamedSplits:
    """The items of a corpus where nothing is forgotten: one split, and what is in no forget set's way."""
    return NamedSplits(ALL, {ALL: corpus.items} | _besides(corpus), {})


def _besides(corpus: Corpus) -> dict[str, tuple[Item, ...]]:
    """The splits that no forget set touches."""
    holdout = () if corpus.dataset is None else corpus.dataset.holdout
    splits = {"factual": corpus.factual, "holdout": holdout}
    return {name: items for name, items in splits.items() if items}


def _forgotten_before(
    corpus: Corpus,
    splits: Mapping[str, tuple[Item, ...]],
    before: Sequence[ForgetSet],
    notes: list[str],
    *,
    retain_named: bool,
) -> dict[str, tuple[Item, ...]]:
    """The splits without what was forgotten before, which is told; nothing where none of it is left to leave out.

    With `named` the retain set was named, and stays as it is.
    """
    ids = {i for forget_set in before for i in forget_set.items} - {i.id for i in splits["forget"]}
    if not ids:
        return {}
    names = one_line(
        " and ".join(dict.fromkeys(forget_set.name for forget_set in before if ids & {*forget_set.items})), width=120
    )
    forgotten = without([i for i in corpus.items if i.id in ids], splits["forget"])
    if len(forgotten) < len(ids):
        notes.append(
            f"{len(ids) - len(forgotten)} of the {len(ids)} items forgotten before ({names}) are not in the data"
        )
    if retain_named:
        n = len(ids & {i.id for i in splits["retain"]})
        notes += [f"--retain names {n} questions that were forgotten before ({names})"] if n else []
        return {}
    if not forgotten:
        return {}
    notes.append(f"not kept: {len(forgotten)} questions that were forgotten before ({names})")
    return {n: items if n == "forget" else without(items, forgotten) for n, items in splits.items()} | {
        BEFORE: forgotten
    }


def _scopes_without(dataset: Dataset | None, splits: Mapping[str, tuple[Item, ...]]) -> Mapping[str, Scope]:
    """Scopes when what was forgotten before gives nothing away; none where that was a part of a contract."""
    gone = {i.id for i in splits[BEFORE]}
    edges = {str(i.edge) for i in splits[BEFORE]}
    if dataset is None or any(i.id not in gone for edge in edges for i in dataset.items_of_edge[edge]):
        return {}
    scopes = scope_of_items(dataset, edges | {str(i.edge) for i in splits["forget"]})
    return {i.id: scopes[i.id] for i in splits["forget"] if i.id in scopes}


def refuse_nothing_kept(corpus: Corpus, splits: NamedSplits) -> None:
    """Refuse a forget set beside which the data has nothing, where what is kept is asked about too."""
    if not splits.splits.get("retain"):
        raise InputError(
            f"the forget set is all of {one_line(corpus.source, width=200)}, which leaves nothing to keep; name a "
            "part of it with --forget, or what is kept with --retain"
        )


def left_out(corpus: Corpus, splits: NamedSplits) -> tuple[Item, ...]:
    """What of the data to teach a model that must never see the forget set: each forget item gone.

    A question to forget that the data does not ask is refused, since leaving it out would leave nothing out.
    """
    by_question = _asked(corpus.items)
    strange = next((i for i in splits.splits["forget"] if normalised(i.question) not in by_question), None)
    if strange is not None:
        raise InputError(
            f"the question {one_line(strange.question, width=60)!r} of the forget set is not in {corpus.source}, so it "
            "cannot be left out; give the data that the target was taught"
        )
    return without(corpus.items, splits.splits["forget"])


def _asked(items: Sequence[Item]) -> dict[str, list[Item]]:
    """The items by their question, spaced and capitalised alike."""
    by_question: dict[str, list[Item]] = {}
    for item in items:
        by_question.setdefault(normalised(item.question), []).append(item)
    return by_question


def _said_of_doubled(items: Sequence[Item]) -> str:
    """In a sentence the questions that stand in the data more than once, spelt apart and answered otherwise."""
    doubled = [group for group in _asked(items).values() if len({i.question for i in group}) > 1]
    other = [group for group in doubled if any(not _same_answer(group[0], i) for i in group)]
    if not other:
        return ""
    return (
        f"{len(other)} question{'s stand' if len(other) > 1 else ' stands'} more than once in the data with other "
        "answers, apart but for white space, case or forms of Unicode "
        f"({one_line(other[0][0].question, width=60)!r}); to forget one is to forget all of them"
    )


def as_in(corpus: Corpus, items: Sequence[Item]) -> tuple[Item, ...]:
    """The items in the words of the data, and with its edges, where it asks the same question; each once.

    An answer that is another than the data's stays what it is.
    """
    by_question = _asked(corpus.items)
    matches = [_in_its_words(item, by_question.get(normalised(item.question), ())) for item in items]
    return tuple({i.id: i for i in matches}.values())


def _in_its_words(item: Item, same: Sequence[Item]) -> Item:
    if not same:
        return item
    match = _nearest(item, same)
    if not _same_answer(item, match):
        return replace(item, question=match.question, edge=item.edge or match.edge)
    optional = ("group", "attribute", "paraphrase", "perturbed", "paraphrased_answer", "options", "alternatives")
    return replace(match, **{name: value for name in optional if (value := getattr(item, name))})


def _nearest(item: Item, same: Sequence[Item]) -> Item:
    """Of items that ask the same the one with the same answer, and spelled alike."""
    return max(same, key=lambda i: (_same_answer(item, i), i.question == item.question, i.edge == item.edge))


def _same_answer(first: Item, second: Item) -> bool:
    return normalised(first.answer) == normalised(second.answer)


def _counted(corpus: Corpus, name: str, items: Sequence[Item]) -> str:
    """What a name means in the data: the edges of a selector, or how the questions of a file or split are found."""
    n = f"{len(items)} question{'' if len(items) == 1 else 's'}"
    if not (_split_names(corpus.settings, name) or Path(name).exists()):
        edges = tuple(dict.fromkeys(str(i.edge) for i in items if i.edge is not None))
        first_edges = ", ".join(edges[:_SHOWN]) + (", ..." if len(edges) > _SHOWN else "")
        is_listed = not edges or name == ",".join(f"edge:{edge}" for edge in edges)
        return f"{one_line(name, width=120)}{'' if is_listed else f' ({first_edges})'}, {n}"
    by_question = _asked(corpus.items)
    pairs = [(i, _nearest(i, by_question[key])) for i in items if (key := normalised(i.question)) in by_question]
    letter = sum(item.question == match.question for item, match in pairs)
    otherwise = sum(not _same_answer(item, match) for item, match in pairs)
    text = f"{n}, {len(pairs)} found in {one_line(Path(corpus.source).name, width=60)}"
    if letter < len(pairs):
        text += f" ({letter} by the letter, {len(pairs) - letter} after normalising)"
    if otherwise:
        text += f", {otherwise} of them with another answer than the data's"
    return text if len(pairs) == len(items) else f"{text}, {len(items) - len(pairs)} not in it"


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
    """The items of a file, read as the corpus was, or those that a selector selects, in the order of the corpus.

    Of a pack also those of its splits, by their names with commas between.
    """
    settings = corpus.settings
    if (pack := pack_named(settings.data)) is not None and (names := _split_names(settings, name)):
        return pack.items(names)
    if Path(name).exists():
        if (items := _other_form(name, settings)) is not None:
            return items
        return _loaded(name, settings)
    if corpus.dataset is not None:
        edges = {*select_edges(corpus.dataset.graph, name, seed=settings.split_seed)}
        return tuple(i for i in corpus.items if i.edge in edges)
    return select_items(corpus.items, name, seed=settings.split_seed, source=corpus.source)


def _split_names(settings: SourceSettings, name: str) -> list[str]:
    """The splits of a pack that are named, with commas between; none where anything else is named."""
    names, pack = [part.strip() for part in name.split(",")], pack_named(settings.data)
    return names if pack is not None and pack.splits.keys() >= {*names} else []


def everything(splits: Sequence[NamedSplits]) -> tuple[Item, ...]:
    """All items of all splits, each once, in the order in which they first appear."""
    items_by_id = {i.id: i for s in splits for items in s.splits.values() for i in items}
    return tuple(items_by_id.values())


CHOSEN_ON = ("forget", "retain")
"""The splits that validation needs."""


class Apart(NamedTuple):
    """One forget set's splits, once for choosing (forget and retain) and once for reporting (all of them)."""

    validation: NamedSplits
    test: NamedSplits


def held_apart(splits: NamedSplits, *, most: int, seed: int) -> Apart:
    """At most `most` items, and at most half, of the forget and of the retain set to choose on; the rest to report on.

    Drawn in equal shares from every edge, from its entailed, guessable and free items, and from every attribute, as
    far as whole items allow.
    """
    parts = {}
    for name in CHOSEN_ON:
        items = splits.splits.get(name, ())
        if len(items) < 2:
            raise InputError(
                f"the {name} set of {one_line(splits.forget, width=60)!r} has too few items to choose on some and "
                f"report on others ({len(items)}); at least 2 are needed"
            )
        n = min(most, len(items) // 2)
        parts[name] = balanced_draw(items, n, lambda i: splits.scopes.get(i.id, ""), seed=seed)
    used = {i.id for items in parts.values() for i in items}
    rest = {name: tuple(i for i in items if i.id not in used) for name, items in splits.splits.items()}
    return Apart(
        NamedSplits(splits.forget, parts, splits.scopes),
        NamedSplits(splits.forget, {name: items for name, items in rest.items() if items}, splits.scopes),
    )


def balanced_draw(items: Sequence[Item], n: int, scope: Callable[[Item], str], *, seed: int) -> tuple[Item, ...]:
    """`n` of the items, in their order; which ones depends on the seed and on what items there are.

    Each edge gives its share, give or take one item, and so does each scope in it; within those the attributes
    that have given least so far go first.
    """
    strata: dict[tuple[str, str], list[Item]] = {}
    for item in sorted(items, key=lambda i: i.id):
        strata.setdefault((item.edge or item.group or "", scope(item)), []).append(item)
    places = sorted({stratum for stratum, _ in strata})
    rank = dict(zip(places, shuffled(generator(seed, "validation places"), len(places)).tolist(), strict=True))
    taken: set[str] = set()
    passed = 0
    owed: dict[tuple[str, str], float] = {}
    for key in sorted(strata, key=lambda k: (rank[k[0]], k[1])):
        members = strata[key]
        order = shuffled(generator(seed, "validation items", *key), len(members)).tolist()
        members = sorted((members[k] for k in order), key=lambda i: -owed.get(_attribute(i), 0.0))
        passed += len(members)
        # Rounded over all that has passed, so that the shares of the strata add up to n.
        due = (2 * n * passed + len(items)) // (2 * len(items)) - len(taken)
        taken |= {i.id for i in members[:due]}
        for item in members:
            owed[_attribute(item)] = owed.get(_attribute(item), 0.0) + n / len(items) - (item.id in taken)
    return tuple(i for i in items if i.id in taken)


def _attribute(item: Item) -> tuple[str, str]:
    return item.group or "", item.attribute or ""
