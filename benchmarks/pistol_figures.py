"""Welch's tests on PISTOL's published figures (Qiu et al., 2406.16810): means ± SDs of Tables 1, 2, 3 and 4, ROUGE-1.

`python -m benchmarks.pistol_figures` prints what docs/papers.md says of them. Tables 1, 3 and 4 are of three trainings
(Appendix B). Table 2 draws five edges of each part (section 4), so that a cell has five numbers at least; were each of
the five trained three times, it would have fifteen.
"""

from typing import NamedTuple

from scipy.stats import ttest_ind_from_stats

MODELS = ("Llama2-7B", "Mistral-7B")
METHODS = ("GA", "GD", "KL", "DPO")
TRAININGS, EDGES = 3, 5

Cell = tuple[float, float]
"""A mean and its standard deviation."""
FORGET = (
    {
        "AB": ((0.521, 0.050), (0.654, 0.029), (0.700, 0.050), (0.300, 0.000)),
        "AC": ((0.267, 0.029), (0.283, 0.029), (0.505, 0.256), (0.242, 0.000)),
        "AC, AC2, AC3": ((0.000, 0.000), (0.134, 0.037), (0.003, 0.005), (0.075, 0.025)),
        "sparse": ((0.430, 0.104), (0.538, 0.144), (0.197, 0.085), (0.220, 0.091)),
        "dense": ((0.576, 0.093), (0.623, 0.115), (0.302, 0.080), (0.230, 0.057)),
    },
    {
        "AB": ((0.325, 0.029), (0.347, 0.075), (0.667, 0.052), (0.150, 0.050)),
        "AC": ((0.184, 0.058), (0.261, 0.077), (0.739, 0.010), (0.000, 0.000)),
        "AC, AC2, AC3": ((0.000, 0.000), (0.000, 0.000), (0.000, 0.000), (0.005, 0.002)),
        "sparse": ((0.268, 0.098), (0.272, 0.102), (0.694, 0.177), (0.030, 0.027)),
        "dense": ((0.403, 0.096), (0.435, 0.079), (0.935, 0.038), (0.050, 0.061)),
    },
)
"""By model, what is left of the forget set by method."""
INDEPENDENT = (
    {
        "AC, sales": ((0.772, 0.009), (0.911, 0.010), (0.772, 0.186), (0.939, 0.010)),
        "AC, employment": ((0.955, 0.010), (0.961, 0.000), (0.821, 0.119), (0.983, 0.000)),
        "An, sales": ((0.950, 0.029), (0.983, 0.017), (0.819, 0.003), (0.989, 0.010)),
        "An, employment": ((0.744, 0.013), (0.886, 0.013), (0.844, 0.067), (0.939, 0.010)),
    },
    {
        "AC, sales": ((0.905, 0.010), (0.963, 0.003), (1.000, 0.000), (0.967, 0.017)),
        "AC, employment": ((0.983, 0.000), (1.000, 0.000), (1.000, 0.000), (0.983, 0.000)),
        "An, sales": ((0.904, 0.013), (0.933, 0.000), (1.000, 0.000), (0.983, 0.000)),
        "An, employment": ((0.839, 0.029), (0.950, 0.010), (0.978, 0.009), (0.978, 0.009)),
    },
)
"""By model, what is left of independent contracts of each type after a sales (AC) or employment contract (An)."""


class Difference(NamedTuple):
    """First less second, and the p-value of Welch's test; None where neither mean has a spread.

    Of question 4, `model` is the forget set.
    """

    question: str
    model: str
    method: str
    value: float
    p: float | None


def difference(question: str, model: str, method: str, first: Cell, second: Cell, n: int) -> Difference:
    """One cell's difference, each mean being of `n` numbers."""
    p = (
        None
        if first[1] == second[1] == 0
        else float(ttest_ind_from_stats(*first, n, *second, n, equal_var=False).pvalue)
    )
    return Difference(question, model, method, first[0] - second[0], p)


def differences() -> list[Difference]:
    """All that the page counts, question by question."""
    rows = []
    for model, forget, kept in zip(MODELS, FORGET, INDEPENDENT, strict=True):
        for k, method in enumerate(METHODS):
            pairs = [
                ("1, Table 1: AB less AC", forget["AB"][k], forget["AC"][k], TRAININGS),
                ("1, Table 2: dense less sparse", forget["dense"][k], forget["sparse"][k], EDGES),
                ("2, Table 3: three contracts less one", forget["AC, AC2, AC3"][k], forget["AC"][k], TRAININGS),
                ("3, Table 4: same type less other", kept["AC, sales"][k], kept["AC, employment"][k], TRAININGS),
                ("3, Table 4: same type less other", kept["An, employment"][k], kept["An, sales"][k], TRAININGS),
            ]
            rows += [difference(question, model, method, first, second, n) for question, first, second, n in pairs]
    for k, method in enumerate(METHODS):
        for name in ("AB", "AC", "AC, AC2, AC3"):
            first, second = (forget[name][k] for forget in FORGET)
            rows.append(difference("4: Mistral-7B less Llama2-7B", name, method, second, first, TRAININGS))
    return rows


def main() -> None:
    """Print every difference, and for each question how many go which way."""
    rows = sorted(differences(), key=lambda row: row.question)
    for row in rows:
        p = "no spread" if row.p is None else f"p = {row.p:.3f}"
        print(f"{row.question:36} {row.model:12} {row.method:4} {row.value:+.3f} {p}")
    for question in dict.fromkeys(row.question for row in rows):
        part = [row for row in rows if row.question == question]
        above, below = sum(row.value > 0 for row in part), sum(row.value < 0 for row in part)
        clear = sum(row.p is not None and row.p < 0.05 for row in part)
        print(f"{question}: {above} above 0, {below} below, {clear} of {len(part)} at p < 0.05")


if __name__ == "__main__":
    main()
