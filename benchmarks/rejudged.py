"""Pages on models that others unlearned, from the logs that they published: `python -m benchmarks.rejudged FOLDER`.

Writes docs/findings/{rejudged,forget_quality,muse,error_rates}.md, every number anew; `--only NAME` writes one of them,
`--into DIR` writes elsewhere. FOLDER holds the repositories of `benchmarks.public_logs`; where one is missing, the
command says how to get it. No model is loaded.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata

from benchmarks import options, table
from benchmarks.error_rates import left_out, rates, scale_of, utilities
from benchmarks.public_logs import FEWEST, SOURCES, Cell, by_question, cells, folder_of, questions_of
from vestige.artifacts.audits import AuditOutcome
from vestige.artifacts.layout import RunFolder
from vestige.artifacts.verdicts import WORDS
from vestige.auditing.logs import judge_logs
from vestige.core.errors import InputError
from vestige.core.ids import file_digest
from vestige.core.seeds import generator
from vestige.logs import read_log
from vestige.logs.folders import LogGroup, recognise
from vestige.logs.log import GivenLog
from vestige.metrics.gains import leakage
from vestige.metrics.intervals import interval_of_mean
from vestige.metrics.memorization import forget_quality, privleak

RESAMPLES = 2_000
Row = Float[np.ndarray, " N"]


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
    made = "Made by `python -m benchmarks.rejudged FOLDER`. This repository contains nothing of the logs."
    return f"Logs: {said}. {made}"


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
        fewest=FEWEST,
        utility=table(["controls", "lost", "judged", "pass", "inconclusive", "fail"], utilities(logs)),
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
    return part.scores


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
    named = f" ({', '.join(told)})" if told else ""
    size = f"{len(told)} of {len(order) - 1} neighbours can be separated{named}"
    return f"Ordered by the size of PrivLeak ({', '.join(order)}), {size}."


def _copies(logs: Path) -> str:
    """Logs of two settings that are byte for byte the same."""
    root = folder_of(logs, "muse") / "knowmem/out"
    same: dict[str, list[str]] = {}
    for path in sorted(root.glob("*/*/*/forget/history.json")):
        same.setdefault(file_digest(path), []).append(path.relative_to(root).parent.parent.as_posix())
    copies = [" = ".join(names) for names in same.values() if len(names) > 1]
    return f"Byte for byte the same logs under several names: {', '.join(copies) or 'none'}."


_DROPPED = re.compile(r"(?!No claim).*(byte for byte|is left out as a control|It is left out)")
_PLACE = re.compile(r" \(/[^)]*\)")
"""The path of a log in a message."""


ROLES = Path(__file__).parent / "roles" / "calibration.csv"
"""Whose the logs are that the folder of `calibration` does not say by its names."""


def judged_groups(logs: Path) -> Iterator[tuple[LogGroup, AuditOutcome | InputError]]:
    """Every group of checkpoints that others published, as `vestige audit --logs FOLDER` judges it or rejects it.

    For `calibration` the command is `vestige audit --logs saves --logs roles=benchmarks/roles/calibration.csv`.
    """
    saves = recognise([folder_of(logs, "calibration") / "saves"], ROLES)
    for group in (*saves.groups, *recognise([folder_of(logs, "muse")]).groups):
        with TemporaryDirectory() as folder:
            run = RunFolder(Path(folder) / "run")
            try:
                yield group, judge_logs(run, group.logs, forget=group.name, forgiving=True)
            except InputError as error:
                yield group, error


def rejudged(logs: Path) -> str:
    """One row for each published checkpoint: the field's own figure, leakage by every score, utility, verdict."""
    questions, parts = questions_of(logs), []
    for group, outcome in judged_groups(logs):
        if isinstance(outcome, InputError):
            parts.append(f"## {group.name}\n\nNot judged: {re.sub(_PLACE, '', str(outcome))}")
            continue
        formats = [line.format for line in outcome.formats if line.admitted]
        if not formats:
            continue
        quality = _qualities(group, outcome, questions)
        leaks = {name: _leakages(outcome, name, formats) for name in outcome.unlearned}
        rows = [
            [name, quality.get(name, ""), *leak, *_verdicts(outcome, name)] for name, leak in leaks.items() if any(leak)
        ]
        figure = "PrivLeak" if group.name.startswith("muse") else "forget quality"
        head = ["checkpoint", figure, *formats, "utility lost", "not expressed", "utility preserved"]
        levels = "; ".join(
            f"{line.format}: target {line.target.value:.3f}, retrained {line.retrained.value:.3f}"
            for line in outcome.formats
            if line.admitted and line.retrained
        )
        told = [f"{levels}.", f"Controls: {', '.join(outcome.retrained)}."]
        dropped = [re.sub(_PLACE, "", said) for said in outcome.untested if _DROPPED.match(said)]
        unread = sum("It is left out" in said for said in dropped)
        told += [said for said in dropped if "It is left out" not in said]
        told += [f"{unread} logs are left out. The command prints the reasons."] if unread else []
        untold = len(outcome.unlearned) - len(rows)
        told += [f"{untold} more were not asked in {' or '.join(formats)}."] if untold else []
        # A checkpoint without the log of truth ratios has no forget quality.
        passing = [row for row in rows if figure != "PrivLeak" and row[1] and float(row[1]) > 0.05]
        fail = sum(row[-2].startswith("fail") for row in passing)
        told += [f"{len(passing)} of {len(rows)} pass forget quality at 0.05, and {fail} fail here."] * bool(passing)
        parts.append(f"## {group.name}, {outcome.n_judged} questions\n\n{table(head, rows)}\n\n{' '.join(told)}")
    # Where the logs lie on this machine is nobody's business.
    text = "\n\n".join(parts).replace(f"{logs}/", "")
    return filled("rejudged", parts=text, sources=sources("calibration", "muse"))


def _qualities(group: LogGroup, outcome: AuditOutcome, questions: tuple[str, ...]) -> dict[str, str]:
    """TOFU's forget quality against the published model that was retrained for this forget set, or MUSE's PrivLeak."""
    if group.name.startswith("muse"):
        lines = [line for line in outcome.membership if line.privleak is not None]
        return {line.subject: f"{line.privleak:.1f}" for line in lines}
    forget = int(group.name[-2:])
    places = range(len(questions) - 4 * forget * 10, len(questions))

    def ratios(log: GivenLog) -> Row | None:
        own = by_question(log.path, questions).get("truth", {})
        share = np.clip([own.get(place, np.nan) for place in places], 1e-12, 1 - 1e-12)
        if np.isnan(share).any():
            return None
        return 1 / share - 1

    reference = next(r for log in group.logs if log.name == f"retain{100 - forget}" if (r := ratios(log)) is not None)
    found = {log.name: ratios(log) for log in group.logs if log.role == "unlearned"}
    return {name: f"{forget_quality(own, reference):.2g}" for name, own in found.items() if own is not None}


def _leakages(outcome: AuditOutcome, name: str, formats: Sequence[str]) -> list[str]:
    """The leakage by each score with its interval; what collapsed is called so, and what was not asked is empty."""
    cells = {cell.format: cell.leakage for cell in outcome.matrix if cell.subject == name}
    found = []
    for form in formats:
        collapsed = any(said.startswith(f"{name}, {form}: collapsed") for said in outcome.untested)
        one = cells.get(form)
        found.append("collapsed" if collapsed else f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]" if one else "")
    return found


def _verdicts(outcome: AuditOutcome, name: str) -> list[str]:
    """What was lost of the questions kept, and the two verdicts."""
    harms = [f"{line.harm.value:.2f}" for line in outcome.kept if line.subject == name]
    said = {v.claim: WORDS[v.outcome] for v in outcome.verdicts if v.subject == name}
    facts = sum(line.subject == name for line in outcome.facts)
    expressed = f"{said['not expressed']}, {facts} facts given away" if facts else said["not expressed"]
    return ["; ".join(harms), expressed, said["utility preserved"]]


PAGES: Mapping[str, Callable[[Path], str]] = {
    "error_rates": error_rates,
    "forget_quality": forget_quality_page,
    "muse": muse_page,
    "rejudged": rejudged,
}


def main() -> None:
    """Write the pages, or one of them."""
    parser = options(__doc__)
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
