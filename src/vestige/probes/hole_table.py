"""From tested candidates to holes with names, to the table of them, and to their picture.

Scores are quality, 1..10. Intervals are those of `metrics.intervals`, with prompts made from one thing as one cluster.
A source of which no prompt was judged on both sides has no row, since nothing has no mean.

Holes are named by the terms of groups of like embeddings, or by groups that a language model makes: the paper's way in
two steps (Knowledge Holes, 2511.00030, appendix C.6). It proposes a small set of labels for all prompts, then is shown
each prompt by itself and says to which label it belongs. Labels that no prompt belongs to vanish. What a model writes
is as hostile as what it read: labels are cut, made harmless and fenced like the prompts, and a reply that is anything
else than asked for is a failure. Where a model gives no labels, or places not one prompt, the groups are those of
embeddings and the table says so. Raise `NAMING_VERSION` when the words change.

The picture is the plane in which the embeddings vary most: their principal components, by an exact singular value
decomposition. Unlike t-SNE or UMAP it has no seed and no setting, its distances are never greater than the true ones,
and it can say which share of the variance it shows. The sign of a component is chosen so that its greatest loading is
positive; coordinates are rounded to `DIGITS` decimals, which is more than can be seen and less than rounding changes.

Axes: N prompts, D width of an embedding. Coordinates are in units of the embeddings, which have length 1.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from vestige.artifacts.holes import (
    Diversity,
    Hole,
    HoleGroup,
    HoleMap,
    HoleRow,
    HoleTable,
    MapPoint,
    Placebo,
    Tested,
    VendiCurve,
)
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.settings import packaged_toml
from vestige.core.text import one_line
from vestige.judges.base import Failure, Prompt, Writer, Written, refuse_limit
from vestige.judges.tasks import QUALITY_SCALE, Range, fenced, harmless, read_list, read_object, readable
from vestige.metrics.diversity import MOST_GROUPS, Selection, distinct, groups, vendi
from vestige.metrics.intervals import Bounds, interval_of_mean
from vestige.metrics.overlap import avg_self_bleu, tokens
from vestige.probes.filters import ADJACENT, Embed, Filtered, FilterSettings

NAMING_VERSION = 1
BY_TERMS = "named by their terms"
UNPLACED = "not placed by the writer"
"""The group of prompts for which there was no readable reply."""
UNNAMED = "without terms"
NO_WRITER = (
    "filter.name_groups=writer needs a language model to name them; let one judge (local:MODEL or "
    "http://host/v1#name), or leave it at terms"
)

LABEL_CHARACTERS = 60
"""The length at which a label is cut."""

_MOST_SHOWN, _PROMPT_CHARACTERS = 200, 200
_READ = 20_000
_LABEL_TOKENS, _PLACE_TOKENS = 512, 64
_TOLD = packaged_toml("vestige.probes", "asking.toml")["groups"]


R = TypeVar("R", Tested, Tested)


class NamedGroup(NamedTuple):
    """A group of holes: its name, and the places of its prompts, ascending."""

    name: str
    members: tuple[int, ...]


class Naming(NamedTuple):
    """The groups, the largest first, and in words how they came by their names."""

    groups: tuple[NamedGroup, ...]
    how: str


def by_terms(prompts: Sequence[str], embeddings: Float[np.ndarray, "N D"], *, how: str = BY_TERMS) -> Naming:
    """Groups of like embeddings, each named by the terms that tell it from the others; no two have one name."""
    clusters = groups(prompts, embeddings)
    names: list[str] = []
    for group in clusters:
        name = ", ".join(group.terms) or UNNAMED
        # Tables and colours go by the name, so that two groups of the same terms need two.
        n_before = sum(earlier == name or earlier.startswith(f"{name} (") for earlier in names)
        names.append(f"{name} ({n_before + 1})" if n_before else name)
    return Naming(tuple(NamedGroup(n, g.members) for n, g in zip(names, clusters, strict=True)), how)


def by_writer(prompts: Sequence[str], embeddings: Float[np.ndarray, "N D"], writer: Writer) -> Naming:
    """Groups that a language model proposes and fills; those of embeddings where it does not."""
    if not prompts:
        return Naming((), "")
    writer_name = writer.name.rstrip("/").rpartition("/")[2]
    (reply,) = _written(writer, [label_prompt(prompts, writer.reserved)])
    labels = read_labels(reply.text)
    if isinstance(labels, str):
        labels = reply.failure or labels
        return by_terms(prompts, embeddings, how=f"{BY_TERMS}, since {writer_name} proposed no labels ({labels})")
    written = _written(writer, [place_prompt(labels, prompt, writer.reserved) for prompt in prompts])
    places = [(reply, read_place(reply.text, len(labels))) for reply in written]
    # What befell the exchange comes before what was made of its text.
    placed = [reply.failure or label if isinstance(label, str) else label for reply, label in places]
    members: dict[str, list[int]] = {}
    for index, label in enumerate(placed):
        members.setdefault(UNPLACED if isinstance(label, str) else labels[label], []).append(index)
    n_unplaced = len(members.get(UNPLACED, ()))
    if n_unplaced == len(prompts):
        failure = Counter(label for label in placed if isinstance(label, str)).most_common(1)[0][0]
        return by_terms(prompts, embeddings, how=f"{BY_TERMS}, since {writer_name} placed no prompt ({failure})")
    ordered = sorted(members.items(), key=lambda group: (group[0] == UNPLACED, -len(group[1]), group[1][0]))
    missing = f", which placed {len(prompts) - n_unplaced} of {len(prompts)}" if n_unplaced else ""
    return Naming(tuple(NamedGroup(n, tuple(p)) for n, p in ordered), f"labelled by {writer_name}{missing}")


def label_prompt(prompts: Sequence[str], reserved: Sequence[str] = ()) -> Prompt:
    """What the model is asked first: labels for all prompts, of which an even choice is shown where they are many."""
    step = max(1, -(-len(prompts) // _MOST_SHOWN))
    # A line break in a prompt would make two questions of it.
    lines = [one_line(" ".join(prompt.split()), width=_PROMPT_CHARACTERS) for prompt in prompts[::step]]
    block, nonce = fenced({"questions": "\n".join(lines)}, reserved)
    role = _TOLD["label"]["role"].format(most=MOST_GROUPS) + _TOLD["guard"].format(nonce=nonce)
    return Prompt(role, f"{block}\n\n{_TOLD['label']['order']}", _LABEL_TOKENS, readable(read_labels))


def place_prompt(labels: Sequence[str], prompt: str, reserved: Sequence[str] = ()) -> Prompt:
    """What the model is asked about each prompt: to which of its labels it belongs."""
    topics = "\n".join(f"{n}. {label}" for n, label in enumerate(labels, 1))
    question = one_line(" ".join(prompt.split()), width=_PROMPT_CHARACTERS)
    blocks, nonce = fenced({"topics": topics, "question": question}, reserved)
    role = _TOLD["place"]["role"] + _TOLD["guard"].replace("questions", "question").format(nonce=nonce)
    accepts = readable(lambda text: read_place(text, len(labels)))
    return Prompt(role, f"{blocks}\n\n{_TOLD['place']['order'].format(n=len(labels))}", _PLACE_TOKENS, accepts)


def read_labels(text: str) -> tuple[str, ...] | Failure:
    """The one list of labels in a reply, each once; two lists that differ are ambiguous."""
    entries = read_list(text, lambda entry: isinstance(entry, str), most_read=_READ)
    if isinstance(entries, str):
        return entries
    # Reversed twice, so that of labels that are one the first spelling stays, in its place.
    labels = {_key(label): label for entry in reversed(entries) if (label := _clean(entry))}
    if not labels or len(entries) > MOST_GROUPS:
        return "out of range"
    return tuple(reversed(labels.values()))


def read_place(text: str, n_labels: int) -> int | Failure:
    """The label that a reply names, counted from 0."""
    values = read_object(text, {"topic": Range(1, n_labels)})
    return values if isinstance(values, str) else int(values["topic"]) - 1


def _written(writer: Writer, prompts: Sequence[Prompt]) -> list[Written]:
    written = writer.write(prompts)
    instead = ", or set filter.name_groups=terms,"
    refuse_limit(writer.name, written, at=" at naming the groups of holes", instead=instead)
    return written


def _clean(label: str) -> str:
    """A label on one line, without what acts or hides, cut to a length that a table holds; "" of no words."""
    line = one_line(" ".join(harmless(label).split()), width=LABEL_CHARACTERS)
    # A label that reads as the group of the unplaced would be taken for it.
    return line if any(unicodedata.category(c)[0] in "LN" for c in line) and _key(line) != UNPLACED else ""


def _key(label: str) -> str:
    """Labels that differ in case or form alone are one."""
    return unicodedata.normalize("NFKC", label).casefold()


SCALE: Bounds = (float(QUALITY_SCALE.low), float(QUALITY_SCALE.high))
CHANGE: Bounds = (SCALE[0] - SCALE[1], SCALE[1] - SCALE[0])
SHARE: Bounds = (0.0, 1.0)
EXCESS: Bounds = (-1.0, 1.0)
"""Where scores, their changes, shares and differences of shares lie."""


def holes_and_table(
    filtered: Filtered, settings: FilterSettings, embed: Embed, *, seed: int, writer: Writer | None = None
) -> tuple[tuple[Hole, ...], HoleTable]:
    """The confirmed holes in the order of the candidates, each in its group, and the table of what was tested.

    `writer` names the groups where the settings say so.
    """
    confirmed = [t for t in filtered.tested if t.hole]
    prompts = [t.prompt for t in confirmed]
    embeddings = embed(prompts) if prompts else np.zeros((0, 1))
    check_naming(settings, writer)
    if writer is not None and settings.name_groups == "writer":
        naming = by_writer(prompts, embeddings, writer)
    else:
        naming = by_terms(prompts, embeddings)
    group_of = {index: group.name for group in naming.groups for index in group.members}
    of_source = by_source(t for t in filtered.tested if not t.dropped)
    all_of_source = by_source(filtered.tested)
    adjacent = [t.prompt for t in all_of_source.get(ADJACENT, ())]
    near = embed(adjacent) if adjacent else None
    table = HoleTable(
        rows=tuple(
            _row(source, records, settings, seed=seed) for source, records in of_source.items() if _judged(records)
        ),
        dropped={
            source: dict(Counter(t.dropped for t in records if t.dropped)) for source, records in all_of_source.items()
        },
        failures=filtered.failures,
        diversity={
            # Adjacent prompts are nearest to themselves, which would say 1 of any.
            source: diversity_of([t.prompt for t in records], embed, None if source == ADJACENT else near)
            for source, records in of_source.items()
        },
        groups=tuple(
            HoleGroup(group.name, len(group.members), dict(Counter(confirmed[i].source for i in group.members)))
            for group in naming.groups
        ),
        selection={source: _in_words(chosen) for source, chosen in filtered.selections.items()},
        n_holes=len(confirmed),
        # Searches are not held against each other before, so that two may have found one hole.
        n_distinct_holes=len(distinct(embeddings, threshold=settings.alike)) if prompts else 0,
        target_calls=filtered.target_calls,
        unlearned_calls=filtered.unlearned_calls,
        naming=naming.how,
        curves={
            source: VendiCurve(
                tuple(s.n for s in chosen.subsets),
                tuple(s.share for s in chosen.subsets),
                chosen.reference.share,
                chosen.n,
            )
            for source, chosen in filtered.selections.items()
        },
    )
    return tuple(_hole(t, group_of[n]) for n, t in enumerate(confirmed)), table


def check_naming(settings: FilterSettings, writer: Writer | None) -> None:
    """Refuse to have groups named by a language model where there is none."""
    if settings.name_groups == "writer" and writer is None:
        raise InputError(NO_WRITER)


def _hole(tested: Tested, group: str) -> Hole:
    assert tested.target_answer is not None, "a hole has an answer of the target"
    assert tested.unlearned_answer is not None, "a hole has an answer of the unlearned model"
    assert tested.target_score is not None, "a hole has a score of the target"
    assert tested.unlearned_score is not None, "a hole has a score of the unlearned model"
    return Hole(
        tested.id,
        tested.prompt,
        tested.source,
        tested.target_answer,
        tested.unlearned_answer,
        tested.target_score,
        tested.unlearned_score,
        group,
    )


def by_source(records: Iterable[R]) -> dict[str, list[R]]:
    """Records by the source of their prompt, in their order."""
    groups_: dict[str, list[R]] = {}
    for record in records:
        groups_.setdefault(record.source, []).append(record)
    return groups_


def _judged(tested: Sequence[Tested]) -> list[Tested]:
    return [t for t in tested if t.target_score is not None and t.unlearned_score is not None]


def _row(source: str, tested: Sequence[Tested], settings: FilterSettings, *, seed: int) -> HoleRow:
    judged = _judged(tested)
    origins = _origins(judged)
    before = np.array([t.target_score for t in judged], dtype=float)
    after = np.array([t.unlearned_score for t in judged], dtype=float)
    estimate = partial(mean_estimate, clusters=origins, seed=seed)
    return HoleRow(
        source=source,
        n=len(tested),
        n_judged=len(judged),
        before=estimate("quality before", before, "score", SCALE),
        after=estimate("quality after", after, "score", SCALE),
        change=estimate("change of quality", after - before, "score", CHANGE),
        lowest_before=estimate("lowest score before", before <= SCALE[0], "share", SHARE),
        lowest_after=estimate("lowest score after", after <= SCALE[0], "share", SHARE),
        holes=estimate("holes", [t.hole for t in judged], "share", SHARE),
        placebos=tuple(
            placebo
            # All were asked of the same placebos, so that the first prompt names them.
            for name in tested[0].placebo_scores
            if (placebo := _placebo(name, tested, settings, seed=seed)) is not None
        ),
    )


def _placebo(name: str, tested: Sequence[Tested], settings: FilterSettings, *, seed: int) -> Placebo | None:
    """How often the placebo looks like a hole; None where no pair of it was judged."""
    pairs = [t for t in tested if t.target_score is not None and t.placebo_scores[name] is not None]
    if not pairs:
        return None
    # By the same line as true holes, or the two rates could not be subtracted.
    false = [settings.is_hole(t.target_score, t.placebo_scores[name]) for t in pairs]
    rate = mean_estimate("false holes", false, "share", SHARE, _origins(pairs), seed=seed)
    both = [(t, wrong) for t, wrong in zip(pairs, false, strict=True) if t.unlearned_score is not None]
    beyond, origins = [float(t.hole) - wrong for t, wrong in both], _origins([t for t, _ in both])
    excess = mean_estimate("holes beyond false ones", beyond, "share", EXCESS, origins, seed=seed) if both else None
    return Placebo(name, rate, excess, sum(t.placebo_answers[name] == t.target_answer for t in pairs))


def _origins(tested: Sequence[Tested]) -> list[str] | None:
    """What each prompt was made from, as its cluster; None where that is known of none."""
    return [t.origin or t.id for t in tested] if any(t.origin for t in tested) else None


def mean_estimate(
    metric: str, values: Any, unit: str, bounds: Bounds, clusters: Sequence[str] | None, *, seed: int
) -> Estimate:
    """The mean of the values over prompts; those made from one thing are one cluster."""
    scores = np.asarray(values, dtype=float)
    low, high, method = interval_of_mean(scores, clusters=clusters, bounds=bounds, seed=seed)
    return Estimate(metric, unit, float(scores.mean()), low, high, len(scores), method)


def diversity_of(prompts: Sequence[str], embed: Embed, near: Float[np.ndarray, "M D"] | None = None) -> Diversity:
    """How different prompts are, and how near to the prompts that were embedded as `near`."""
    places = embed(prompts)
    distinct_ngrams = 1 - avg_self_bleu([tokens(p) for p in prompts]) if len(prompts) > 1 else None
    cosine = None if near is None else float((places @ near.T).max(axis=1).mean())
    return Diversity(len(prompts), vendi(places).share, distinct_ngrams, cosine)


def _in_words(chosen: Selection) -> str:
    goal = f"{chosen.reference.share:.3f} of {chosen.reference.n} adjacent prompts"
    if not chosen.subsets:
        return f"nothing was left to compare with the Vendi / n of {goal}"
    tried = ", ".join(f"{subset.share:.3f} of {subset.n}" for subset in chosen.subsets)
    if not chosen.n:
        return f"none kept: Vendi / n is {tried}, always below {goal}; diverse=false keeps all"
    return f"the first {chosen.n} kept: Vendi / n is {tried}, beside {goal}"


MAP_VERSION = 1
"""Part of an identity; raised when the same prompts would lie elsewhere."""
DIGITS = 6


def hole_map(tested: Sequence[Tested], holes: Sequence[Hole], embed: Embed) -> HoleMap:
    """The map of what was tested; what was dropped before has no place in it."""
    mapped = [t for t in tested if not t.dropped]
    if not mapped:
        return HoleMap((), 1.0)
    places, share = plane(embed([t.prompt for t in mapped]))
    group_of: Mapping[str, str] = {hole.id: hole.group for hole in holes}
    points = [
        MapPoint(t.id, float(x), float(y), group_of.get(t.id, ""), t.source, t.hole)
        for t, (x, y) in zip(mapped, places, strict=True)
    ]
    return HoleMap(tuple(points), share)


def plane(embeddings: Float[np.ndarray, "N D"]) -> tuple[Float[np.ndarray, "N 2"], float]:
    """The embeddings in the plane of greatest variance, and the share of the variance there: 1 where there is none."""
    centred = embeddings.astype(np.float64) - embeddings.mean(axis=0, dtype=np.float64)
    _, lengths, components = np.linalg.svd(centred, full_matrices=False)
    components, variances = components[:2], lengths[:2] ** 2
    greatest = np.abs(components).argmax(axis=1)
    signs = np.where(components[np.arange(len(components)), greatest] < 0, -1.0, 1.0)
    # One prompt alone has one component, and stays at 0 in the other.
    places = np.zeros((len(embeddings), 2))
    places[:, : len(components)] = centred @ (components * signs[:, None]).T
    whole = float((lengths**2).sum())
    # Adding 0 takes the sign from what rounds to 0.
    return np.round(places, DIGITS) + 0.0, round(float(variances.sum()) / whole, DIGITS) if whole > 0 else 1.0
