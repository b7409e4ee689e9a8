"""`vestige attack`: try to make a model say what it was made to forget, and print what each attack gained.

`vestige attack acr` compares how short a prompt makes each model say a text of the forget set.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.cli.asked import refuse_torchrun, settings_from
from vestige.cli.attack_prompt import gcg_command, prefix_command
from vestige.cli.attack_told import attack_and_tell
from vestige.cli.attack_words import AskWords, SubjectName, WhoWords
from vestige.cli.data_words import DataWords
from vestige.cli.options import Config, Data, Forget, Set
from vestige.cli.progress import progress_bar
from vestige.cli.spread import spread
from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.metrics.compression import Paired
    from vestige.steps.evaluate import EvaluateRequest, Subject


NOT_FOUND = "not found"


@dataclass(frozen=True)
class Searched:
    """One model: its name here, how it reads text, where the evidence lies, and a record an item, in one order."""

    name: str
    reads: str
    evidence: str
    records: tuple[Mapping[str, Any], ...]

    @property
    def text_tokens(self) -> list[int]:
        """Tokens of each text."""
        return [record["n_text"] for record in self.records]

    @property
    def prompt_tokens(self) -> list[int | None]:
        """Tokens of the shortest prompt that was found for each text; None where none was."""
        return [record["n_prompt"] for record in self.records]


@spread
def acr_command(
    subjects: Annotated[
        list[str], typer.Argument(metavar="SUBJECT", help="Folders of Vestige, or any models; compared in pairs.")
    ],
    data: Data,
    forget: Forget,
    items: Annotated[int | None, typer.Option(min=1, help="At most so many forget items, drawn by the seed.")] = None,
    config: Config = None,
    assignments: Set = None,
    *,
    rows: DataWords,
    who: WhoWords,
) -> None:
    """Search the shortest prompt after which each SUBJECT says an item's text, token for token (ACR, 2404.15146).

    ACR is the text's tokens over the prompt's; a text is memorised where it exceeds 1. A prompt that was not found has
    no ratio. Settings: form, schedule, longest, steps, width, topk, ascii_only, screen, warm, items: docs/attacks.md.
    """
    refuse_torchrun("attack")
    from vestige.data.corpus import everything
    from vestige.evals.compression import AcrSettings
    from vestige.steps.evaluate import EvaluateRequest, view_of

    drawn = [] if items is None else [f"items={items}"]
    settings = settings_from(AcrSettings, config, [*(assignments or ()), *drawn], defaults={"seed": who.seed})
    splits = rows.splits(data, forget, *subjects)
    _refuse_twice(subjects)
    request = EvaluateRequest(everything([splits]), (view_of(splits),), settings, who.seed, "acr")
    found: list[Searched] = []
    for name in subjects:
        subject = who.subject(name) if len(subjects) == 1 else who.one_of(name)
        found.append(_searched(subject, request, _called(subject, [one.name for one in found])))
    if who.as_json:
        typer.echo(json.dumps(_as_json(found, who.seed), indent=2))
    else:
        _print(found, who.seed)


def _refuse_twice(names: Sequence[str]) -> None:
    """Refuse a model that is given again, by the same or another spelling of its path."""
    from vestige.artifacts.layout import own_folder

    seen: dict[str, str] = {}
    for name in names:
        own = own_folder(name)
        path = Path(name).expanduser() if own is None else own.path
        where = str(path.resolve()) if path.exists() else name
        if where in seen:
            again = "" if seen[where] == name else f", first as {one_line(seen[where], width=120)}"
            raise InputError(
                f"the model {one_line(name, width=120)} was given twice{again}; acr compares different models, so give "
                "each once"
            )
        seen[where] = name


def _called(subject: "Subject", taken: Sequence[str]) -> str:
    """The model's method or name, with a number behind it where another is called so."""
    called = one_line(subject.spec.method or subject.spec.name, width=40)
    return next(n for n in (called, *(f"{called} {k}" for k in range(2, len(taken) + 2))) if n not in taken)


def _searched(subject: "Subject", request: "EvaluateRequest", name: str) -> Searched:
    from vestige.artifacts.records import read_records
    from vestige.steps.evaluate import evaluate

    with progress_bar(f"acr: {name}") as show:
        place = evaluate(subject, request, lambda done, of: show(done / of, f"{done} of {of}"))
    return Searched(name, subject.made.digest.reads, str(place.path), tuple(read_records(place)))


def _compared(found: Sequence[Searched]) -> "dict[str, Paired]":
    """Each other model against the first, item by item, where both read text alike."""
    from vestige.metrics.compression import paired

    first, *others = found
    alike = (other for other in others if other.reads == first.reads)
    return {other.name: paired(first.prompt_tokens, other.prompt_tokens) for other in alike}


def _as_json(found: Sequence[Searched], seed: int) -> dict[str, Any]:
    from vestige.metrics.compression import compression

    models = [
        {
            "name": one.name,
            "evidence": one.evidence,
            **compression(one.text_tokens, one.prompt_tokens, seed=seed)._asdict(),
            "items": [
                {k: record[k] for k in ("item", "question", "n_text", "n_prompt", "prompt")} for record in one.records
            ],
        }
        for one in found
    ]
    return {"models": models, "against_the_first": {name: pair._asdict() for name, pair in _compared(found).items()}}


def _print(found: Sequence[Searched], seed: int) -> None:
    """A row an item with each model's prompt and ratio, then a sentence a model, and one a pair."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text("tokens of the shortest prompt found, and ACR"))
    for head in ("item", "text's tokens", *(one.name for one in found)):
        table.add_column(Text(head))
    for row in zip(*(one.records for one in found), strict=True):
        lengths = "/".join(str(n) for n in dict.fromkeys(record["n_text"] for record in row))
        cells = [one_line(row[0]["question"], width=60), lengths, *map(_cell, row)]
        table.add_row(*map(Text, cells))
    Console().print(table)
    for one in found:
        typer.echo(_summed(one, seed))
    compared = _compared(found)
    for name, pair in compared.items():
        typer.echo(
            f"{found[0].name} against {name}: shorter in {pair.shorter_in_first}, longer in {pair.shorter_in_second}, "
            f"the same in {pair.same}, found in neither in {pair.neither} (sign test: p = {pair.p:.2g})"
        )
    for one in found[1:]:
        if one.name not in compared:
            typer.echo(f"{one.name} reads text otherwise than {found[0].name}, so their lengths are not compared")
    for one in found:
        typer.echo(f"evidence on {one.name} in {one.evidence}")


def _cell(record: Mapping[str, Any]) -> str:
    n_text, n_prompt = record["n_text"], record["n_prompt"]
    return NOT_FOUND if n_prompt is None else f"{n_prompt}, ACR {n_text / n_prompt:.2f}"


def _summed(one: Searched, seed: int) -> str:
    from vestige.metrics.compression import compression

    all_of_it = compression(one.text_tokens, one.prompt_tokens, seed=seed)
    ends = all_of_it.share_interval
    said = f"{one.name}: memorised {all_of_it.share:.2f} [{ends.low:.2f}, {ends.high:.2f}], n = {all_of_it.n}"
    if all_of_it.ratio is None:
        return f"{said}; no prompt was found"
    of_ratio = all_of_it.ratio_interval
    around = "" if of_ratio is None else f" [{of_ratio.low:.2f}, {of_ratio.high:.2f}]"
    lost = f"; {all_of_it.n_not_found} not found" if all_of_it.n_not_found else ""
    return f"{said}; mean ACR of those found {all_of_it.ratio:.2f}{around}, n = {all_of_it.n_found}{lost}"


EvalSet = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="EVAL.KEY=VALUE", help="A setting of one evaluation: choices.orders=cyclic."),
]

attack_app = typer.Typer(
    help="Try to get out of a model what it was made to forget. What it brings is no evidence without a control.",
    no_args_is_help=True,
)


@attack_app.command("relearn")
@spread
def relearn_command(
    subject: SubjectName,
    data: Data,
    forget: Forget,
    material: Annotated[
        str, typer.Option(help="What to tune on: retain, related, unrelated, forget_part, forget (the ceiling).")
    ] = "retain",
    items: Annotated[int, typer.Option(min=1, help="At most so many items of it.")] = 50,
    preset: Annotated[
        str | None, typer.Option(help="The paper's settings: zephyr-7b, phi-1.5, llama-3.2-1b-instruct.")
    ] = None,
    config: Config = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting: rate=5e-4, epochs=5; or qa.KEY=VALUE of an eval."),
    ] = None,
    *,
    rows: DataWords,
    ask: AskWords,
    who: WhoWords,
) -> None:
    """Tune SUBJECT again on some items; after every epoch ask forget items, none of which was shown.

    Settings: epochs, rate, rank (of LoRA; 0 trains all weights), alpha, dropout, batch_size, warmup (a share of all
    steps), weight_decay, precision. The defaults are those of the paper 2506.00688.
    """
    refuse_torchrun("attack")
    from vestige.attacks.planning import relearn_attack
    from vestige.attacks.relearn import MATERIALS, RelearnSettings
    from vestige.core.settings import closest
    from vestige.steps.attack import AttackRequest

    known = next((m for m in MATERIALS if m == material), None)
    if known is None:
        raise InputError(f"no material {one_line(material)!r}; {closest(material, list(MATERIALS))}")
    evals, settings = ask.with_own(RelearnSettings, config, assignments, defaults=_preset(preset))
    splits = rows.splits(data, forget, subject)
    attack = relearn_attack(known, items, settings, splits.splits, seed=who.seed)
    request = AttackRequest(attack, evals, splits.forget, who.seed)
    attack_and_tell(who.subject(subject), splits, request, as_json=who.as_json)


@attack_app.command("quantize")
@spread
def quantize_command(
    subject: SubjectName,
    data: Data,
    forget: Forget,
    bits: Annotated[int, typer.Option(help="Bits of a weight: 8 or 4.")] = 4,
    assignments: EvalSet = None,
    *,
    rows: DataWords,
    ask: AskWords,
    who: WhoWords,
) -> None:
    """Round the weights of SUBJECT's blocks to 8 or 4 bits, and ask the forget items. SUBJECT itself stays as it is."""
    refuse_torchrun("attack")
    from vestige.attacks.planning import quantize_attack
    from vestige.steps.attack import AttackRequest

    if bits not in (4, 8):
        raise InputError(f"--bits {bits}: weights are rounded to 8 or to 4 bits")
    splits = rows.splits(data, forget, subject)
    attack = quantize_attack(4 if bits == 4 else 8, splits.splits)
    request = AttackRequest(attack, ask.settings(assignments), splits.forget, who.seed)
    attack_and_tell(who.subject(subject), splits, request, as_json=who.as_json)


@attack_app.command("in-context")
@spread
def in_context_command(
    subject: SubjectName,
    data: Data,
    forget: Forget,
    items: Annotated[int, typer.Option(min=1, help="Retain items before each question, none of which answers it.")] = 8,
    assignments: EvalSet = None,
    *,
    rows: DataWords,
    ask: AskWords,
    who: WhoWords,
) -> None:
    """Ask SUBJECT the forget items with retain items before each question, as facts."""
    refuse_torchrun("attack")
    from vestige.attacks.planning import in_context_attack
    from vestige.steps.attack import AttackRequest

    splits = rows.splits(data, forget, subject)
    attack = in_context_attack(items, splits.splits, seed=who.seed)
    request = AttackRequest(attack, ask.settings(assignments), splits.forget, who.seed)
    attack_and_tell(who.subject(subject), splits, request, as_json=who.as_json)


attack_app.command("gcg")(gcg_command)
attack_app.command("prefix")(prefix_command)
attack_app.command("acr")(acr_command)


def _preset(name: str | None) -> Mapping[str, Any]:
    from vestige.attacks.relearn import PRESETS
    from vestige.core.settings import closest

    if name is None:
        return {}
    if name not in PRESETS:
        raise InputError(f"no preset {one_line(name)!r}; {closest(name, list(PRESETS))}")
    return PRESETS[name].settings
