"""A picture in two dimensions of the prompts that were tested, with the holes among them.

Axes: N prompts, D width of an embedding. Coordinates are in units of the embeddings, which have length 1.

The picture is the plane in which the embeddings vary most: their principal components, by an exact singular value
decomposition. Unlike t-SNE or UMAP it has no seed and no setting, its distances are never greater than the true ones,
and it can say which share of the variance it shows. The sign of a component is chosen so that its greatest loading is
positive; coordinates are rounded to `DIGITS` decimals, which is more than can be seen and less than rounding changes.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from vestige.artifacts.holes import Hole, HoleMap, MapPoint, Tested
from vestige.probes.filters import Embed

VERSION = 1
"""Part of an identity; raised when the same prompts would lie elsewhere."""
DIGITS = 6


def hole_map(tested: Sequence[Tested], holes: Sequence[Hole], embed: Embed) -> HoleMap:
    """The map of what was tested; what was dropped before has no place in it."""
    shown = [t for t in tested if not t.dropped]
    if not shown:
        return HoleMap((), 1.0)
    places, share = plane(embed([t.prompt for t in shown]))
    group_of: Mapping[str, str] = {hole.id: hole.group for hole in holes}
    points = [
        MapPoint(t.id, float(x), float(y), group_of.get(t.id, ""), t.source, t.hole)
        for t, (x, y) in zip(shown, places, strict=True)
    ]
    return HoleMap(tuple(points), share)


def plane(embeddings: Float[np.ndarray, "N D"]) -> tuple[Float[np.ndarray, "N 2"], float]:
    """The embeddings in the plane of greatest variance, and the share of the variance there: 1 where there is none."""
    centred = embeddings.astype(np.float64) - embeddings.mean(axis=0, dtype=np.float64)
    _, lengths, components = np.linalg.svd(centred, full_matrices=False)
    components, kept = components[:2], lengths[:2] ** 2
    greatest = np.abs(components).argmax(axis=1)
    signs = np.where(components[np.arange(len(components)), greatest] < 0, -1.0, 1.0)
    places = np.zeros((len(embeddings), 2))
    places[:, : len(components)] = centred @ (components * signs[:, None]).T
    whole = float((lengths**2).sum())
    # Adding 0 takes the sign from what rounds to 0.
    return np.round(places, DIGITS) + 0.0, round(float(kept.sum()) / whole, DIGITS) if whole > 0 else 1.0
