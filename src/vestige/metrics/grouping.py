"""What a set of texts is about: groups of like embeddings, each named by the terms that tell it from the others.

Axes: N texts, D width of an embedding, G groups.

Knowledge Holes (2511.00030, appendix C.6) lets a language model first propose clusters for the whole set and then put
each text into the nearest. This is the same in two steps without one, and without chance: average linkage by cosine
proposes the groups, then each text goes to the group whose mean direction is nearest to it. Groups are in the order of
size, the largest first; of equal ones the one whose first text comes first.

A term's weight in a group is tf ln(1 + A / f), tf how often it stands in the group, f in all groups, and A the mean
number of terms of a group (class-based tf-idf: M. Grootendorst, BERTopic, 2203.05794). English function words and
question words are no terms, since they name no topic.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform

from vestige.metrics.vendi import unit_rows

MOST_GROUPS = 12
"""The greatest number of groups that `group` tries: more are not read."""

_TERM = re.compile(r"\b[^\W\d_][\w'’-]*\w")
_FUNCTION_WORDS = """
a about after again all also am an and any are as at be because been before being between both but by can could did do
does doing don't down during each either every few for from further had has have having he her here hers him his how i
if in into is it it's its just kind let like make many may me might more most much must my no nor not of off often on
once one only or other others our out over own please same she should so some such tell than that the their them then
there these they this those through to too under until up us use used using very was way ways we were what what's when
where whether which while who whom whose why will with within without would you your
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""English function and question words, which name no topic."""


@dataclass(frozen=True)
class Group:
    """The places of a group's texts, ascending, and its terms, the most telling first."""

    members: tuple[int, ...]
    terms: tuple[str, ...]


def groups(
    texts: Sequence[str], embeddings: Float[np.ndarray, "N D"], *, n_groups: int | None = None, n_terms: int = 5
) -> list[Group]:
    """The groups of `texts`, named; none of no texts. Without `n_groups`, as many as `group` finds clearest."""
    if len(texts) != len(embeddings):
        raise ValueError(f"{len(texts)} texts but {len(embeddings)} embeddings")
    if not texts:
        return []
    labels = group(embeddings, n_groups=n_groups)
    found = terms(texts, labels, n_terms=n_terms)
    return [Group(tuple(int(i) for i in np.flatnonzero(labels == place)), found[place]) for place in range(len(found))]


def group(embeddings: Float[np.ndarray, "N D"], *, n_groups: int | None = None) -> Int[np.ndarray, " N"]:
    """The group of each text, numbered from 0 without gaps.

    Without `n_groups`, the number from 2 to `MOST_GROUPS` with the greatest mean silhouette, the fewer of equal ones.
    There can be fewer than asked for: where texts are the same, or where the second step leaves a group without one.
    """
    n = len(embeddings)
    if n_groups is not None and not 1 <= n_groups <= n:
        raise ValueError(f"{n} texts make 1 to {n} groups, not {n_groups}")
    units = unit_rows(embeddings)
    if n < 3 or n_groups == 1:
        return np.arange(n) if n_groups == n else np.zeros(n, dtype=np.int64)
    # 1 - cosine; rounding may leave it just below 0.
    apart = np.maximum(pdist(units, "cosine"), 0)
    tree = linkage(apart, "average")
    if n_groups is not None:
        return _in_order(_to_nearest(units, fcluster(tree, n_groups, "maxclust")))
    square = squareform(apart)
    tried = [
        _in_order(_to_nearest(units, fcluster(tree, k, "maxclust"))) for k in range(2, min(MOST_GROUPS, n - 1) + 1)
    ]
    return max(tried, key=lambda labels: (round(silhouette(square, labels), 12), -int(labels.max())))


def silhouette(apart: Float[np.ndarray, "N N"], labels: Int[np.ndarray, " N"]) -> float:
    """The mean over texts of (b - a) / max(a, b): a the mean distance to its own group, b to the nearest other.

    P. Rousseeuw, Silhouettes, J. Comput. Appl. Math. 20, 1987. 0 for a text alone in its group, and for one group.
    """
    n_groups = int(labels.max()) + 1
    if n_groups == 1:
        return 0.0
    member = labels[:, None] == np.arange(n_groups)
    sizes = member.sum(axis=0)
    summed = apart @ member
    own = summed[member] / np.maximum(sizes[labels] - 1, 1)
    other = np.where(member, np.inf, summed / sizes).min(axis=1)
    greater = np.maximum(own, other)
    values = np.divide(other - own, greater, out=np.zeros_like(own), where=greater > 0)
    return float(np.where(sizes[labels] > 1, values, 0).mean())


def terms(texts: Sequence[str], labels: Int[np.ndarray, " N"], *, n_terms: int = 5) -> list[tuple[str, ...]]:
    """The terms of greatest weight of each group, the earlier in the alphabet first where weights are equal.

    A term that one text alone has names its group only where no term is shared.
    """
    counts = [Counter[str]() for _ in range(int(labels.max()) + 1)]
    holders = [Counter[str]() for _ in counts]
    for text, label in zip(texts, labels, strict=True):
        own = [term for term in _TERM.findall(text.lower()) if term not in FUNCTION_WORDS]
        counts[label].update(own)
        holders[label].update(set(own))
    everywhere = sum(counts, Counter[str]())
    mean = everywhere.total() / len(counts)
    named = []
    for count, holding in zip(counts, holders, strict=True):
        weight = {t: f * math.log1p(mean / everywhere[t]) for t, f in count.items()}
        shared = [t for t in weight if holding[t] > 1] or list(weight)
        named.append(tuple(sorted(shared, key=lambda t: (-weight[t], t))[:n_terms]))
    return named


def _to_nearest(units: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """Each text in the group whose mean direction has the greatest cosine with it."""
    sums = np.zeros((int(labels.max()), units.shape[1]))
    np.add.at(sums, labels - 1, units)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    # A group whose texts point against each other has no direction; none is nearest to it.
    directions = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
    return np.asarray((units @ directions.T).argmax(axis=1), dtype=np.int64)


def _in_order(labels: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """The labels numbered anew: larger groups first, then by the first text."""
    _, first, numbered, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    place = np.empty(len(sizes), dtype=np.int64)
    place[np.lexsort((first, -sizes))] = np.arange(len(sizes))
    return place[numbered]
