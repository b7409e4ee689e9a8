"""Splits of the same size as one that was asked for, drawn at random from the same items."""

from collections import Counter

from vestige.core.seeds import generator
from vestige.data.corpus import NamedSplits


def random_split(splits: NamedSplits, *, seed: int) -> NamedSplits:
    """As many items to forget as before, drawn from both splits: whole edges, where all items have one, until reached.

    Other splits and scopes stay behind, since they belong to the forget set that was asked for.
    """
    forget, retain = splits.splits["forget"], splits.splits["retain"]
    items = (*forget, *retain)
    edges = [i.edge if i.edge is not None else i.id for i in items]
    groups = edges if all(i.edge is not None for i in items) else [i.id for i in items]
    sizes = Counter(groups)
    names = sorted(sizes)
    chosen: set[str] = set()
    n = 0
    for place in generator(seed, "random split").permutation(len(names)).tolist():
        if n >= len(forget):
            break
        chosen.add(names[place])
        n += sizes[names[place]]
    picked = [group in chosen for group in groups]
    parts = {
        "forget": tuple(i for i, taken in zip(items, picked, strict=True) if taken),
        "retain": tuple(i for i, taken in zip(items, picked, strict=True) if not taken),
    }
    return NamedSplits(f"random split of {splits.forget}, seed {seed}", parts, {})
