"""`vestige audit --logs`: verdicts from the logs of other tools, without a model."""

import gc
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vestige.core.errors import InputError, PartialFailure
from vestige.core.files import refuse_special
from vestige.core.progress import say
from vestige.core.text import Record, TextByName, closest, one_line
from vestige.report.text import print_audit, print_summaries, print_table

if TYPE_CHECKING:
    from vestige.artifacts.audits import AuditOutcome, Claim
    from vestige.artifacts.layout import RunFolder
    from vestige.auditing.logs import Stated
    from vestige.logs.folders import LogGroup, Recognised, Unused
    from vestige.logs.log import Scale

EXAMPLE = "example"
OUTPUT = Path("runs/judged")
"""The default folder of the verdicts."""
FORGET = "the forget set"


class Taken(NamedTuple):
    """The judged logs or table, the reasons to skip other logs, and the user's statements."""

    groups: "tuple[LogGroup, ...]"
    table: Path | None = None
    left_out: "tuple[Unused, ...]" = ()
    forgiving: bool = False
    stated: "Stated | None" = None


def take(
    words: Sequence[str], forget: str | None, *, without_controls: bool = False, without_target: bool = False
) -> Taken:
    """Return the logs, folders or table of `--logs`, with the user's statements about them.

    Args:
        words: ROLE[:NAME[@ATTACK]]=FILE several times, folders, a table, or `example`. Statements are
            `roles=FILE`, `task:NAME=SPLIT`, `score:NAME=RANGE` and `column:KIND=NAME`.
        forget: The judged forget set.
        without_controls: Predict the controls from the models of the bank.
        without_target: The target is from the bank.

    Returns:
        The logs in groups, or the table.

    Raises:
        InputError: A word names nothing, or the words do not go together.
    """
    from vestige.auditing.logs import Stated, files_of
    from vestige.auditing.predicted import predicting
    from vestige.auditing.table import ROLES
    from vestige.logs import reader_of
    from vestige.logs.folders import LogGroup, recognise
    from vestige.logs.log import GivenLog, How
    from vestige.logs.rows import COLUMNS

    logs: list[GivenLog] = []
    folders: list[Path] = []
    tables: list[Path] = []
    splits: TextByName = {}
    scales: dict[str, Scale] = {}
    columns: TextByName = {}
    roles: Path | None = None
    score = next((word.partition("=")[2] for word in words if word.startswith("column:score=")), "")
    for word in words:
        refuse_special(word)
        key, equals, value = word.partition("=")
        kind, _, name = key.partition(":")
        stating = bool(equals) and (kind in ROLES or kind in ("task", "score", "column") or key == "roles")
        # An empty path would be the current folder.
        if stating and not value.strip():
            raise InputError(f"--logs {one_line(word, width=200)!r}: the value after = is missing. Add it.")
        # A file name may contain =. Without a role before it, the whole word is a path.
        if stating:
            if kind in ROLES:
                name, _, attack = name.partition("@")
                stem = Path(value).stem
                logs += [GivenLog(kind, name or stem, file, attack, key=name) for file in files_of(Path(value), score)]
            elif key == "roles":
                roles = Path(value)
            elif not name.strip():
                raise InputError(
                    f"--logs {one_line(word, width=200)!r}: the name before = is missing. Give {kind}:NAME=VALUE."
                )
            elif kind == "task":
                splits[name] = value
            elif kind == "score":
                scales[name] = _scale(word, value)
            else:
                kinds = ["score", *COLUMNS]
                if name not in kinds:
                    raise InputError(
                        f"--logs {one_line(word, width=80)}: no column has this use. {closest(name, kinds)}"
                    )
                columns[name] = value
        elif word == EXAMPLE:
            folders.append(Path(str(resources.files("vestige.logs") / "example")))
        elif word.strip() and Path(word).is_dir():
            folders.append(Path(word))
        elif Path(word).is_file() and reader_of(Path(word), score):
            raise InputError(
                f"--logs {one_line(word, width=200)}: this log needs a role. Give "
                f"unlearned:NAME={one_line(word, width=200)}, target:NAME=FILE and retrained:NAME=FILE. "
                "In a file with several models, NAME is the model's name there."
            )
        elif Path(word).is_file():
            tables.append(Path(word))
        elif equals and kind.isidentifier():
            raise InputError(
                f"--logs {one_line(word, width=200)!r}: {kind!r} is no role. "
                f"{closest(kind, [*ROLES, 'task', 'score', 'column'])} The roles are {', '.join(ROLES)}."
            )
        else:
            raise InputError(
                f"--logs {one_line(word, width=200)!r}: there is no such file or folder. Give ROLE:NAME=FILE with a "
                f"role of {', '.join(ROLES)}, a folder of logs, a table of scores, or `{EXAMPLE}`"
            )
    # With mixed kinds, the forget set of each log would be unknown.
    if sum(map(bool, (logs, folders, tables))) != 1 or len(tables) > 1 or (tables and (splits or scales or columns)):
        raise InputError(
            "--logs takes logs with their roles, or folders, or one table of scores. Give one kind at a time"
        )
    if roles is not None and not folders:
        raise InputError("--logs roles=FILE names the logs of a folder. Give the folder too.")
    stated = Stated(splits, How(scales, columns))
    if logs:
        taken = Taken((LogGroup(forget or FORGET, tuple(logs)),), stated=stated)
    elif tables:
        taken = Taken((), tables[0], stated=stated)
    else:
        recognised = recognise(
            folders, roles, forget or "", without_controls=without_controls, without_target=without_target, score=score
        )
        taken = _of_folders(folders, recognised, stated)
    if not without_controls:
        return taken
    if taken.table is not None:
        raise InputError("--without-controls needs logs, because a table has no texts of questions. Give logs.")
    return taken._replace(groups=tuple(predicting(group) for group in taken.groups))


def _scale(word: str, value: str) -> "Scale":
    """The range and direction of a score: `1..5`, `lower`, or `1..5,lower`. `nats` and `nats/COLUMN` for a loss."""
    from vestige.logs.log import Scale

    unit, _, tokens = value.partition("/")
    if unit.strip() == "nats":
        return Scale(nats=True, tokens=tokens.strip())
    low, high, direction = 0.0, 1.0, 1
    for part in value.split(","):
        part = part.strip()
        least, dots, most = part.partition("..")
        try:
            if part in ("lower", "higher"):
                direction = -1 if part == "lower" else 1
            elif dots and float(least) < float(most):
                low, high = float(least), float(most)
            else:
                raise ValueError(part)
        except ValueError as error:
            raise InputError(
                f"--logs {one_line(word, width=200)!r}: {one_line(part, width=40)!r} is no range. Give LOW..HIGH, with "
                "`,lower` where a lower score means more knowledge, or `nats` for a loss."
            ) from error
    return Scale(low, high, direction)


def _of_folders(folders: Sequence[Path], recognised: "Recognised", stated: "Stated") -> Taken:
    """Return the groups in these folders, or raise an error that lists their content and the missing files."""
    from vestige.logs.folders import NO_TARGET, NO_UNLEARNED

    if recognised.groups:
        return Taken(recognised.groups, None, recognised.left_out, forgiving=True, stated=stated)
    names = ", ".join(one_line(str(folder), width=200) for folder in folders)
    unread = [(path, why) for path, why in recognised.left_out if "cannot be read" in why]
    for reason in _in_words(unread):
        say(reason)
    if any(why.startswith(NO_TARGET) for _, why in recognised.left_out):
        raise InputError(
            f"{names} has logs of unlearned models, and no target of theirs. Give --logs for the folder with it, or "
            "take it from the bank: --target bank:tofu/llama-3.2-1b/forget10 (`vestige list controls` names them)."
        )
    if any(why.startswith(NO_UNLEARNED) for _, why in recognised.left_out):
        raise InputError(
            f"{names} has logs of targets or controls, and none of an unlearned model. Give this folder together with "
            f"yours: --logs {shlex.quote(names)} --logs YOUR_FOLDER."
        )
    reasons = _in_words(recognised.left_out) or ["it has no file that may be a log"]
    raise InputError(
        f"{names}: no log can be judged ({'; '.join(reasons)}). Name the model of each log: --logs target=FILE "
        "--logs retrained:A=FILE --logs unlearned:B=FILE. For many logs write roles.csv into the folder "
        "(docs/logs.md, section Roles)."
    )


def with_bank(taken: Taken, controls: Sequence[str], target: str | None) -> Taken:
    """Add controls and the target from the bank to the logs."""
    if not (controls or target):
        return taken
    from vestige.logs.bank import banked

    names = [group.name for group in taken.groups]
    if len(names) != 1:
        raise InputError(
            f"The bank completes the logs of one forget set, and these are of {len(names)}: {', '.join(names)}. "
            f"Choose one: --forget {shlex.quote(names[0])}."
        )
    (group,) = taken.groups
    logs = list(group.logs)
    for address in controls:
        logs += banked(address, group.name)
    if target:
        logs += banked(target, group.name, "target")
    return taken._replace(groups=(group._replace(logs=tuple(logs)),))


def judge_taken(
    taken: Taken, run: "RunFolder", *, forget: str | None, margins: Record, why: bool, as_json: bool
) -> "list[AuditOutcome]":
    """Judge the logs, write the report, and print the verdicts, in one line a model or (`why`, `as_json`) in full."""
    from vestige.auditing.logs import judge_logs
    from vestige.auditing.table import columns_of, judge_table, read_scores, settings_of
    from vestige.report import build_report

    # Invalid margins are rejected before any output.
    settings_of(margins)
    if not as_json:
        show(taken)
    failed: TextByName = {}
    outcomes = []
    if taken.table is not None:
        columns = columns_of(read_scores(taken.table))
        source = str(taken.table)
        outcomes.append(judge_table(run, columns, forget=forget or FORGET, margins=margins, source=source))
    for group in taken.groups:
        try:
            with _uncollected():
                outcome = judge_logs(
                    run,
                    group.logs,
                    forget=group.name,
                    margins=margins,
                    forgiving=taken.forgiving,
                    stated=taken.stated,
                    unused=_unused(taken.left_out),
                )
            outcomes.append(outcome)
        except InputError as error:
            if not taken.forgiving:
                raise
            # These groups come from folder names: one that cannot be judged must not hide the others.
            failed[group.name] = str(error)
    if outcomes:
        with _uncollected():
            build_report(run.path)
        if why or as_json:
            print_audit(run.path, outcomes, failed, why=why, as_json=as_json)
        else:
            _print_short(run, outcomes)
    if failed:
        reasons = "; ".join(f"{name}: {one_line(reason, width=500)}" for name, reason in failed.items())
        if not outcomes:
            raise InputError(f"no forget set could be judged: {reasons}")
        raise PartialFailure(f"{len(failed)} of {len(taken.groups)} forget sets could not be judged: {reasons}")
    return outcomes


def left_out_of(taken: Taken, outcomes: "Sequence[AuditOutcome]") -> list[str]:
    """The unlearned models whose logs were given and not judged."""
    unjudged: set[str] = set()
    for group in taken.groups:
        unjudged |= {log.name for log in group.logs if log.role == "unlearned"}
    for outcome in outcomes:
        unjudged -= {*outcome.unlearned}
    return sorted(unjudged)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Do not look for cycles of objects meanwhile: logs have none, and looking takes a tenth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _unused(left_out: "Sequence[Unused]") -> list[str]:
    """Return the reasons for unjudged logs: a sentence for possible controls and one for the others."""
    from vestige.artifacts.audits import NOT_A_CONTROL
    from vestige.logs.folders import UNCLEAR

    sentences = []
    for begin, unclear in ((NOT_A_CONTROL, True), ("Not judged: ", False)):
        of_kind = [(path, why) for path, why in left_out if (why == UNCLEAR) == unclear]
        if of_kind:
            sentences.append(f"{begin}{'; '.join(_in_words(of_kind))}.")
    return sentences


def show(taken: Taken) -> None:
    """Print the roles of the logs before the judgement."""
    rows = []
    for group in taken.groups:
        logs = [log for log in group.logs if not log.base]
        for role in dict.fromkeys(log.role for log in logs):
            names = [f"{log.name} after {log.attack}" if log.attack else log.name for log in logs if log.role == role]
            rows.append([group.name if role == logs[0].role else "", role, _without_repeats(names)])
        bases = dict.fromkeys(log.base for log in group.logs if log.base)
        if bases:
            rows.append(["", "predicted controls", f"from models of {', '.join(bases)}"])
    if rows:
        print_table("logs as they are taken", ["forget set", "role", "models"], rows)
    if taken.left_out:
        print("Left out:")
        for reason in _in_words(taken.left_out):
            print(f"- {reason}")


def _without_repeats(names: Sequence[str]) -> str:
    """The names, with the checkpoints of one training after its name."""
    steps: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        training, _, step = name.partition(", checkpoint ")
        steps.setdefault(training, []).append(step)
    return "; ".join(
        f"{name}, checkpoints {', '.join(checkpoints)}" if all(checkpoints) else name
        for name, checkpoints in steps.items()
    )


def _in_words(left_out: "Sequence[Unused]") -> list[str]:
    """For each reason the number of logs, with the path of one."""
    places: dict[str, list[str]] = {}
    for path, why in left_out:
        places.setdefault(why, []).append(one_line(str(path), width=200))
    return [
        f"{len(paths)} log{'s' * (len(paths) > 1)} ({paths[0]}{', ...' * (len(paths) > 1)}): {why}"
        for why, paths in places.items()
    ]


_MOST_DROPPED = 5
_LEAD: "tuple[Claim, Claim]" = ("not expressed", "utility preserved")


def _print_short(run: "RunFolder", outcomes: "Sequence[AuditOutcome]") -> None:
    """A line for each model: whether it still expresses the forget set, and whether it kept the rest."""
    from vestige.artifacts.verdicts import (
        bound_said,
        controls_said,
        outcome_word,
        reversal_said,
        tested_said,
        verdict_word,
    )
    from vestige.auditing.logs import LEFT_OUT

    for outcome in outcomes:
        lines = {(v.subject, v.claim): v for v in outcome.verdicts}
        form, leaks = outcome.compared
        rows = []
        for subject in outcome.unlearned:
            forgot, utility = (lines[subject, claim] for claim in _LEAD)
            # A model without useful output has no leak, which is not a success.
            reason = "collapsed" if "collapsed" in forgot.reason else one_line(forgot.reason, width=200)
            bound = bound_said(outcome, forgot) or reason
            rows.append([subject, verdict_word(outcome, forgot), bound, outcome_word(outcome, utility)])
        heads = ["model", _LEAD[0], "what is shown", _LEAD[1]]
        title = f"{outcome.forget}, {tested_said(outcome)}, {controls_said(outcome)}"
        print_table(title, heads, rows)
        # Models are compared in one score, even if another reveals more of one of them.
        levels = [f"{subject} {leaks[subject].said()}" for subject in outcome.unlearned if subject in leaks]
        if len(levels) > 1:
            print(one_line(f"All models in {form}: {'; '.join(levels)}", width=2000))
        dropped = [text for text in outcome.untested if text.endswith(LEFT_OUT)]
        for text in dropped[:_MOST_DROPPED]:
            print(one_line(text, width=400))
        if len(dropped) > _MOST_DROPPED:
            print(f"{len(dropped) - _MOST_DROPPED} more models are left out. The report names them.")
        for text in (*outcome.warnings, *map(reversal_said, outcome.reversals)):
            print(one_line(text, width=1000))
    print(
        "Logs hold no attacks and seldom what the other claims need. All of them, with reasons: "
        f"{shlex.join(['vestige', 'audit', '--why', '--output-dir', one_line(str(run.path), width=500)])}"
    )
    print(f"report: {run.report}")
    print_summaries(outcomes)
