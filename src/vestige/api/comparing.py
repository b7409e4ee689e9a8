"""`compare`: models on the same questions."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from vestige.api.inputs import PathLikeStr, verb
from vestige.api.results import Comparison
from vestige.core.errors import InputError


@verb
def compare(
    first: PathLikeStr,
    *others: PathLikeStr,
    clusters: Mapping[str, str] | None = None,
    difference: float | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare models on the same questions by their logs or tables of scores. No control is needed.

    Args:
        first: A log, a folder of logs of one model, a table of scores, or the folder of an audit. The other models are
            compared with it.
        others: The logs or tables of the other models. They may be left out if the first is a table of several models.
        clusters: By question id or question text, the document or group of the question.
        difference: The function returns the number of questions that this difference needs. The observed one by
            default.
        seed: Seed of the resamples.

    Returns:
        Paired differences with 95 % intervals, p-values corrected by Holm's method over all rows, and the number of
        questions that would show the difference.

    Raises:
        InputError: A log cannot be read, or two models have no question or score in common.

    Example:
        >>> vestige.compare("base/samples_arc.jsonl", "mine/samples_arc.jsonl").to_frame()  # doctest: +SKIP
    """
    from vestige.auditing.compare import compare as compare_models

    paths = [Path(path) for path in (first, *others)]
    names = short_names(paths)
    models = dict(zip(names, paths, strict=True))
    compared = compare_models(models, clusters=clusters, difference=difference, seed=seed)
    return Comparison(compared.rows, compared.questions, tuple(map(str, paths)))


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the part of each path that tells it from all others, or otherwise the shortest different endings."""
    parts = [path.with_suffix("").parts for path in paths]
    for place in range(1, min(map(len, parts)) + 1):
        names = [part[-place] for part in parts]
        # OpenUnlearning writes the log of each model into a folder evals or evals_FORGET.
        if len(set(names)) == len(names) and not all(name.startswith("evals") for name in names):
            return names
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise InputError("two of the logs are the same file. Give the logs of different models.")
