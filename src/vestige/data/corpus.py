"""The data of a command: items with their graph, general knowledge, and validation items.

A source is a compiled folder, a pack, or items of one's own. A selector over the
graph (`edge:A_B`), a selector over items with edges, or a file of items names a forget or retain set. A question is the
same question however it is spaced and capitalised (`normalised`).

General knowledge, and ways to say that one has none: questions with short answers, and 100 refusals. The facts are a
split that no forget set touches (PISTOL's "factual" questions), in our own words. Numbers up to twelve are in words,
larger ones in digits. Answers have no full stop at the end.

Items to choose on and items to report on are drawn apart, each a fair picture of the whole. Everything is trained on as
before. Only scores are kept apart, so that a rate that was chosen for its luck on some items is not praised for it.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import ForgetSet, Item, ItemTuple, Scope, called_by_items, questions_digest, taught_digest
from vestige.core.seeds import generator, shuffled
from vestige.core.settings import Settings
from vestige.core.text import Sentences, TextTuple, one_line
from vestige.data.dataset import MANIFEST, Dataset, asked_otherwise, read_dataset, scope_of_items
from vestige.data.facts import said_of_facts, said_of_rewordings
from vestige.data.graph import check_edges, is_selector, select_edges, select_items, with_seed
from vestige.data.loaders import (
    Passage,
    form_of,
    items_in,
    load_harmful,
    load_items,
    n_first,
    pack_named,
    refuse_blank,
    texts_in,
)
from vestige.data.tables import FORMS, text_lines
from vestige.metrics.answers import normalised

T = TypeVar("T")
GROUP = "factual"
_RESOURCES = Path(__file__).parent / "resources"


@lru_cache(maxsize=1)
def factual_items() -> ItemTuple:
    """The factual questions, in a fixed order. `attribute` is the topic."""
    rows = map(json.loads, text_lines(_RESOURCES / "factual.jsonl"))
    return tuple(Item(r["question"], r["answer"], group=GROUP, attribute=r["topic"]) for r in rows)


@lru_cache(maxsize=1)
def idk_answers() -> TextTuple:
    """One hundred answers that decline to know, each different, in a fixed order."""
    return tuple(text_lines(_RESOURCES / "idk.txt"))


@dataclass(frozen=True)
class Splits:
    """What to forget and what to keep.

    `retain` has every item of another contract, `independent` those in components of the graph outside the forget set,
    `independent_by_type` the same for each contract type. `scope_of` has, by item id, the retain set's information
    about each forget item. Items without a known attribute have no scope.
    """

    forget: ItemTuple
    retain: ItemTuple
    independent: ItemTuple
    independent_by_type: Mapping[str, ItemTuple]
    scope_of: Mapping[str, Scope]

    def named(self) -> dict[str, ItemTuple]:
        """The splits that have items, by name: forget, retain, independent, independent_<type>."""
        by_type = {f"independent_{name}": items for name, items in self.independent_by_type.items()}
        return _filled({"forget": self.forget, "retain": self.retain, "independent": self.independent, **by_type})


def _filled(splits: Mapping[str, ItemTuple]) -> dict[str, ItemTuple]:
    return {name: items for name, items in splits.items() if items}


def split(dataset: Dataset, forget: Iterable[str]) -> Splits:
    """The splits when these edges are forgotten. Nothing to forget, or nothing left to keep, is refused."""
    forget, graph = set(forget), dataset.graph
    check_edges(graph, sorted(forget))
    edges = tuple(edge for edge in graph.edges if edge in forget)
    if not edges:
        raise InputError(f"{graph.name}: the forget set has no edges. Select at least one")
    if len(edges) == len(graph.edges):
        raise InputError(f"{graph.name}: the forget set is the whole graph and leaves nothing to retain. Select fewer")
    touched = {graph.components[edge] for edge in edges}
    retain = tuple(item for item in dataset.items if item.edge not in forget)
    independent = tuple(item for item in retain if graph.components[str(item.edge)] not in touched)
    by_type: dict[str, list[Item]] = {}
    for item in independent:
        if item.group is not None:
            by_type.setdefault(item.group, []).append(item)
    return Splits(
        forget=tuple(item for item in dataset.items if item.edge in forget),
        retain=retain,
        independent=independent,
        independent_by_type={name: tuple(items) for name, items in by_type.items()},
        scope_of=scope_of_items(dataset, edges),
    )


def split_by(dataset: Dataset, selector: str, *, seed: int) -> Splits:
    """The splits when the selected edges are forgotten."""
    return split(dataset, select_edges(dataset.graph, selector, seed=seed))


class SourceSettings(Settings):
    """The source of the questions: file or hub data set, rows and columns."""

    data: str
    """A compiled folder, a file (JSONL, JSON, CSV, Parquet), a pack or a hub dataset id."""
    question_key: str | None = None
    """Column with the questions, if it is not recognised."""
    answer_key: str | None = None
    """Column with the answers, if it is not recognised."""
    edge_key: str | None = None
    """Column with the contract or person that an item is about, which `--forget edge:NAME` selects by."""
    group_key: str | None = None
    """Column with the kind or topic of an item. Audits group by it if no column names the item's person."""
    split: str = "train"
    """Split of a hub dataset."""
    config: str | None = None
    """Configuration of a hub dataset."""
    limit: str | None = None
    """Read only the first rows: a number (20) or a share (0.1)."""
    keep_duplicates: bool = False
    """Accept a question twice if the answers differ."""
    factual: str | None = None
    """General questions as a separate split: a file, or `builtin`. They are not trained on."""
    split_seed: int = 0
    """Seed of the selector `random`. Independent of the training's seed."""

    def limited(self, items: tuple[T, ...]) -> tuple[T, ...]:
        """The first of the items, as far as the limit goes."""
        if self.limit is None:
            return items
        return items[: n_first(self.limit, len(items))]


ALL = "all"
"""The only split of data without a forget set, and its name in place of a forget set's."""

BUILTIN = "builtin"
"""The name of the factual questions that come with Vestige."""

BEFORE = "forgotten_before"
"""The split of items that a model forgot before the forget set."""


@dataclass(frozen=True)
class Corpus:
    """Items in their order, `factual` ones apart, and the compiled data set if they come from one."""

    source: str
    settings: SourceSettings
    items: ItemTuple
    factual: ItemTuple
    dataset: Dataset | None

    @property
    def untouched(self) -> dict[str, ItemTuple]:
        """The splits that no forget set touches."""
        splits = {"factual": self.factual}
        if self.dataset is not None:
            splits["holdout"] = self.dataset.holdout
        return _filled(splits)

    def asking_alike(self, item: Item) -> Sequence[Item]:
        """The items of the data that ask the same question."""
        return self.by_question.get(normalised(item.question), ())

    @cached_property
    def by_question(self) -> Mapping[str, Sequence[Item]]:
        """The items by their question, spaced and capitalised alike."""
        items_of: dict[str, list[Item]] = {}
        for item in self.items:
            items_of.setdefault(normalised(item.question), []).append(item)
        return items_of


@dataclass(frozen=True)
class NamedSplits:
    """The items of a corpus by split, seen from one forget set. `scopes` as in `Splits.scope_of`.

    `forget` has the set's name and everything that resolves it. `told` has sentences on the matching.
    `taught_without` are the digests (`core.items.taught_digest`) of the training data without the forget set, or
    without earlier forgotten items too.
    """

    forget: str
    splits: Mapping[str, ItemTuple]
    scopes: Mapping[str, Scope]
    told: Sentences = ()
    taught_without: frozenset[str] = frozenset()

    @property
    def resolved(self) -> ForgetSet:
        """The forget set by its items."""
        return ForgetSet.of(self.forget, self.splits["forget"])

    @property
    def digest(self) -> str:
        """Content id of what forget and retain set ask."""
        sets = self.splits["forget"], self.splits.get("retain", ())
        return content_id([questions_digest(items) for items in sets], length=32)


def open_corpus(settings: SourceSettings) -> Corpus:
    """The corpus of a source. Raises InputError with file, line and column where it cannot be read."""
    refuse_blank(settings.data)
    factual, dataset = _factual(settings.factual), None
    if (pack := pack_named(settings.data)) is not None:
        _refuse_columns(settings)
        items = settings.limited(pack.items(pack.data))
        factual = factual or _general(pack.items(pack.factual))
    else:
        path = Path(settings.data).expanduser()
        if (path / MANIFEST).is_file():
            dataset = asked_otherwise(read_dataset(path))
        if dataset is not None:
            items = settings.limited(dataset.items)
        else:
            items = _read(settings.data, settings, here=True)
    return Corpus(settings.data, settings, items, factual, dataset)


def _read(name: str, settings: SourceSettings, *, here: bool = False) -> ItemTuple:
    """The items of a source by the columns that the settings name, or of texts and harmful answers as they are.

    Split, configuration and limit apply only to the data `here`.
    """
    if settings.question_key is None and settings.answer_key is None and (texts := items_in(name)) is not None:
        if here:
            return settings.limited(texts)
        return texts
    keys = settings.model_dump(include={"question_key", "answer_key", "edge_key", "group_key", "keep_duplicates"})
    if here:
        keys |= {"split": settings.split, "config": settings.config, "limit": settings.limit}
    return load_items(name, **keys)


def _refuse_columns(settings: SourceSettings) -> None:
    """Reject columns that a pack defines."""
    for name in sorted({*SourceSettings.model_fields} - {"data", "limit", "factual", "split_seed"}):
        if getattr(settings, name) != SourceSettings.model_fields[name].default:
            raise InputError(f"{one_line(settings.data)} sets its own {name}. Leave --{name} out")


def _general(items: Iterable[Item]) -> ItemTuple:
    """Items as general questions, which belong to no edge."""
    return tuple(replace(item, edge=None, group=GROUP) for item in items)


def _factual(name: str | None) -> ItemTuple:
    """The general questions of a file, or the built-in ones."""
    if name is None:
        return ()
    if Path(name).exists():
        return _general(load_items(name))
    if name == BUILTIN:
        return factual_items()
    raise InputError(f"--factual {one_line(name, width=60)}: no such file. Name a file of questions, or {BUILTIN}")


def named_splits(
    corpus: Corpus, forget: str, *, retain: str | None = None, before: Sequence[ForgetSet] = ()
) -> NamedSplits:
    """Return the splits if `forget` is forgotten and `retain`, or everything else, is kept.

    Items in `before` are not retained unless `retain` names them, and form their own split, `forgotten_before`.

    Compiled data has a `holdout` split too: contracts that no model is taught. Scopes describe what all other contracts
    reveal, so a part of the data has no scopes.
    """
    for option, name in (("--forget", forget), ("--retain", retain)):
        _refuse_missing(option, name)
    splits: dict[str, ItemTuple] = {}
    scopes: Mapping[str, Scope] = {}
    if corpus.dataset is not None and not Path(forget).is_file():
        by_edges = split_by(corpus.dataset, forget, seed=corpus.settings.split_seed)
        # With --limit, only a part of the compiled data is used.
        used = {i.id for i in corpus.items}
        for name, items in by_edges.named().items():
            splits[name] = tuple(i for i in items if i.id in used)
        if retain is None and len(used) == len(corpus.dataset.items):
            # The scopes apply if all other contracts are retained.
            scopes = by_edges.scope_of
    else:
        splits["forget"] = items_of(corpus, forget)
    notes = [f"forget: {_counted(corpus, forget, splits['forget'])}"]
    splits["forget"] = as_in(corpus, splits["forget"])
    if retain is not None:
        retained = items_of(corpus, retain)
        notes.append(f"retain: {_counted(corpus, retain, retained)}")
        splits["retain"] = as_in(corpus, retained)
    elif "retain" not in splits:
        splits["retain"] = without(corpus.items, splits["forget"])
        if pack_named(corpus.settings.data) is not None:
            # A pack's split may have more about the forgotten subjects, such as another level of RWKU.
            edges = {i.edge for i in splits["forget"] if i.edge is not None}
            on_others = tuple(i for i in splits["retain"] if i.edge not in edges)
            if n := len(splits["retain"]) - len(on_others):
                count = f"{n} more question{'s' * (n > 1)}"
                notes.append(f"not kept: {count} about what is to be forgotten, which --forget leaves out")
            splits["retain"] = on_others
    forgotten = _forgotten_before(corpus, splits, before, notes, retain_named=retain is not None)
    if forgotten:
        reduced = {name: without(items, forgotten) for name, items in splits.items() if name != "forget"}
        splits |= reduced | {BEFORE: forgotten}
        if scopes:
            scopes = _scopes_without(corpus.dataset, splits)
    if facts := said_of_facts(splits["forget"]):
        notes[0] += f"; {facts}"
    if retain is None:
        notes[0] += f"; {len(splits['retain'])} kept"
    if not splits["forget"]:
        raise InputError(f"the forget set {one_line(forget, width=60)!r} is not within --limit. Raise --limit")
    retained_questions = {normalised(i.question) for i in splits.get("retain", ())}
    if both := next((i.question for i in splits["forget"] if normalised(i.question) in retained_questions), None):
        raise InputError(f"the question {one_line(both, width=60)!r} is in the forget and the retain set. Remove one")
    warnings = [_doubled(corpus), said_of_rewordings(splits["forget"], splits.get("retain", ()))]
    notes += [f"warning: {warning}" for warning in warnings if warning]
    name = _name_of(corpus, forget, splits["forget"])
    taught = _taught_without(corpus, splits["forget"], forgotten)
    return NamedSplits(name, _filled(splits) | corpus.untouched, scopes, tuple(notes), taught_without=taught)


def _taught_without(corpus: Corpus, forget: ItemTuple, forgotten: ItemTuple) -> frozenset[str]:
    """The digests of the data that a retrained control may have been taught.

    A control may have been trained without this set alone, or without the earlier ones too.
    """
    gone = [forget]
    if forgotten:
        gone.append((*forget, *forgotten))
    # Digests exist with and without general questions, and with the model's tokeniser or one made from the data.
    whole = (*corpus.items, *corpus.factual)
    taught: set[str] = set()
    for items in gone:
        kept = without(corpus.items, items)
        for order in (kept, (*kept, *corpus.factual)):
            taught.update((taught_digest(order, ()), taught_digest(order, whole)))
    return frozenset(taught)


def undivided(corpus: Corpus) -> NamedSplits:
    """Return the items of a corpus without a forget set: one split, with general knowledge."""
    return NamedSplits(ALL, {ALL: corpus.items} | corpus.untouched, {})


def _name_of(corpus: Corpus, forget: str, items: Sequence[Item]) -> str:
    """Return a forget set's name: a selector unchanged, with its seed.

    For files, the names and a digest of the content. Never where they lie: a set is its items, also once it was moved,
    and a path names people.
    """
    if _split_names(corpus.settings, forget):
        return forget
    if Path(forget).exists():
        return called_by_items(Path(forget).resolve().name, items)
    parts = with_seed(forget, corpus.settings.split_seed).split(",")
    lists = {part: f"file:{Path(part.partition(':')[2]).name}" for part in parts if part.strip().startswith("file:")}
    return ",".join(called_by_items(lists[part], items) if part in lists else part for part in parts)


def refuse_not_found(corpus: Corpus, splits: NamedSplits, retain: str | None) -> None:
    """Reject a forget set with questions outside the data, unless a retain set is named too.

    Such a question would be forgotten and, in the data's wording, retained.
    """
    items = splits.splits["forget"]
    missing = [item.question for item in items if not corpus.asking_alike(item)]
    if retain is not None or not missing:
        return
    first = "; ".join(_with_nearest(question, corpus) for question in missing[:_MISSING_NAMED])
    raise InputError(
        f"{one_line(corpus.source, width=200)} asks {len(items) - len(missing) or 'none'} of the {len(items)} "
        f"questions of the forget set {one_line(splits.forget, width=60)}, and the others would be forgotten and kept "
        f"too. Correct their spelling: {first}. Or name the retain set with --retain"
    )


_MISSING_NAMED = 3
_SEARCHED = 20_000
"""With more questions, similar ones are not searched for, because each takes 0.1 ms."""


def _with_nearest(question: str, corpus: Corpus) -> str:
    """Quote a question with the most similar one of the data, if any."""
    quoted = f"{one_line(question, width=80)!r}"
    if len(corpus.items) > _SEARCHED:
        return quoted
    near = get_close_matches(question, [item.question for item in corpus.items], n=1, cutoff=0.8)
    if near:
        return f"{quoted} (there: {one_line(near[0], width=80)!r})"
    return quoted


def refuse_nothing_kept(corpus: Corpus, splits: NamedSplits) -> None:
    """Reject a forget set that leaves no other items, if retained questions are needed too."""
    if not splits.splits.get("retain"):
        raise InputError(
            f"the forget set is all of {one_line(corpus.source, width=200)}, which leaves nothing to keep. Name a "
            "part with --forget, or a retain set with --retain"
        )


def left_out(corpus: Corpus, splits: NamedSplits) -> ItemTuple:
    """Return the data for a model that must never see the forget set.

    A question to forget that the data does not ask is refused, since leaving it out would leave nothing out.
    """
    refuse_not_found(corpus, splits, None)
    return without(corpus.items, splits.splits["forget"])


def _forgotten_before(
    corpus: Corpus,
    splits: Mapping[str, ItemTuple],
    before: Sequence[ForgetSet],
    notes: list[str],
    *,
    retain_named: bool,
) -> ItemTuple:
    """Move items in `before` out of the other splits, and report them. None of a named retain set."""
    # Items that this request forgets again belong to it.
    ids = set[str]().union(*(forget_set.items for forget_set in before))
    ids -= {i.id for i in splits["forget"]}
    if not ids:
        return ()
    names = dict.fromkeys(forget_set.name for forget_set in before if ids & {*forget_set.items})
    past = f"forgotten before ({one_line(' and '.join(names), width=120)})"
    forgotten = without([i for i in corpus.items if i.id in ids], splits["forget"])
    if len(forgotten) < len(ids):
        notes.append(f"{len(ids) - len(forgotten)} of the {len(ids)} items {past} are not in the data")
    if retain_named:
        n = len(ids & {i.id for i in splits["retain"]})
        if n:
            notes.append(f"--retain names {n} questions that were {past}")
        return ()
    if forgotten:
        notes.append(f"not kept: {len(forgotten)} questions that were {past}")
    return forgotten


def _scopes_without(dataset: Dataset | None, splits: Mapping[str, ItemTuple]) -> Mapping[str, Scope]:
    """Return scopes for `before` items that reveal nothing. None where that was a part of a contract."""
    forgotten = {*splits[BEFORE]}
    edges = {str(i.edge) for i in forgotten}
    if dataset is None or not all(forgotten.issuperset(dataset.items_of_edge[edge]) for edge in edges):
        return {}
    scopes = scope_of_items(dataset, edges | {str(i.edge) for i in splits["forget"]})
    return {i.id: scopes[i.id] for i in splits["forget"] if i.id in scopes}


def _doubled(corpus: Corpus) -> str:
    """Return a sentence about repeated questions with different spelling and different answers."""
    groups = []
    for group in corpus.by_question.values():
        spellings = {i.question for i in group}
        answers = {normalised(i.answer) for i in group}
        if len(spellings) > 1 and len(answers) > 1:
            groups.append(group)
    if not groups:
        return ""
    return (
        f"{len(groups)} question{'s stand' if len(groups) > 1 else ' stands'} more than once in the data with other "
        "answers, apart but for white space, case or forms of Unicode "
        f"({one_line(groups[0][0].question, width=60)!r}); to forget one is to forget all of them"
    )


def as_in(corpus: Corpus, items: Sequence[Item]) -> ItemTuple:
    """Return the items with the wording and edges of the data if it asks the same questions; each item once.

    An answer that differs from the data's is not changed.
    """
    worded: dict[str, Item] = {}
    for item in items:
        if alike := corpus.asking_alike(item):
            match = _nearest(item, alike)
            if _same_answer(item, match):
                # Additional values in the file are added to the item from the data.
                optional = {name: value for name in _OPTIONAL if (value := getattr(item, name))}
                item = replace(match, **optional)
            else:
                item = replace(item, question=match.question, edge=item.edge or match.edge)
        worded[item.id] = item
    return tuple(worded.values())


_OPTIONAL = tuple(name for name in Item.__dataclass_fields__ if name not in ("question", "answer", "edge"))


def _nearest(item: Item, alike: Sequence[Item]) -> Item:
    """Among items with the same question, return the one with the same answer and similar spelling."""
    return max(alike, key=lambda i: (_same_answer(item, i), i.question == item.question, i.edge == item.edge))


def _same_answer(first: Item, second: Item) -> bool:
    return normalised(first.answer) == normalised(second.answer)


def _counted(corpus: Corpus, name: str, items: Sequence[Item]) -> str:
    """Describe a name's meaning in the data: a selector's edges, or the matching of a file's or split's questions."""
    n = f"{len(items)} question{'s' * (len(items) != 1)}"
    if not (_split_names(corpus.settings, name) or Path(name).exists()):
        edges = list(dict.fromkeys(str(i.edge) for i in items if i.edge is not None))
        text = one_line(name, width=120)
        if edges and name.replace("person:", "edge:") != ",".join(f"edge:{edge}" for edge in edges):
            text += f" ({', '.join([*edges[:5], '...'][: len(edges)])})"
        return f"{text}, {n}"
    pairs = [(i, _nearest(i, alike)) for i in items if (alike := corpus.asking_alike(i))]
    letter = sum(item.question == match.question for item, match in pairs)
    otherwise = sum(not _same_answer(item, match) for item, match in pairs)
    text = f"{n}, {len(pairs)} found in {one_line(Path(corpus.source).name, width=60)}"
    if letter < len(pairs):
        text += f" ({letter} by the letter, {len(pairs) - letter} after normalising)"
    if otherwise:
        text += f", {otherwise} of them with another answer than the data's"
    missing = next((i for i in items if not corpus.asking_alike(i)), None)
    if missing is None:
        return text
    return f"{text}, {len(items) - len(pairs)} not in it, such as {one_line(missing.question, width=60)!r}"


def without(items: Sequence[Item], forgotten: Sequence[Item]) -> ItemTuple:
    """Return the items without the forgotten questions, whatever the wording of the answer or the name of the edge."""
    questions = {normalised(i.question) for i in forgotten}
    return tuple(i for i in items if normalised(i.question) not in questions)


def _refuse_missing(option: str, name: str | None) -> None:
    """Report a missing file before its name is read as a selector."""
    if name is None or is_selector(name) or Path(name).exists():
        return
    # Otherwise a typing error in a path would be reported as a wrong selector.
    if Path(name).suffix.lower() in FORMS or "/" in name or os.sep in name:
        raise InputError(
            f"{option} {one_line(name, width=60)}: no such file. Name a file of items, edge:NAME or person:NAME"
        )


def items_of(corpus: Corpus, name: str) -> ItemTuple:
    """The items of a file, read as the corpus was, or those that a selector selects, in the order of the corpus.

    A pack also accepts the names of its splits, separated by commas.
    """
    settings = corpus.settings
    refuse_blank(name)
    if (pack := pack_named(settings.data)) is not None and (names := _split_names(settings, name)):
        return pack.items(names)
    if Path(name).exists():
        return _read(name, settings)
    if corpus.dataset is not None:
        edges = {*select_edges(corpus.dataset.graph, name, seed=settings.split_seed)}
        return tuple(i for i in corpus.items if i.edge in edges)
    return select_items(corpus.items, name, seed=settings.split_seed, source=corpus.source)


def _split_names(settings: SourceSettings, name: str) -> list[str]:
    """Return the named splits of a pack, separated by commas. Returns None for any other value."""
    names, pack = [part.strip() for part in name.split(",")], pack_named(settings.data)
    if pack is not None and pack.splits.keys() >= {*names}:
        return names
    return []


def everything(splits: Sequence[NamedSplits]) -> ItemTuple:
    """All items of all splits, each once, in the order in which they first appear."""
    by_id: dict[str, Item] = {}
    for view in splits:
        for items in view.splits.values():
            by_id |= {item.id: item for item in items}
    return tuple(by_id.values())


CHOSEN_ON = ("forget", "retain")
"""The splits that validation needs."""


class HeldOutSplits(NamedTuple):
    """One forget set's splits, once for selection (forget and retain) and once for reporting (all splits)."""

    validation: NamedSplits
    test: NamedSplits


def held_apart(splits: NamedSplits, *, most: int, seed: int) -> HeldOutSplits:
    """At most `most` items, and at most half, of the forget and of the retain set to choose on. The rest to report on.

    Drawn in equal shares from every edge, from its entailed, guessable and free items, and from every attribute, as
    far as whole items allow.
    """
    parts = {}
    for name in CHOSEN_ON:
        items = splits.splits.get(name, ())
        if len(items) < 2:
            raise InputError(
                f"the {name} set of {one_line(splits.forget, width=60)!r} has too few items to choose on some and "
                f"report on others ({len(items)}). Give at least 2"
            )
        # At most half, so that more items are reported on than chosen by.
        n = min(most, len(items) // 2)
        parts[name] = balanced_draw(items, n, lambda i: splits.scopes.get(i.id, ""), seed=seed)
    used = {i.id for i in chain.from_iterable(parts.values())}
    rest: dict[str, ItemTuple] = {}
    for name, items in splits.splits.items():
        rest[name] = tuple(i for i in items if i.id not in used)
    return HeldOutSplits(
        NamedSplits(splits.forget, parts, splits.scopes), NamedSplits(splits.forget, _filled(rest), splits.scopes)
    )


def balanced_draw(items: Sequence[Item], n: int, scope: Callable[[Item], str], *, seed: int) -> ItemTuple:
    """`n` of the items, in their order. Which ones depends on the seed and on what items there are.

    Each edge gives its share, give or take one item, and so does each scope in it. Within those the attributes that
    have given least so far go first.
    """
    strata: dict[tuple[str, str], list[Item]] = {}
    # Sorting by id makes the draws independent of the order of the rows.
    for item in sorted(items, key=lambda i: i.id):
        strata.setdefault((item.edge or item.group or "", scope(item)), []).append(item)
    edges = sorted({edge for edge, _ in strata})
    rank = dict(zip(edges, shuffled(generator(seed, "validation places"), len(edges)).tolist(), strict=True))
    chosen: set[str] = set()
    passed = 0
    owed: dict[tuple[str, str], float] = {}
    for key in sorted(strata, key=lambda k: (rank[k[0]], k[1])):
        order = shuffled(generator(seed, "validation items", *key), len(strata[key])).tolist()
        members = sorted((strata[key][k] for k in order), key=lambda i: -owed.get(_attribute(i), 0.0))
        passed += len(members)
        # Rounding uses the running total, so that the shares of the strata add up to n.
        due = (2 * n * passed + len(items)) // (2 * len(items)) - len(chosen)
        chosen |= {i.id for i in members[:due]}
        for item in members:
            owed[_attribute(item)] = owed.get(_attribute(item), 0.0) + n / len(items) - (item.id in chosen)
    return tuple(i for i in items if i.id in chosen)


def _attribute(item: Item) -> tuple[str, str]:
    return item.group or "", item.attribute or ""


@dataclass(frozen=True)
class ProbeSources:
    """The forget and the retain set: items in `splits`, by split, and texts, each if there are any.

    `corpus` is the items' source. It contains no texts.
    """

    corpus: Corpus
    splits: NamedSplits
    forget_texts: tuple[Passage, ...] = ()
    retain_texts: tuple[Passage, ...] = ()

    @property
    def forget(self) -> tuple[Item | Passage, ...]:
        """Return the forget set."""
        return self.forget_texts or self.splits.splits["forget"]

    @property
    def retain(self) -> tuple[Item | Passage, ...]:
        """Return the known retain set."""
        return self.retain_texts or self.splits.splits.get("retain", ())


def probe_sources(
    settings: SourceSettings,
    forget: str,
    *,
    retain: str | None = None,
    n_forget: int | None = None,
    before: Sequence[ForgetSet] = (),
) -> ProbeSources:
    """Return the sets if `forget` is forgotten and `retain`, or the rest of the data, is kept.

    For texts and harmful data, `n_forget` items are drawn by `split_seed`, or all are used. Questions have no such
    number: a model forgets its whole forget set. Items in `before` are not retained (`named_splits`).
    """
    retain_source = settings.data
    if retain is not None:
        retain_source = retain
    forget_form, kept_form = form_of(forget), form_of(retain_source)
    if forget_form == "items":
        if n_forget is not None:
            raise InputError(
                f"--forget-n {n_forget} draws from texts and harmful answers, and {one_line(forget, width=60)} holds "
                "neither. Leave it out"
            )
        if kept_form == "items":
            corpus = open_corpus(settings)
            return ProbeSources(corpus, named_splits(corpus, forget, retain=retain, before=before))
    seed = settings.split_seed
    empty = Corpus(settings.data, settings, (), (), None)
    texts = texts_in(forget, forget_form, n=n_forget, seed=seed)
    items: ItemTuple = ()
    if forget_form == "harmful":
        items = load_harmful(forget, n=n_forget, seed=seed)
    elif not texts:
        items = items_of(empty, forget)
    kept_texts = settings.limited(texts_in(retain_source, kept_form, n=None, seed=seed))
    kept_items: ItemTuple = ()
    if kept_form == "items":
        kept_items = open_corpus(settings.model_copy(update={"data": retain_source})).items
    read = {p.id for p in texts}
    gone = set[str]().union(*(forget_set.items for forget_set in before))
    retained = without(kept_items, items)
    splits = {"forget": items, "retain": tuple(i for i in retained if i.id not in gone)}
    notes: Sentences = ()
    if n_gone := len(retained) - len(splits["retain"]):
        notes = (f"not kept: {n_gone} questions that were forgotten before",)
    named_sets = NamedSplits(forget, _filled(splits), {}, notes)
    return ProbeSources(empty, named_sets, texts, tuple(p for p in kept_texts if p.id not in read))
