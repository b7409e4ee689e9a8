"""Pages on models that others unlearned, from the logs that they published: `python -m benchmarks.rejudged FOLDER`.

Writes docs/findings/{rejudged,forget_quality,muse,error_rates}.md, every number anew; `--only NAME` writes one of them,
`--into DIR` writes elsewhere. FOLDER holds the repositories of `benchmarks.public_logs`; where one is missing, the
command says how to get it. No model is loaded.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from string import Template
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from benchmarks.error_rates import DEFAULTS, left_out, rates, scale_of
from benchmarks.public_logs import FORGET, SOURCES, Cell, by_question, cells, folder_of, questions_of
from vestige.core.errors import InputError
from vestige.core.ids import file_digest
from vestige.core.seeds import generator
from vestige.logs import read_log
from vestige.metrics.gains import leakage
from vestige.metrics.intervals import interval_of_mean
from vestige.metrics.membership import privleak
from vestige.metrics.memorization import forget_quality
from vestige.metrics.verdicts import Evidence, stays_below

RESAMPLES = 2_000
Row = Float[np.ndarray, " N"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def filled(page: str, **values: object) -> str:
    """A page from its template in benchmarks/pages, every number put in."""
    text = (Path(__file__).parent / "pages" / f"{page}.md").read_text(encoding="utf-8")
    return Template(text).substitute({name: str(value) for name, value in values.items()})


def sources(*names: str) -> str:
    """Where numbers are from, in a sentence."""
    said = ", ".join(
        f"[{SOURCES[n].repository}](https://github.com/{SOURCES[n].repository}) at {SOURCES[n].commit[:7]}"
        for n in names
    )
    return f"Logs: {said}. Made by `python -m benchmarks.rejudged FOLDER`; nothing of the logs is in this repository."


def error_rates(logs: Path) -> str:
    """How often honest models are accused, and how often a planted fifth passes."""
    judged = [one for cell in cells(logs) for one in left_out(cell)]
    n = len({(one.subject.base, one.subject.laboratory, one.subject.name) for one in judged})
    rows = [
        [
            rate.score,
            rate.controls,
            str(rate.judged),
            str(rate.subjects),
            f"{rate.holds:.3f}",
            str(rate.fails),
            f"{rate.farthest:.3f}",
            f"{rate.planted_holds:.3f}",
            f"{rate.planted_fails:.3f}",
            f"{rate.fits:.2f}",
        ]
        for rate in rates(judged)
    ]
    head = ["score", "controls", "judged", "trainings", "holds", "wrong fails", "farthest from 0"]
    head += ["wrong holds at 0.2", "fails at 0.2", "admitted"]
    wrong = sum(one.outcome == "fails" for one in judged)
    missed = sum(one.planted == "holds" for one in judged)
    return filled(
        "error_rates",
        trainings=n,
        judged=len(judged),
        wrong=wrong,
        missed=missed,
        table=table(head, rows),
        sources=sources("tofu", "npo", "altpo", "baldro", "calibration"),
    )


LEVELS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)


class Level(NamedTuple):
    """What two tests say of trainings that never knew, moved by `left` towards the target in log truth ratio."""

    left: float
    quality: float
    passes: float
    paired: float


def powers(cell: Cell) -> list[Level]:
    """Forget quality against one other training, and the audit's test against all others, for each training."""
    odds, aim = np.log(cell.rows / (1 - cell.rows)), np.log(cell.target / (1 - cell.target))
    found = []
    for left in LEVELS:
        quality, paired = [], []
        for place, own in enumerate(odds):
            moved = 1 / (1 + np.exp(-(own + left * (aim - own))))
            rest = np.delete(cell.rows, place, axis=0)
            quality += [forget_quality(1 / moved - 1, 1 / row - 1) for row in rest]
            paired.append(leakage(moved, scale_of(cell.target, rest)).p_at_most(0.0) <= 0.025)
        shares = float(np.mean(np.array(quality) > 0.05)), float(np.mean(paired))
        found.append(Level(left, float(np.median(quality)), *shares))
    return found


def forget_quality_page(logs: Path) -> str:
    """TOFU's forget quality between models that never knew, and what passes it."""
    known = [cell for cell in cells(logs, ["truth"])]
    pairs = [
        (forget_quality(1 / a - 1, 1 / b - 1), float(np.corrcoef(np.log(1 / a - 1), np.log(1 / b - 1))[0, 1]))
        for cell in known
        for a, b in combinations(cell.rows, 2)
    ]
    p, together = (np.array(side) for side in zip(*pairs, strict=True))
    chosen = [c for c in known if c.base == "Llama-2-7B" and c.forget in ("forget10", "forget01")]
    parts = []
    for cell in chosen:
        rows = [[f"{r.left:g}", f"{r.quality:.2g}", f"{r.passes:.2f}", f"{r.paired:.2f}"] for r in powers(cell)]
        head = ["left", "forget quality, median", "passes at 0.05", "paired test sees it"]
        said = f"{cell.base}, {cell.forget}, {len(cell.target)} questions, {len(cell.rows)} trainings"
        parts.append(f"### {said}\n\n{table(head, rows)}")
    return filled(
        "forget_quality",
        pairs=len(p),
        below=int((p < 0.05).sum()),
        half=f"{(p < 0.5).mean():.0%}",
        median=f"{np.median(p):.2f}",
        least=f"{p.min():.2f}",
        apart=f"{together.min():.2f}",
        together=f"{together.max():.2f}",
        parts="\n\n".join(parts),
        sources=sources("tofu", "npo", "altpo", "baldro", "calibration"),
    )


METHODS = ("ga", "ga_gdr", "ga_klr", "npo", "npo_gdr", "npo_klr", "tv", "whp")
CORPORA: Mapping[str, str] = {"bbc": "News", "hp": "Books"}


def memory(logs: Path, kind: str, place: str, split: str) -> Row:
    """ROUGE of each question, by one of MUSE's memories."""
    (part,) = read_log(folder_of(logs, "muse") / kind / "out" / place / split / "history.json").parts
    return np.array(part.scores)


def texts(logs: Path, place: str) -> tuple[Row, Row]:
    """The Min-40 % score of forget and holdout texts, more being likelier a member."""
    parts = {
        p.split: p.scores for p in read_log(folder_of(logs, "muse") / "privleak/out" / place / "forget.json").parts
    }
    return np.array(parts["forget"]), np.array(parts["holdout"])


def auc(members: Row, others: Row) -> float:
    """The share of pairs in which the holdout text scores as likelier a member, ties by half: MUSE's orientation."""
    ranks = rankdata(np.concatenate([others, members]))
    n = len(others)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * len(members)))


def leaks(logs: Path, corpus: str, names: Sequence[str]) -> dict[str, tuple[float, Row]]:
    """PrivLeak of each model, and resamples of it in which all models have the same texts."""
    known = {name: texts(logs, f"{corpus}/{name}") for name in (*names, "retrain")}
    n, m = (len(side) for side in known["retrain"])
    rng, drawn = generator(0, "privleak", corpus), {name: np.empty(RESAMPLES) for name in names}
    for turn in range(RESAMPLES):
        forget, holdout = rng.integers(0, n, n), rng.integers(0, m, m)
        level = auc(known["retrain"][0][forget], known["retrain"][1][holdout])
        for name in names:
            drawn[name][turn] = privleak(auc(known[name][0][forget], known[name][1][holdout]), level)
    level = auc(*known["retrain"])
    return {name: (privleak(auc(*known[name]), level), drawn[name]) for name in names}


def chosen_of(logs: Path, corpus: str) -> dict[str, str]:
    """The model of each method that MUSE asked by all its measures, which is the one of its table."""
    root = folder_of(logs, "muse") / "privleak/out" / corpus
    folders = ((method, sorted(path for path in (root / method).iterdir() if path.is_dir())) for method in METHODS)
    return {method: f"{method}/{found[0].name}" for method, found in folders}


def muse_page(logs: Path) -> str:
    """MUSE's own table, with the intervals that it did not have."""
    parts = []
    for corpus, name in CORPORA.items():
        chosen = {"target": "target", "retrain": "retrain", **chosen_of(logs, corpus)}
        private = leaks(logs, corpus, list(chosen.values()))
        rows = []
        for method, place in chosen.items():
            columns = [method]
            for kind, split in (("verbmem", "forget"), ("knowmem", "forget"), ("knowmem", "retain")):
                scores = memory(logs, kind, f"{corpus}/{place}", split)
                low, high, _ = interval_of_mean(scores, seed=0)
                columns.append(f"{100 * scores.mean():.1f} [{100 * low:.1f}, {100 * high:.1f}]")
            value, drawn = private[place]
            low, high = np.quantile(drawn, [0.025, 0.975])
            columns.append(f"{value:.1f} [{low:.1f}, {high:.1f}]")
            rows.append(columns)
        head = ["model", "verbatim, forget", "knowledge, forget", "knowledge, retain", "PrivLeak"]
        parts.append(f"## {name}\n\n{table(head, rows)}\n\n{_apart(private, chosen)}")
    return filled("muse", parts="\n\n".join(parts), copies=_copies(logs), sources=sources("muse"))


def _apart(private: Mapping[str, tuple[float, Row]], chosen: Mapping[str, str]) -> str:
    """How many pairs of neighbours in the order by distance from 0 are told apart by their texts."""
    order = sorted((m for m in chosen if m in METHODS), key=lambda method: abs(private[chosen[method]][0]))
    told = []
    for nearer, farther in pairwise(order):
        apart = np.abs(private[chosen[farther]][1]) - np.abs(private[chosen[nearer]][1])
        if np.quantile(apart, 0.025) > 0:
            told.append(f"{nearer} and {farther}")
    named = f" ({'; '.join(told)})" if told else ""
    size = f"{len(told)} of {len(order) - 1} neighbours are told apart{named}"
    return f"Ordered by the size of PrivLeak ({', '.join(order)}), {size}."


def _copies(logs: Path) -> str:
    """Logs of two settings that are byte for byte the same."""
    root = folder_of(logs, "muse") / "knowmem/out"
    same: dict[str, list[str]] = {}
    for path in sorted(root.glob("*/*/*/forget/history.json")):
        same.setdefault(file_digest(path), []).append(path.relative_to(root).parent.parent.as_posix())
    copies = [", ".join(names) for names in same.values() if len(names) > 1]
    return f"Byte for byte the same logs under several names: {'; '.join(copies) or 'none'}."


class Group(NamedTuple):
    """Checkpoints of one base and forget set, with their target and controls, asked by one evaluation."""

    title: str
    questions: int
    target: Mapping[str, Row]
    controls: Mapping[str, Mapping[str, Row]]
    subjects: Mapping[str, Mapping[str, Row]]


JUDGED = ("truth", "probability of a paraphrase")


def groups(logs: Path) -> Iterator[Group]:
    """Llama-3.2-3B and 3.1-8B unlearned by others, all asked by the evaluation of the same repository."""
    saves, questions = folder_of(logs, "calibration") / "saves", questions_of(logs)

    def scores(path: Path, places: range) -> dict[str, Row]:
        known = by_question(path, questions)
        return {
            s: np.array([known[s][i] for i in places]) for s in JUDGED if all(i in known.get(s, {}) for i in places)
        }

    for base in ("Llama-3.2-3B", "Llama-3.1-8B"):
        for forget, places in {**FORGET, "forget10": range(400)}.items():
            runs = sorted(
                (saves / "unlearn").glob(f"tofu_{base}-Instruct_{forget}_*/checkpoint-*/evals/TOFU_EVAL.json"),
                key=_by_step,
            )
            asked = {
                f"{p.parts[-4].rpartition('_')[2]}, step {p.parts[-3].partition('-')[2]}": scores(p, places)
                for p in runs
            }
            again = {f"retain{r}": saves / f"eval/tofu_{base}-Instruct_retain{r}/TOFU_EVAL.json" for r in (90, 95, 99)}
            for task in sorted((saves / "finetune").glob(f"tofu_{base}-Instruct_*")):
                again[f"{task.name.rpartition('_')[2]}, another training"] = max(
                    task.glob("checkpoint-*/evals/TOFU_EVAL.json"), key=_by_step
                )
            never = {name: own for name, path in again.items() if path.is_file() and (own := scores(path, places))}
            target = scores(saves / f"eval/tofu_{base}-Instruct_ft_retain90/TOFU_EVAL.json", places)
            if asked and never:
                yield Group(f"{base}, {forget}", len(places), target, never, asked)


def _by_step(path: Path) -> tuple[str, int]:
    return path.parts[-4], int(path.parts[-3].partition("-")[2])


def rejudged(logs: Path) -> str:
    """One row for each published checkpoint: forget quality, leakage with its bounds, verdict."""
    parts = []
    for group in groups(logs):
        rows = [list(row) for name, own in group.subjects.items() if (row := _rejudged(name, own, group))]
        passing = [row for row in rows if float(row[1]) > 0.05]
        fail = sum(row[4] == "fails" for row in passing)
        head = ["checkpoint", "forget quality", "paraphrase", "leakage by truth share", "verdict"]
        said = f"Target {group.target['truth'].mean():.3f}, {len(group.controls)} retrained: " + ", ".join(
            f"{name} {own['truth'].mean():.3f}" for name, own in group.controls.items()
        )
        counts = f"Of {len(rows)} checkpoints {len(passing)} pass forget quality at 0.05; {fail} of these fail here."
        title = f"## {group.title}, {group.questions} questions"
        parts.append(f"{title}\n\n{table(head, rows)}\n\n{said}. {counts}")
    return filled("rejudged", parts="\n\n".join(parts), sources=sources("calibration"))


def _rejudged(name: str, own: Mapping[str, Row], group: Group) -> tuple[str, ...] | None:
    if "truth" not in own:
        return None
    controls = group.controls
    reference = next(rows for n, rows in controls.items() if n == f"retain{100 - int(group.title[-2:])}")
    share = np.clip(own["truth"], 1e-12, 1 - 1e-12)
    quality = f"{forget_quality(1 / share - 1, 1 / reference['truth'] - 1):.2g}"
    rows = np.stack([one["truth"] for one in controls.values()])
    means, target, level = rows.mean(axis=1), group.target["truth"], float(own["truth"].mean())
    gap = float(target.mean() - means.mean())
    paraphrase = float(own.get("probability of a paraphrase", np.array([np.nan])).mean())
    if not means.min() - gap <= level <= max(float(target.mean()), means.max()) + gap:
        return name, quality, f"{paraphrase:.3f}", f"({(level - means.mean()) / gap:.1f})", "collapsed"
    drawn = leakage(own["truth"], scale_of(target, rows))
    low, high = drawn.ends
    outcome = stays_below([Evidence("truth", drawn, "leakage", "leakage")], DEFAULTS).outcome
    said = {"inconclusive": "open"}.get(outcome, outcome)
    return name, quality, f"{paraphrase:.3f}", f"{drawn.value:.2f} [{low:.2f}, {high:.2f}]", said


PAGES: Mapping[str, Callable[[Path], str]] = {
    "error_rates": error_rates,
    "forget_quality": forget_quality_page,
    "muse": muse_page,
    "rejudged": rejudged,
}


def main() -> None:
    """Write the pages, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path, metavar="FOLDER", help="the folder with the logs")
    parser.add_argument("--only", choices=tuple(PAGES), help="one page")
    parser.add_argument("--into", type=Path, default=Path("docs/findings"), help="where pages are written")
    words = parser.parse_args()
    for name in [words.only] if words.only else PAGES:
        try:
            page = PAGES[name](words.logs)
        except InputError as error:
            sys.exit(str(error))
        (words.into / f"{name}.md").write_text(page, encoding="utf-8")
        print(words.into / f"{name}.md")


if __name__ == "__main__":
    main()
