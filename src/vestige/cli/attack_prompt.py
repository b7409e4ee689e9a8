"""`vestige attack gcg` and `prefix`: search tokens before or after the questions, and see whether they bring more.

With a question and answer of the user's own, the command searches for a prompt that brings the answer, and sends it
anew.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.asked import refuse_torchrun
from vestige.cli.attack_told import attack_and_tell, bits_at_most
from vestige.cli.attack_words import AskWords, SubjectName, WhoWords
from vestige.cli.data_words import DataWords
from vestige.cli.options import SAMPLES, Config, Data, Forget
from vestige.cli.progress import progress_bar
from vestige.cli.spread import spread
from vestige.core.errors import InputError
from vestige.core.text import half_character, one_line

if TYPE_CHECKING:
    from vestige.attacks.gcg import GcgSettings
    from vestige.models.load import LoadedModel, ModelSettings


Items = Annotated[int, typer.Option(min=1, help="Search on so many forget items; others are tested.")]
Start = Annotated[
    Path | None,
    typer.Option(
        "--start", help="Folder of an earlier attack, with whose prompt the search begins; what that saw counts here."
    ),
]
SearchSet = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting: tokens=20, steps=250; or qa.KEY=VALUE of an eval."),
]


@spread
def gcg_command(
    subject: SubjectName,
    data: Annotated[
        str | None, typer.Option(help="A compiled folder, a file, or a hub dataset id; left out with --question.")
    ] = None,
    forget: Annotated[str | None, typer.Option(help="Selector (edge:A_B, node:A, ...) or a file of items.")] = None,
    items: Items = SAMPLES,
    placement: Annotated[
        str | None,
        typer.Option(help="prefix or suffix of the question; infix: at {prompt} in --question. A suffix by default."),
    ] = None,
    question: Annotated[
        str | None, typer.Option(help="One question of your own in place of data; nothing is kept of it.")
    ] = None,
    answer: Annotated[str | None, typer.Option(help="What is to follow --question and the prompt.")] = None,
    start: Start = None,
    config: Config = None,
    assignments: SearchSet = None,
    *,
    rows: DataWords,
    ask: AskWords,
    who: WhoWords,
) -> None:
    """Search one prompt that brings SUBJECT's answers to some forget items, and ask others with it (GCG, 2307.15043).

    At each step the gradient proposes tokens, and of `width` prompts the least loss wins. Settings: tokens, steps,
    width, topk, replaced, buffer, restarts, ascii_only, screen (bfloat16 is faster), initial.
    """
    refuse_torchrun("attack")
    from vestige.attacks.gcg import GcgSettings

    placed = [] if placement is None else [f"placement={placement}"]
    evals, settings = ask.with_own(GcgSettings, config, [*(assignments or ()), *placed])
    if question is not None or answer is not None:
        if data or forget or start:
            raise InputError("--question is asked in place of data; leave --data, --forget and --start out")
        if question is None or answer is None or not question.strip() or not answer.strip():
            raise InputError("one text of your own is --question with --answer, and neither may be empty; give both")
        if half_character(question + answer):
            raise InputError("--question or --answer holds bytes that are not UTF-8, so no tokeniser reads them")
        search_and_tell(who.model(subject), question, answer, settings, seed=who.seed, as_json=who.as_json)
        return
    if not data or not forget:
        raise InputError("give --data and --forget, or one text of your own by --question and --answer")
    from vestige.attacks.planning import gcg_attack
    from vestige.steps.attack import AttackRequest

    splits = rows.splits(data, forget, subject)
    attack = gcg_attack(items, settings, splits.splits, seed=who.seed)
    request = AttackRequest(attack, evals, splits.forget, who.seed, start=start)
    attack_and_tell(who.subject(subject), splits, request, as_json=who.as_json)


@spread
def prefix_command(
    subject: SubjectName,
    target: Annotated[
        str,
        typer.Option(help="The model that knows: its words, and its inner states, are what the prefix is to bring."),
    ],
    data: Data,
    forget: Forget,
    items: Items = SAMPLES,
    start: Start = None,
    config: Config = None,
    assignments: SearchSet = None,
    *,
    rows: DataWords,
    ask: AskWords,
    who: WhoWords,
) -> None:
    """Search one prefix that brings from SUBJECT what TARGET says of some forget items, and ask others with it.

    Enhanced GCG, the prompt attack of 2506.00688. Settings: tokens, first_tokens, ramp_steps, steps, candidates, topk,
    buffer, forced_tokens, clamp, layers, distance, representation, fluency, repetition, repetition_power, and more:
    docs/attacks.md.
    """
    refuse_torchrun("attack")
    from vestige.attacks.enhanced import EnhancedSettings
    from vestige.attacks.planning import prefix_attack
    from vestige.steps.attack import AttackRequest

    evals, settings = ask.with_own(EnhancedSettings, config, assignments)
    splits = rows.splits(data, forget, subject)
    attack = prefix_attack(items, settings, splits.splits, seed=who.seed)
    guide = who.guide(target)
    request = AttackRequest(attack, evals, splits.forget, who.seed, guide=guide, start=start)
    attack_and_tell(who.subject(subject), splits, request, as_json=who.as_json)


@dataclass(frozen=True)
class Searched:
    """A prompt for one text: what is sent with it, what the search claims of it, what is replied with and without it.

    `loss` is in nats a token of the answer; `bits` is what so many admissible tokens can carry.
    """

    prompt: str
    ids: tuple[int, ...]
    sent: str
    reply: str
    plain: str
    loss: float
    claimed: bool
    verified: bool
    plain_right: bool
    ended: str
    steps: int
    spent: dict[str, int]
    bits: float


def search_and_tell(
    model: "ModelSettings", question: str, answer: str, settings: "GcgSettings", *, seed: int, as_json: bool
) -> None:
    """Search, send what was found as text, and print both; nothing is kept."""
    from vestige.models.load import load

    found = _searched(load(model), question, answer, settings, seed)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
        return
    typer.echo(f"prompt of {len(found.ids)} tokens: {one_line(found.prompt, width=1000)!r}")
    typer.echo(f"sent: {one_line(found.sent, width=1000)!r}")
    typer.echo(f"reply: {one_line(found.reply, width=1000)!r}")
    typer.echo(f"reply without the prompt: {one_line(found.plain, width=1000)!r}")
    typer.echo(
        f"loss {found.loss:.3f} nats a token after {found.steps} steps (ended: {found.ended}); "
        f"brings the answer as the search claims: {_yes(found.claimed)}; as the reply shows: {_yes(found.verified)}"
    )
    if found.plain_right:
        typer.echo("the model gives the answer without the prompt too, so the prompt did not bring it")
    typer.echo(f"carried in, at most: {bits_at_most(found.bits)} (tokens x log2(admissible vocabulary) of the prompt)")


def _searched(loaded: "LoadedModel", question: str, answer: str, settings: "GcgSettings", seed: int) -> Searched:
    from vestige.attacks.gcg import find_prompt
    from vestige.attacks.placement import around, deployed, target_of
    from vestige.models.generation import generate

    prompter = loaded.prompter
    target = target_of(prompter, question, answer, settings.placement)
    text = around(prompter, question, target, settings.placement)
    with progress_bar("gcg") as show:
        found = find_prompt(loaded, [text], settings, seed=seed, on_step=lambda done, of: show(done / of, ""))
    sent = deployed(question, found.text, settings.placement)
    reply, plain = generate(
        loaded.model,
        [prompter.prompt(text) for text in (sent, deployed(question, "", settings.placement))],
        end_ids=prompter.end_ids,
        max_new_tokens=len(target),
        context=prompter.max_tokens,
    )
    return Searched(
        prompt=found.text,
        ids=found.ids,
        sent=sent,
        reply=prompter.decode(reply.ids),
        plain=prompter.decode(plain.ids),
        loss=found.loss,
        claimed=found.reached,
        verified=reply.ids[: len(target)] == target,
        plain_right=plain.ids[: len(target)] == target,
        ended=found.ended,
        steps=found.steps,
        spent=dict(found.spent),
        bits=len(found.ids) * found.admissible_bits,
    )


def _yes(held: bool) -> str:
    return "yes" if held else "no"
