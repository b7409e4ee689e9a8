"""How verdicts by predicted and by retrained controls agree: `python -m benchmarks.without_controls FOLDER`.

Writes docs/findings/without_controls.md. FOLDER holds the repositories of `benchmarks.public_logs`, and sampease's. The
controls of each public judgement are hidden: all models of its base, and in the second count also those of
the laboratory that trained its subject.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from benchmarks.planted_worlds import LEAKS, NEVER, OPTION, REWORDED, WORDS, Training, World
from benchmarks.public_logs import FORGET, by_question, folder_of, questions_of, trainings
from benchmarks.public_logs import Training as Published
from benchmarks.rejudged import ROLES, filled
from vestige.artifacts.layout import RunFolder
from vestige.artifacts.scores import Measurement
from vestige.auditing.ground import Case
from vestige.auditing.judge import judge
from vestige.auditing.logs import _rows, judge_logs
from vestige.auditing.predicted import NeverSaw, predict, with_predicted
from vestige.auditing.questions import LogColumn
from vestige.auditing.table import plan_of, score_table
from vestige.core.errors import InputError
from vestige.logs import read_log
from vestige.logs.bank import never_saw
from vestige.logs.folders import recognise
from vestige.logs.log import GivenLog, LogPart

SHARES = (0.0, 0.1, 0.2, 0.3, 0.5)
"""How much of what the target knows is mixed into a training that never saw it."""
NEVER_SAW: Mapping[str, int] = {"forget10": 90, "forget05": 95, "forget01": 99}
"""By forget set, the most per cent of TOFU that a model may have seen."""
LABORATORIES: Mapping[str, str] = {"tofu": "locuslab"}
"""The names of the bank for those of `public_logs`."""
CLAIM = "not expressed"


class Both(NamedTuple):
    """One judgement by its controls and by predicted ones."""

    what: str
    by_controls: str
    predicted: str


def checkpoints(logs: Path, *, laboratories: bool) -> Iterator[Both]:
    """The unlearned models of OpenUnlearning that were published checkpoint by checkpoint."""
    saves = folder_of(logs, "calibration") / "saves"
    for group in recognise([saves], ROLES).groups:
        base = group.name.split()[1].lower().replace("-instruct", "")
        own = tuple(log for log in group.logs if _of_set(log, group.name.split()[-1]))
        subjects = tuple(log for log in own if log.role != "retrained")
        lent = [one for one in never_saw(group.name) if one.base != base]
        if laboratories:
            lent = [one for one in lent if one.laboratory != "open-unlearning"]
        known = _judged(own, group.name)
        guessed = _judged((*subjects, *lent), group.name)
        for name in dict.fromkeys(log.name for log in subjects if log.role == "unlearned"):
            yield Both("checkpoint", known.get(name, "left out"), guessed.get(name, "refused"))


def _of_set(log: GivenLog, forget: str) -> bool:
    """Whether a log is TOFU's and, of the target, of this forget set: it was asked about all three."""
    sizes = [len(part.scores) for part in read_log(log.path).parts if part.split == "forget"]
    return log.path.name == "TOFU_EVAL.json" and (log.role != "target" or sizes[0] == 40 * int(forget[-2:]))


def _judged(logs: Sequence[GivenLog], name: str) -> dict[str, str]:
    with TemporaryDirectory() as folder:
        try:
            outcome = judge_logs(RunFolder(Path(folder) / "run"), logs, forget=name, forgiving=True)
        except InputError as error:
            print(f"{name}: {error}")
            return {}
    return {line.subject: line.outcome for line in outcome.verdicts if line.claim == CLAIM}


class Read(NamedTuple):
    """A published training, and its scores by forget set and name."""

    of: Published
    scores: Mapping[tuple[str, str], np.ndarray]

    @property
    def laboratory(self) -> str:
        """As the bank names it."""
        return LABORATORIES.get(self.of.laboratory, self.of.laboratory)


def read(logs: Path) -> list[Read]:
    """All trainings of TOFU, and sampease's where its repository is there."""
    questions, found = questions_of(logs), []
    known = [one for one in trainings(logs) if "_" not in one.base]
    for path in sorted((logs / "sampease").rglob("retain9?_eval.json")):
        share = int(path.name[6:8])
        known.append(Published("Llama-3.2-1B", "sampease", "sampease", path.stem, "retrained", share, True, path))
    for one in known:
        scores: dict[tuple[str, str], np.ndarray] = {}
        for name, by_place in by_question(one.path, questions).items():
            for forget, places in FORGET.items():
                row = np.array([by_place.get(place, np.nan) for place in places])
                if not np.isnan(row).any():
                    scores[forget, name] = row
        found.append(Read(one, scores))
    return found


def left_out(logs: Path, *, laboratories: bool) -> Iterator[Both]:
    """Every training that never saw a forget set as the subject, as it is and with a share of what the target knows."""
    known = read(logs)
    bank = [one for one in known if _in_bank(one)]
    for subject in known:
        for forget, most in NEVER_SAW.items():
            if subject.of.role != "retrained" or not 80 <= subject.of.retain <= most:
                continue
            again = subject.of.logged == "calibration"
            same = [one for one in known if one.of.base == subject.of.base and any(f == forget for f, _ in one.scores)]
            asked = {key for key in subject.scores if key[0] == forget}
            targets = [one for one in same if one.of.role == "target" and asked & one.scores.keys()]
            # The target of the same laboratory and evaluation, else of any.
            targets.sort(key=lambda one: (one.of.logged != subject.of.logged, one.laboratory != subject.laboratory))
            controls = [
                one
                for one in same
                if one.of.role == "retrained"
                and 80 <= one.of.retain <= most
                and one.of.path != subject.of.path
                and (one.of.logged == "calibration") == again
            ]
            if not targets or len(controls) < 2:
                continue
            hidden = {subject.laboratory} if laboratories else set()
            lent = [one for one in bank if one.of.base != subject.of.base and one.laboratory not in hidden]
            lent = [one for one in lent if one.of.role == "target" or one.of.retain <= most]
            for share in SHARES:
                yield _both(
                    f"retrained, {share:g} of the target mixed in", subject, targets[0], controls, lent, forget, share
                )


def _in_bank(one: Read) -> bool:
    of = one.of
    if of.logged == of.laboratory == "open-unlearning":
        return True
    # The logs of TOFU's own evaluation hold three quarters of forget10, which the bank leaves out.
    return of.laboratory == "sampease" or (of.laboratory in ("tofu", "npo") and of.retain in (95, 99))


def _both(
    what: str, subject: Read, target: Read, controls: Sequence[Read], lent: Sequence[Read], forget: str, share: float
) -> Both:
    mixed = {}
    for key, row in subject.scores.items():
        if key in target.scores:
            mixed[key] = (1 - share) * row + share * target.scores[key]
    given = [
        *_columns(target, "target", "target", forget),
        *_columns(subject._replace(scores=mixed), "u", "unlearned", forget),
    ]
    by_controls = list(given)
    for n, one in enumerate(controls):
        by_controls += _columns(one, f"retrained {n}", "retrained", forget)
    for n, one in enumerate(lent):
        role = "placebo" if one.of.role == "target" else "retrained"
        given += _columns(one, f"bank {n}", role, forget, base=one.of.base)
    return Both(what, verdict(by_controls), verdict(given, predicting=True))


def _columns(one: Read, name: str, role: str, forget: str, *, base: str = "") -> Iterator[LogColumn]:
    """The scores on one forget set."""
    entry = GivenLog(role, name, one.of.path, laboratory=one.laboratory if base else "", base=base)
    for (of, score), row in one.scores.items():
        if of == forget:
            yield column(entry, score, row)


def column(entry: GivenLog, score: str, row: np.ndarray) -> LogColumn:
    """One column of a table."""
    names = tuple(f"question {place:03}" for place in range(len(row)))
    measurement = Measurement(score, "own words", "overlap", ratio=score == "truth")
    return LogColumn(entry, LogPart("forget", measurement, row, names, names, names), names)


def verdict(columns: Sequence[LogColumn], *, predicting: bool = False) -> str:
    """The verdict on "not expressed", or that it is refused."""
    errors: Mapping[str, float] = {}
    if predicting:
        try:
            columns, errors, _ = with_predicted(columns)
        except InputError:
            return "refused"
    table = score_table(_rows(columns))
    plan = plan_of(table, forget="forget")
    if predicting:
        plan = replace(plan, evidence_level="predicted", predicted=dict(errors))
    outcome = judge(Case(plan, table), resamples=1_000)
    return next(line.outcome for line in outcome.verdicts if line.claim == CLAIM)


def planted(world: World, audits: int) -> Iterator[Both]:
    """One planted world: five controls against predictions from four other bases, whose scores are shifted."""
    for number in range(audits):
        rng = np.random.default_rng([number, 9, *world.name.encode()])
        audit = world.draw(rng, 9)
        own = audit._replace(controls=audit.controls[:5])
        given = [*_planted(own.target, "target", "target"), *_planted(own.subject, "u", "unlearned")]
        by_controls = list(given)
        for n, one in enumerate(own.controls):
            by_controls += _planted(one, f"retrained {n}", "retrained")
        for n, one in enumerate(audit.controls[5:]):
            moved = one | {OPTION: expit(logit(np.clip(one[OPTION], 1e-6, 1 - 1e-6)) + 0.3 * rng.normal())}
            given += _planted(moved, f"bank {n}", "retrained", base=f"base {n}")
            given += _planted(own.target, f"bank target {n}", "placebo", base=f"base {n}")
        yield Both(world.name, verdict(by_controls), verdict(given, predicting=True))


def _planted(one: Training, name: str, role: str, *, base: str = "") -> Iterator[LogColumn]:
    entry = GivenLog(role, name, Path("planted"), laboratory="planted" if base else "", base=base)
    for score in (WORDS, REWORDED, OPTION):
        yield column(entry, score.replace("/", ", "), one[score])


def table(found: Sequence[Both]) -> str:
    """Markdown: by what was judged, how the two verdicts go together."""
    heads = ["judged", "number", "controls fail", "both fail", "controls pass", "controls pass, fails here"]
    heads += ["controls open, fails here", "passes here", "refused"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for what in dict.fromkeys(one.what for one in found):
        counts = Counter((one.by_controls, one.predicted) for one in found if one.what == what)
        fails = sum(n for (known, _), n in counts.items() if known == "fails")
        holds = sum(n for (known, _), n in counts.items() if known == "holds")
        here = sum(n for (_, guessed), n in counts.items() if guessed == "fails")
        passes = sum(n for (_, guessed), n in counts.items() if guessed == "holds")
        refused = sum(n for (_, guessed), n in counts.items() if guessed == "refused")
        both, wrong = counts["fails", "fails"], counts["holds", "fails"]
        cells = [counts.total(), fails, both, holds, wrong, here - both - wrong, passes, refused]
        lines.append(f"| {what} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def level_errors(logs: Path) -> str:
    """Markdown: by score, how far the predicted level of a hidden base is from its retrained models, in gaps."""
    known, errors = read(logs), dict[str, list[float]]()
    for forget, most in NEVER_SAW.items():
        lent = [one for one in known if _in_bank(one) and (one.of.role == "target" or one.of.retain <= most)]
        for target in (one for one in lent if one.of.role == "target"):
            for score in (score for of, score in target.scores if of == forget):
                asked = [one for one in lent if (forget, score) in one.scores]
                means = {one.of: one.scores[forget, score].mean() for one in asked}
                never = [one for one in asked if one.of.role == "retrained"]
                hidden = [means[one.of] for one in never if one.of.base == target.of.base]
                others = [one for one in never if one.of.base != target.of.base]
                rows = [NeverSaw(one.of.base, one.laboratory, one.scores[forget, score]) for one in others]
                levels = {one.of.base: means[one.of] for one in asked if one.of.role == "target"}
                levels.pop(target.of.base)
                prediction = predict(rows, levels, means[target.of]) if hidden else None
                if prediction is not None:
                    gap = means[target.of] - np.mean(hidden)
                    errors.setdefault(score, []).append(float((prediction.level - np.mean(hidden)) / gap))
    lines = ["| score | bases and forget sets | root mean square | farthest |", "| --- | --- | --- | --- |"]
    for score, found in errors.items():
        far = max(found, key=abs)
        lines.append(f"| {score} | {len(found)} | {np.sqrt(np.mean(np.square(found))):.3f} | {far:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Write docs/findings/without_controls.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", metavar="FOLDER", type=Path, help="the folder with the logs")
    parser.add_argument("--audits", type=int, default=10, help="planted audits a world")
    words = parser.parse_args()
    bases = [*checkpoints(words.logs, laboratories=False), *left_out(words.logs, laboratories=False)]
    both = [*checkpoints(words.logs, laboratories=True), *left_out(words.logs, laboratories=True)]
    worlds = [one for world in (*NEVER, *LEAKS) for one in planted(world, words.audits)]
    write_page(level_errors(words.logs), table(bases), table(both), worlds)


def write_page(errors: str, bases: str, both: str, worlds: Sequence[Both]) -> None:
    """Fill the template."""
    never = {world.name for world in NEVER}
    planted_rows = []
    for one in worlds:
        what = "never saw the facts" if one.what in never else "knows single facts or options"
        planted_rows.append(one._replace(what=what))
    page = filled("without_controls", errors=errors, bases=bases, both=both, planted=table(planted_rows))
    Path("docs/findings/without_controls.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
