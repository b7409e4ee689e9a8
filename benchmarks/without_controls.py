"""How verdicts without controls agree with those by retrained ones: `python -m benchmarks.without_controls FOLDER`.

Writes docs/findings/without_controls.md. FOLDER holds the repositories of `benchmarks.public_logs`, and sampease's. The
controls of each public judgement are hidden: all models of its base, and in the second count
also those of the laboratory that trained its subject. Beside predicted controls, four other rules judge without them.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit
from scipy.stats import binomtest

from benchmarks import options
from benchmarks.planted_worlds import LEAKS, NEVER, OPTION, REWORDED, WORDS, Training, World
from benchmarks.planted_worlds import case as planted_case
from benchmarks.public_logs import FORGET, by_question, folder_of, questions_of, trainings
from benchmarks.public_logs import Training as Published
from benchmarks.rejudged import ROLES, filled
from vestige.artifacts.audits import AuditOutcome, VerdictLine
from vestige.artifacts.layout import RunFolder
from vestige.artifacts.scores import Measurement
from vestige.auditing.ground import Case
from vestige.auditing.judge import judge
from vestige.auditing.logs import judge_logs, model_scores, read_logs
from vestige.auditing.predicted import LEAST_BASES, MOST, NeverSaw, _asked, predict, with_predicted
from vestige.auditing.questions import LogColumn
from vestige.auditing.table import plan_of, score_table
from vestige.core.errors import InputError
from vestige.logs import read_log
from vestige.logs.bank import never_saw
from vestige.logs.folders import recognise
from vestige.logs.log import GivenLog, LogPart
from vestige.metrics.verdicts import Thresholds

SHARES = (0.0, 0.1, 0.2, 0.3, 0.5)
"""How much of what the target knows is mixed into a training that never saw it."""
NEVER_SAW: Mapping[str, int] = {"forget10": 90, "forget05": 95, "forget01": 99}
"""By forget set, the most per cent of TOFU that a model may have seen."""
LABORATORIES: Mapping[str, str] = {"tofu": "locuslab"}
"""The names of the bank for those of `public_logs`."""
CLAIM = "not expressed"
MARGINS = Thresholds()


PREDICTED, TODAY, ALTERED = "predicted controls", "chance of options", "altered answers"
EVERY, SOME = "low rank, every score", "low rank, scores within a third"
RULES = (PREDICTED, TODAY, ALTERED, EVERY, SOME)
HONEST = ("retrained, 0 of the target mixed in", "never saw the facts")
EQUAL = 0.5
"""The share of a model that prefers no true answer to altered ones."""


class Both(NamedTuple):
    """One judgement by its controls, and by each rule that has none."""

    what: str
    by_controls: str
    found: Mapping[str, str]
    case: str = ""
    reason: str = ""


def checkpoints(logs: Path, *, laboratories: bool) -> Iterator[Both]:
    """The unlearned models of OpenUnlearning that were published checkpoint by checkpoint."""
    saves = folder_of(logs, "calibration") / "saves"
    for group in recognise([saves], ROLES).groups:
        base = group.name.split()[1].lower().replace("-instruct", "")
        own = tuple(log for log in group.logs if _of_set(log, group.name.split()[-1]))
        subjects = tuple(log for log in own if log.role != "retrained")
        lent = [one for one in never_saw(group.name) if one.base != base]
        same = [one for one in never_saw(group.name) if one.base == base and one.role == "retrained"]
        if laboratories:
            lent = [one for one in lent if one.laboratory != "open-unlearning"]
        known = _judged(own, group.name)
        guessed = _judged((*subjects, *lent), group.name)
        today = _judged(subjects, group.name)
        columns = read_logs((*subjects, *lent), forget=group.name, forgiving=True).columns if guessed else ()
        for name in dict.fromkeys(log.name for log in subjects if log.role == "unlearned"):
            found: dict[str, str] = {PREDICTED: guessed[name].outcome if name in guessed else "refused"}
            found[TODAY] = today[name].outcome if name in today else "refused"
            found |= attempts(columns, name)
            line = known.get(name)
            case = f"{' '.join(group.name.split()[1:])}, {name}"
            reason = line.reason if line else "left out"
            if found[PREDICTED] == "fails" and line and line.outcome not in DECIDED:
                reason = f"{reason} {_levels([*own, *same], group.name, name)}"
            yield Both("checkpoint", line.outcome if line else "left out", found, case, reason)


def _levels(logs: Sequence[GivenLog], forget: str, name: str) -> str:
    """The mean scores of a model, of the target and of all retrained models of its base, in a sentence."""
    means: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in read_logs(logs, forget=forget, forgiving=True).columns:
        graded = one.part.split == "forget" and one.part.measurement.score_type not in ("order", "bits")
        if graded and (one.entry.name == name or one.entry.role in ("target", "retrained")):
            means[one.part.name][one.entry.role].append(float(one.part.scores.mean()))
    said = []
    for score, roles in means.items():
        if not roles["unlearned"] or not roles["retrained"]:
            continue
        never = roles["retrained"]
        said.append(
            f"{score}: {roles['unlearned'][0]:.3f}, target {roles['target'][0]:.3f}, {len(never)} retrained models "
            f"{min(never):.3f} to {max(never):.3f}"
        )
    return f"Scores: {'. '.join(said)}."


def _of_set(log: GivenLog, forget: str) -> bool:
    """Whether a log is TOFU's and, of the target, of this forget set: it was asked about all three."""
    sizes = [len(part.scores) for part in read_log(log.path).parts if part.split == "forget"]
    return log.path.name == "TOFU_EVAL.json" and (log.role != "target" or sizes[0] == 40 * int(forget[-2:]))


def _judged(logs: Sequence[GivenLog], name: str) -> dict[str, VerdictLine]:
    with TemporaryDirectory() as folder:
        try:
            outcome = judge_logs(RunFolder(Path(folder) / "run"), logs, forget=name, forgiving=True)
        except InputError as error:
            print(f"{name}: {error}")
            return {}
    return {line.subject: line for line in outcome.verdicts if line.claim == CLAIM}


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
    alone = [one for one in given if not one.entry.base]
    found = {PREDICTED: verdict(given, predicting=True), TODAY: verdict(alone)}
    return Both(what, verdict(by_controls), found | attempts(given, "u"))


def attempts(columns: Sequence[LogColumn], name: str) -> dict[str, str]:
    """What altered answers and a low-rank model say of one model, from its scores and those of target and bank."""
    found = dict.fromkeys((ALTERED, EVERY, SOME), "refused")
    bounds: list[tuple[float, float] | None] = []
    some: list[tuple[float, float]] = []
    users = [one for one in columns if one.entry.name == name and one.part.split == "forget" and not one.entry.attack]
    for target in columns:
        wanted = target.entry.role == "target" and not target.entry.attack and target.part.split == "forget"
        own = [one for one in users if one.part.name == target.part.name]
        if not wanted or not own or target.part.measurement.score_type in ("order", "bits"):
            continue
        if target.part.name == "truth":
            scores = own[0].part.scores
            low = scores.mean() - 1.96 * scores.std(ddof=1) / np.sqrt(len(scores))
            found[ALTERED] = "fails" if low > EQUAL else "inconclusive"
        level = low_rank(target, columns)
        bounds.append(None)
        if level is None:
            continue
        gap, score = target.part.scores.mean() - level[0], own[0].part.scores.mean()
        # Beyond where target and level are, a score says nothing.
        if gap > 0 and level[0] - gap <= score <= target.part.scores.mean() + gap:
            bound = ((score - level[0] - level[1]) / gap, (score - level[0] + level[1]) / gap)
            bounds[-1] = bound
            if level[1] <= gap * MOST:
                some.append(bound)
    for rule, used in ((EVERY, bounds), (SOME, some)):
        known = [one for one in used if one is not None]
        if not known:
            continue
        found[rule] = "inconclusive"
        if any(low > MARGINS.delta for low, _ in known):
            found[rule] = "fails"
        elif len(known) == len(used) and all(high < MARGINS.delta_wide for _, high in known):
            found[rule] = "holds"
    return found


def low_rank(target: LogColumn, columns: Sequence[LogColumn]) -> tuple[float, float] | None:
    """The level of a model that never saw the questions, by a matrix of rank one, and its conformal error.

    A row of the matrix is a base model: the log-odds of its target on each question, and of its model that never saw
    them. The new base has the first half. The error is the farthest of the bases, each held out: of B exchangeable
    bases it covers another with a chance of B / (B + 1).
    """
    banked = [one for one in columns if one.entry.base]
    taught = {column.entry.base: row for column, row in _asked(target, banked, "placebo")}
    never: dict[str, list[np.ndarray]] = {}
    for column, row in _asked(target, banked, "retrained"):
        never.setdefault(column.entry.base, []).append(row)
    bases = sorted(taught.keys() & never.keys())
    if len(bases) < LEAST_BASES or np.isnan(target.part.scores).any():
        return None
    start = np.array([_log_odds(taught[base]) for base in bases])
    end = np.array([_log_odds(np.mean(never[base], axis=0)) for base in bases])
    errors = []
    for n, base in enumerate(bases):
        guessed = _completed(np.delete(start, n, axis=0), np.delete(end, n, axis=0), start[n])
        errors.append(abs(guessed - np.mean(never[base])))
    return _completed(start, end, _log_odds(target.part.scores)), float(max(errors))


def _log_odds(shares: np.ndarray) -> np.ndarray:
    return np.asarray(logit(np.clip(shares, 1e-3, 1 - 1e-3)))


def _completed(start: np.ndarray, end: np.ndarray, row: np.ndarray) -> float:
    """The mean share of the second half of a row of which the first is known. NaN where all first halves are equal."""
    matrix = np.hstack([start, end])
    mean = matrix.mean(axis=0)
    component = np.linalg.svd(matrix - mean, full_matrices=False)[2][0]
    n = len(row)
    length = component[:n] @ component[:n]
    if not length:
        return math.nan
    moved = component[:n] @ (row - mean[:n]) / length
    return float(expit(mean[n:] + moved * component[n:]).mean())


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
    table = score_table(model_scores(columns))
    try:
        plan = plan_of(table, forget="forget")
    except InputError:
        return "refused"
    if predicting:
        plan = replace(plan, evidence_level="predicted", predicted=dict(errors))
    outcome = judge(Case(plan, table), resamples=1_000)
    return _expressed(outcome)


def _expressed(outcome: AuditOutcome) -> str:
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
        case = planted_case(own)
        alone = judge(replace(case, plan=replace(case.plan, retrained=())), resamples=1_000)
        found = {PREDICTED: verdict(given, predicting=True), TODAY: _expressed(alone)}
        yield Both(world.name, verdict(by_controls), found | attempts(given, "u"))


def _planted(one: Training, name: str, role: str, *, base: str = "") -> Iterator[LogColumn]:
    entry = GivenLog(role, name, Path("planted"), laboratory="planted" if base else "", base=base)
    for score in (WORDS, REWORDED, OPTION):
        yield column(entry, score.replace("/", ", "), one[score])


def table(found: Sequence[Both], rule: str = PREDICTED) -> str:
    """Markdown: by what was judged, how the verdicts of a rule go with those by controls."""
    heads = ["judged", "number", "controls fail", "both fail", "controls pass", "controls pass, fails here"]
    heads += ["controls open, fails here", "passes here", "controls fail, passes here", "refused"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for what in dict.fromkeys(one.what for one in found):
        counts = Counter((one.by_controls, one.found[rule]) for one in found if one.what == what)
        known = Counter(one.by_controls for one in found if one.what == what)
        here = Counter(one.found[rule] for one in found if one.what == what)
        both, wrong = counts["fails", "fails"], counts["holds", "fails"]
        cells = [counts.total(), known["fails"], both, known["holds"], wrong, here["fails"] - both - wrong]
        cells += [here["holds"], counts["fails", "holds"], here["refused"]]
        lines.append(f"| {what} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def rates(groups: Mapping[str, Sequence[Both]]) -> str:
    """Markdown: by cases and rule, the share decided, agreement, wrong passes, and failures of honest models."""
    heads = ["judged", "rule", "decided", "same as controls, where both decide", "passes where controls fail"]
    heads += ["fails honest models"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for name, found in groups.items():
        for rule in dict.fromkeys(rule for one in found for rule in one.found):
            if all(one.found[rule] == "refused" for one in found):
                continue
            decided = [one for one in found if one.found[rule] in DECIDED]
            both = [one for one in decided if one.by_controls in DECIDED]
            fail = [one for one in found if one.by_controls == "fails"]
            honest = [one for one in found if one.what in HONEST]
            cells = [
                f"{len(decided)} of {len(found)}",
                share(sum(one.found[rule] == one.by_controls for one in both), len(both)),
                share(sum(one.found[rule] == "holds" for one in fail), len(fail)),
                share(sum(one.found[rule] == "fails" for one in honest), len(honest)),
            ]
            lines.append(f"| {name} | {rule} | {' | '.join(cells)} |")
    return "\n".join(lines)


DECIDED = ("holds", "fails")


def share(k: int, n: int) -> str:
    """A count with the 95 % interval of Clopper and Pearson, in per cent."""
    if not n:
        return "none"
    ends = binomtest(k, n).proportion_ci(method="exact")
    return f"{k} of {n} [{100 * ends.low:.1f}, {100 * ends.high:.1f}]"


def opened(found: Sequence[Both]) -> str:
    """Markdown: the checkpoints that fail here and that retrained controls leave open, with the reason of these."""
    lines = []
    for one in found:
        if one.case and one.found[PREDICTED] == "fails" and one.by_controls not in DECIDED:
            lines.append(f"- {one.case}: {one.reason}")
    return "\n".join(lines) or "None."


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
    parser = options(__doc__)
    parser.add_argument("logs", metavar="FOLDER", type=Path, help="the folder with the logs")
    parser.add_argument("--audits", type=int, default=10, help="planted audits a world")
    words = parser.parse_args()
    hidden = {}
    for name, laboratories in (("base hidden", False), ("base and laboratory hidden", True)):
        found = [*checkpoints(words.logs, laboratories=laboratories), *left_out(words.logs, laboratories=laboratories)]
        hidden[name] = found
    never = {world.name for world in NEVER}
    worlds = []
    for one in (one for world in (*NEVER, *LEAKS) for one in planted(world, words.audits)):
        what = "never saw the facts" if one.what in never else "knows single facts or options"
        worlds.append(one._replace(what=what))
    bases, both = hidden.values()
    page = filled(
        "without_controls",
        errors=level_errors(words.logs),
        bases=table(bases),
        both=table(both),
        planted=table(worlds),
        rates=rates({**hidden, "planted": worlds}),
        low_rank=table(bases, SOME),
        opened=opened(bases),
    )
    Path("docs/findings/without_controls.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
