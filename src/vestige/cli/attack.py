"""`vestige attack`: try to get out of one model what it was made to forget, and say what the attack brought."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from vestige.cli.asked import refuse_torchrun
from vestige.cli.attack_acr import acr_command
from vestige.cli.attack_prompt import gcg_command, prefix_command
from vestige.cli.attack_told import attack_and_tell
from vestige.cli.attack_words import AskWords, SubjectName, WhoWords
from vestige.cli.data_words import DataWords
from vestige.cli.options import Config, Data, Forget
from vestige.cli.spread import spread
from vestige.core.errors import InputError
from vestige.core.text import one_line

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
