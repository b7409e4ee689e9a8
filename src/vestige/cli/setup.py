"""Before anything is trained: `vestige init` and `vestige list`.

`init` turns data and a model into a settings file, a power forecast, and the commands to run. `list` prints the
available names.
"""

import json
import shlex
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import typer

from vestige.api.output import say_notes
from vestige.cli.command import in_words, itself, settings_rows
from vestige.core.errors import InputError
from vestige.core.progress import say
from vestige.core.text import TextByName, TextMapping, TextTuple, closest
from vestige.report.text import print_json, print_plan

if TYPE_CHECKING:
    from pydantic import BaseModel

    from vestige.cli.command import Part


@itself(positional=("output_dir",), repeated=("unlearned",))
def init_command(
    *,
    data: str,
    forget: str,
    model: str,
    output_dir: Path = Path("runs/mine"),
    method: str = "npo_gd",
    controls: int = 5,
    target: str | None = None,
    unlearned: Sequence[str] = (),
    holdout: str | None = None,
    edge_key: str | None = None,
) -> None:
    """Check the data, print the power of an audit, write audit.toml, and print the commands to run.

    Trains nothing and loads no model.

    Args:
        output_dir: The folder of the run, which gets audit.toml.
        data: All questions and answers: a file, a compiled folder, a hub id.
        forget: Items to forget: a file, or selectors.
        model: The model to train: a folder or hub id.
        method: Unlearning method: a name from `vestige list methods`.
        controls: The number of control models, trained without the forget set.
        target: The model with the knowledge, if you already have it.
        unlearned: An unlearned model, if you already have it; repeatable.
        holdout: A file of items that no model was taught.
        edge_key: Column with the contract or person that an item is about.
    """
    from vestige.api.selection import audit_questions
    from vestige.auditing.forecast import foresee_audit
    from vestige.auditing.request import AuditRequest, named_models
    from vestige.auditing.settings import AuditSettings
    from vestige.core.files import write_text
    from vestige.data.corpus import SourceSettings, open_corpus
    from vestige.methods import find_method

    find_method(method)
    if controls < 1:
        raise InputError(f"--controls {controls}: an audit compares with at least one. Give 5, as advised.")
    corpus = open_corpus(SourceSettings(data=data, edge_key=edge_key))
    splits = audit_questions(corpus, forget, (), holdout=holdout)
    audited = _Models(
        target or f"{output_dir}/models/target",
        tuple(unlearned or [f"{output_dir}/cells/{method}"]),
        tuple(f"{output_dir}/models/retrained-{k}" for k in range(1, controls + 1)),
        start="" if target else model,
        method="" if unlearned else method,
    )
    options = {"data": data, "forget": forget, "edge_key": edge_key}
    settings, text = output_dir / "audit.toml", _settings_file(options, audited, holdout)
    if settings.exists() and settings.read_text(encoding="utf-8") != text:
        raise InputError(f"{settings} exists and differs from these options. Edit it, or name another folder")
    # The check comes before the file is written, so that a failed plan leaves nothing behind.
    models = named_models(audited.target, list(audited.unlearned), list(audited.retrained))
    plan = foresee_audit(AuditRequest(models, splits, AuditSettings()))
    write_text(settings, text)
    say_notes(splits)
    # The output contains only the commands.
    with redirect_stdout(sys.stderr):
        print_plan(plan, forget, as_json=False)
    say(f"\nwritten: {settings}")
    say("Run these commands in order. Each continues after an interruption:")
    lines = _commands(model, options, audited, settings)
    typer.echo("\n".join(lines))
    if any(RATE in line for line in lines):
        say(f"Replace {RATE} by the learning rate that find-rate prints.")
    say("A control must answer the retained questions like the target. Compare exact_match of the two evaluations.")
    if target:
        say("Train one control first, and the others once it does (--learning-rate, --lora-rank 0).")


class _Models(NamedTuple):
    """The paths of the audit's models, from the target's initial model and the unlearning method.

    The last two are empty where the model is there.
    """

    target: str
    unlearned: TextTuple
    retrained: TextTuple
    start: str
    method: str


def _settings_file(options: Mapping[str, str | None], audited: _Models, holdout: str | None) -> str:
    """The options of `vestige audit` as TOML, and the settings that people change, with their defaults, as comments."""
    from vestige.auditing.settings import AuditSettings
    from vestige.core.settings import to_toml

    default = AuditSettings()
    models = to_toml({**options, "target": audited.target, "unlearned": audited.unlearned}).rstrip()
    retrained = to_toml({"retrained": audited.retrained}).rstrip()
    never_taught = to_toml({"holdout": holdout}).rstrip() or '# holdout = "holdout.csv"'
    return f"""# vestige audit --config THIS FILE. Options on the command line take precedence.
{models}
# Trained like the target, each with another --seed, without the forget set. Five are advised.
{retrained}

# A claim fails if a leak is shown above delta. It passes if every leak is shown below delta_wide.
# delta = {default.delta}
# delta_wide = {default.delta_wide}
# Items that no model was taught, for membership tests.
{never_taught}
# Attacks: training on retained items or on a part of the forget set, a removed direction, rounded weights, facts in
# the prompt.
# relearn = {json.dumps(list(default.relearn))}
# ablate = {json.dumps(list(default.ablate))}
# quantize = {json.dumps(list(default.quantize))}
# in_context = {json.dumps(list(default.in_context))}
"""


def _commands(model: str, options: Mapping[str, str | None], audited: _Models, settings: Path) -> list[str]:
    """Return the commands in order: `find-rate` searches the rate of a method without a known rate."""
    from vestige.api.selection import TINY, TINY_RATES
    from vestige.methods import find_method

    data = ["--data", str(options["data"])]
    if options["edge_key"] is not None:
        data += ["--edge-key", options["edge_key"]]
    split = [*data, "--forget", str(options["forget"])]
    lines = []
    # An external target has no folder for its answers.
    evaluation = ["evaluate", audited.target, *split, "--role", "target", "--output-dir", f"{settings.parent}/target"]
    if audited.start:
        lines.append(["finetune", model, *data, "--output-dir", audited.target])
        evaluation = evaluation[: 2 + len(split)]
    for seed, folder in enumerate(audited.retrained, 1):
        lines.append(["finetune", model, *split, "--seed", str(seed), "--output-dir", folder])
    if method := audited.method:
        by, rate = ["--method", method, *split], []
        # A method without training has no learning rate. Those of the tiny model were searched for once.
        known = not find_method(method).needs.splits or (audited.start == TINY and method in TINY_RATES)
        if not known:
            goal = ["--metric", "exact_match", "--goal", "forget<=0.2", "--output-dir", f"{settings.parent}/rate"]
            lines.append(["find-rate", audited.target, *by, *goal])
            rate = ["--learning-rate", RATE]
        lines.append(["unlearn", audited.target, *by, *rate, "--output-dir", audited.unlearned[0]])
    lines.append(evaluation)
    # One control represents all, since they are trained alike: it must answer retained questions like the target.
    lines.append(["evaluate", audited.retrained[0], *split])
    audit = ["audit", "--config", str(settings), "--output-dir", str(settings.parent)]
    lines += [[*audit, "--quick"], audit]
    return [shlex.join(["vestige", *map(str, line)]) for line in lines]


RATE = "RATE"
"""The placeholder for a rate that the previous command finds."""
WIDTH = 100
"""The line width if no terminal gives one."""


@itself(positional=("kind", "of"), repeated=("of",))
def list_command(kind: str = "", of: Sequence[str] = (), as_json: bool = False) -> None:
    """List methods, evaluations, attacks, judges, models, graphs, packs, readers of logs or controls, or settings.

    Args:
        kind: methods, evals, attacks, judges, models, graphs, packs, logs, controls, settings.
        of: For settings: a command (unlearn, attack gcg), or a method.
    """
    if not kind:
        rows = [{"name": name, "about": about} for name, about in _KINDS.items()]
    elif kind == "settings":
        rows = _settings(of)
    elif kind not in _KINDS:
        raise InputError(f"there is no list {kind!r}. {closest(kind, list(_KINDS))}")
    elif of:
        raise InputError(f"`vestige list {kind}` takes no name. Leave {of[0]!r} out")
    else:
        rows = _listed(kind)
    if as_json:
        return print_json(rows)
    typer.echo(in_columns(rows, shutil.get_terminal_size((WIDTH, 1)).columns))


_KINDS = {
    "methods": "unlearning methods, with what they minimise and need",
    "evals": "evaluations, for --evals",
    "attacks": "attacks, for `vestige attack` and `vestige audit --attacks`",
    "judges": "judges of answers, for `vestige probe --judge`",
    "models": "built-in models",
    "graphs": "graphs that `vestige compile` makes itself",
    "packs": "benchmark packs, for --data pack:NAME",
    "logs": "logs of other tools, for `vestige audit --logs`",
    "controls": "untaught models from public logs, for `vestige audit --logs ... --controls bank:NAME`",
    "settings": "those of a command or a method: `vestige list settings unlearn`, `... npo_gd`",
}


def _listed(kind: str) -> list[TextByName]:
    """Return the entries of one kind. Imported here because `--help` of a command lists nothing."""
    abouts: TextByName = {}
    match kind:
        case "methods":
            from vestige.methods import listed

            return [row._asdict() for row in listed()]
        case "packs":
            from vestige.data.loaders import packs

            rows = []
            for name, pack in packs().items():
                source = pack.files
                if pack.hub:
                    source = f"{pack.hub}@{pack.revision[:7]}"
                figures = ", ".join(row.model for row in pack.published) or "no figures found"
                parts = ", ".join(pack.splits)
                rows.append({"name": name, "about": pack.about, "from": source, "splits": parts, "published": figures})
            return rows
        case "evals":
            from vestige.core.plugins import installed
            from vestige.evals import EVALS, find_eval

            for name in {**EVALS, **installed("evals")}:
                module = sys.modules[find_eval(name).__module__]
                abouts[name] = (module.__doc__ or name).splitlines()[0].removeprefix(f"`{name}`: ")
        case "attacks":
            from vestige.attacks import known_attacks

            abouts = {name.replace("_", "-"): attack.about for name, attack in known_attacks().items()}
        case "judges":
            from vestige.judges import known_judges

            abouts = {name: judge.about for name, judge in known_judges().items()}
        case "models":
            from vestige.models.places import BUILTIN_MODELS

            abouts = dict(BUILTIN_MODELS)
        case "graphs":
            from vestige.data.graph import FAMILIES, SAMPLES

            abouts = dict.fromkeys(SAMPLES, "PISTOL's sample data set, edges in its order")
            abouts |= {f"{name}:N": "a topology of N edges, all sales contracts" for name in FAMILIES}
        case "logs":
            from vestige.core.plugins import with_installed
            from vestige.logs import READERS

            abouts = {name: reader.about for name, reader in with_installed("logs", READERS).items()}
        case _:
            from vestige.logs.bank import keys

            for name, logs in keys().items():
                trained = ", ".join(dict.fromkeys(log.recipe for log in logs))
                sources = ", ".join(dict.fromkeys(f"{log.repository}@{log.commit[:7]} ({log.licence})" for log in logs))
                abouts[name] = f"{len(logs)}, {trained}; {sources}"
    return [{"name": name, "about": about} for name, about in abouts.items()]


def _settings(words: Sequence[str]) -> list[TextByName]:
    """The settings of a command as it takes them, or of a method as --set does."""
    if not words:
        raise InputError("give a command or a method, as in `vestige list settings unlearn` or `... npo_gd`")
    name = " ".join(words)
    if (parts := _parts_of(words)) is not None:
        rows = []
        for part in parts:
            rows += [(key, settings_rows(part.home)[field]) for field, key in part.keys().items()]
    else:
        from vestige.core.settings import described
        from vestige.methods import find_method

        rows = [(f"{name}.{key}", row) for key, row in described(cast("type[BaseModel]", find_method(name))).items()]
        if not rows:
            raise InputError(f"{name} has no settings. See `vestige list settings`")
    return [
        {
            "name": key,
            "about": f"{text} {kind}{'' if default in (None, '', []) else f', default {in_words(default)}'}".strip(),
        }
        for key, (kind, default, text) in rows
    ]


def _parts_of(words: Sequence[str]) -> "tuple[Part, ...] | None":
    """The settings classes of a command. Returns None for an unknown command."""
    import typer.main

    from vestige.cli.app import app

    command: Any = typer.main.get_command(app)
    for word in words:
        context = typer.Context(command)
        command = command.get_command(context, word) if hasattr(command, "get_command") else None
        if command is None:
            return None
    if hasattr(command, "list_commands"):
        names = ", ".join(f"{words[-1]} {name}" for name in command.list_commands(typer.Context(command)))
        raise InputError(f"{words[-1]} has several commands. Name one: {names}")
    return getattr(command.callback, "parts", ())


def in_columns(rows: Sequence[TextMapping], width: int) -> str:
    """Return names and descriptions in columns within `width` characters, with later lines under the first."""
    indent = 2 + max(len(row["name"]) for row in rows)
    lines = []
    for row in rows:
        # The longest name may exceed the terminal's width, and textwrap rejects a width below 1.
        wrapped = textwrap.wrap(row["about"], max(20, width - indent))
        if "paper" in row:
            wrapped += textwrap.wrap(f"Needs {row['needs']}. {row['paper']}.", max(20, width - indent))
        lines.append(f"{row['name']:{indent}}{wrapped[0]}")
        lines += [" " * indent + line for line in wrapped[1:]]
    return "\n".join(lines)
