"""`vestige audit --logs`: verdicts from the logs that other tools have left, without a model."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vestige.cli.tables import print_summaries, print_table
from vestige.core.errors import InputError, PartialFailure
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.audits import AuditOutcome, Claim
    from vestige.artifacts.layout import RunFolder
    from vestige.logs.folders import LogGroup

EXAMPLE = "example"
OUTPUT = Path("runs/judged")
"""Where the verdicts go if no folder is named."""
FORGET = "the forget set"


class Taken(NamedTuple):
    """What is judged: groups of logs, or one table of scores; why other logs are not taken; of tasks their splits."""

    groups: "tuple[LogGroup, ...]"
    table: Path | None = None
    left_out: tuple[tuple[Path, str], ...] = ()
    forgiving: bool = False
    splits: Mapping[str, str] = {}


def take(words: Sequence[str], forget: str | None) -> Taken:
    """What `--logs` names: ROLE[:NAME[@ATTACK]]=FILE several times, folders, a table, or `example`.

    `task:NAME=SPLIT` beside logs says of which split the questions of a task are.
    """
    from vestige.auditing.logs import files_of
    from vestige.auditing.scored import ROLES
    from vestige.logs import reader_of
    from vestige.logs.folders import LogGroup, recognise
    from vestige.logs.log import GivenLog

    logs: list[GivenLog] = []
    folders: list[Path] = []
    tables: list[Path] = []
    splits: dict[str, str] = {}
    for word in words:
        role, equals, path = word.partition("=")
        role, _, name = role.partition(":")
        # The name of a file may hold = itself: with no role before it the whole word is a path.
        if equals and role in ROLES:
            name, _, attack = name.partition("@")
            logs += [GivenLog(role, name or Path(path).stem, file, attack) for file in files_of(Path(path))]
        elif equals and role == "task":
            splits[name] = path
        elif word == EXAMPLE:
            folders.append(Path(str(resources.files("vestige.logs") / "example")))
        elif Path(word).is_dir():
            folders.append(Path(word))
        elif Path(word).is_file() and reader_of(Path(word)):
            raise InputError(
                f"--logs {one_line(word, width=200)}: the log of one model, and nothing says which; give "
                f"unlearned:NAME={one_line(word, width=200)}, and beside it target=FILE and retrained:NAME=FILE"
            )
        elif Path(word).is_file():
            tables.append(Path(word))
        else:
            raise InputError(
                f"--logs {one_line(word, width=200)!r}: there is no such file or folder; give ROLE:NAME=FILE with a "
                f"role of {', '.join(ROLES)}, a folder of logs, a table of scores, or `{EXAMPLE}`"
            )
    # Mixed kinds would leave open which log is of which forget set.
    if sum(map(bool, (logs, folders, tables))) != 1 or len(tables) > 1 or (tables and splits):
        raise InputError(
            "--logs takes logs with their roles, or folders, or one table of scores; give one kind at a time"
        )
    if logs:
        return Taken((LogGroup(forget or FORGET, tuple(logs)),), splits=splits)
    if tables:
        return Taken((), tables[0])
    recognised = recognise(folders)
    if not recognised.groups:
        why = f": {_in_words(recognised.left_out)}" if recognised.left_out else ", and no reader takes any file in it"
        names = ", ".join(one_line(str(folder), width=200) for folder in folders)
        raise InputError(
            f"{names} holds nothing that can be judged by the names of its folders{why}. A verdict takes the logs of "
            "the target (eval/tofu_MODEL_full/evals_forget01), of models that never knew (eval/tofu_MODEL_retain99; "
            "OpenUnlearning's `python setup_data.py` downloads both) and of what was unlearned "
            "(unlearn/tofu_MODEL_forget01_NAME). Rename folders, give --logs for further ones, or name each log: "
            "--logs target=FILE --logs retrained:A=FILE --logs unlearned:B=FILE"
        )
    return Taken(recognised.groups, None, recognised.left_out, forgiving=True, splits=splits)


def with_bank(taken: Taken, addresses: Sequence[str]) -> Taken:
    """What is judged, with controls from the bank beside its own."""
    if not addresses:
        return taken
    from vestige.logs.bank import controls

    if len(taken.groups) != 1:
        raise InputError(
            f"--controls goes with the logs of one forget set, and there are {len(taken.groups)}; name the logs one by "
            "one, with their roles"
        )
    (group,) = taken.groups
    controls_of_bank = tuple(log for address in addresses for log in controls(address, group.name))
    return taken._replace(groups=(group._replace(logs=(*group.logs, *controls_of_bank)),))


def judge_taken(
    taken: Taken,
    run: "RunFolder",
    *,
    forget: str | None,
    margins: Mapping[str, Any],
    shows: bool,
    print_whole: "Callable[[Path, Sequence[AuditOutcome], Mapping[str, str]], None] | None",
) -> "list[AuditOutcome]":
    """Judge what was taken, write the report, and print the verdicts: by `print_whole`, or a line for each model.

    With `shows` it is printed before which log is taken for what.
    """
    from vestige.auditing.logs import judge_logs
    from vestige.auditing.scored import read_scores
    from vestige.auditing.table import judge_table, settings_of
    from vestige.report import build_report

    # Margins that make no sense are refused before anything is shown.
    settings_of(margins)
    if shows:
        show(taken)
    failed: dict[str, str] = {}
    outcomes = []
    if taken.table is not None:
        rows = read_scores(taken.table)
        outcomes.append(judge_table(run, rows, forget=forget or FORGET, margins=margins, source=str(taken.table)))
    for group in taken.groups:
        try:
            outcome = judge_logs(
                run, group.logs, forget=group.name, margins=margins, forgiving=taken.forgiving, splits=taken.splits
            )
            outcomes.append(outcome)
        except InputError as error:
            if not taken.forgiving:
                raise
            # Groups that names of folders made: one that cannot be judged must not hide the others.
            failed[group.name] = str(error)
    if outcomes:
        build_report(run.path)
        if print_whole is None:
            _print_short(run, outcomes)
        else:
            print_whole(run.path, outcomes, failed)
    if failed:
        reasons = "; ".join(f"{name}: {one_line(reason, width=500)}" for name, reason in failed.items())
        if not outcomes:
            raise InputError(f"no forget set could be judged: {reasons}")
        raise PartialFailure(f"{len(failed)} of {len(taken.groups)} forget sets could not be judged: {reasons}")
    return outcomes


def show(taken: Taken) -> None:
    """Print which log is taken for what, before anything is judged."""
    rows = []
    for group in taken.groups:
        for role in dict.fromkeys(log.role for log in group.logs):
            names = [
                f"{log.name} after {log.attack}" if log.attack else log.name for log in group.logs if log.role == role
            ]
            rows.append([group.name if role == group.logs[0].role else "", role, _without_repeats(names)])
    if rows:
        print_table("logs as they are taken", ["forget set", "role", "models"], rows)
    if taken.left_out:
        print(f"Left out: {_in_words(taken.left_out)}.")


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


def _in_words(left_out: Sequence[tuple[Path, str]]) -> str:
    reasons = dict.fromkeys(why for _, why in left_out)
    paths = {why: [str(path) for path, places in left_out if places == why] for why in reasons}
    return "; ".join(
        f"{len(places)} log{'s' if len(places) > 1 else ''}, since {why} ({one_line(places[0], width=200)}"
        f"{', ...' if len(places) > 1 else ''})"
        for why, places in paths.items()
    )


_LEAD: "tuple[Claim, Claim]" = ("not expressed", "utility preserved")


def _print_short(run: "RunFolder", outcomes: "Sequence[AuditOutcome]") -> None:
    """A line for each model: whether it still expresses the forget set, and whether it kept the rest."""
    from vestige.artifacts.verdicts import WORDS, bound_said, controls_said, reversal_said, tested_said, verdict_word

    for outcome in outcomes:
        lines = {(v.subject, v.claim): v for v in outcome.verdicts}
        rows = []
        for subject in outcome.unlearned:
            forgot, utility = (lines[subject, claim] for claim in _LEAD)
            # A model that says nothing any more has no leak, which is no success.
            bound = bound_said(outcome, forgot) or ("collapsed" if "collapsed" in forgot.reason else "not tested")
            rows.append([subject, verdict_word(forgot), bound, WORDS[utility.outcome]])
        heads = ["model", _LEAD[0], "what is shown", _LEAD[1]]
        title = f"{outcome.forget}, {tested_said(outcome)}, {controls_said(outcome)}"
        print_table(title, heads, rows, no_wrap=heads[1:2])
        for text in (*outcome.warnings, *map(reversal_said, outcome.reversals)):
            print(one_line(text, width=1000))
    print(
        "Logs hold no attacks and seldom what the other claims need. All of them, with reasons: "
        f"{shlex.join(['vestige', 'audit', '--why', '--output-dir', one_line(str(run.path), width=500)])}"
    )
    print(f"report: {run.report}")
    print_summaries(outcomes)
