"""One question and answer of one's own: a prompt that brings the answer, and whether it does when it is sent anew."""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import typer

from vestige.cli.progress import progress_bar
from vestige.cli.prompt_told import bits_at_most
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.attacks.gcg import GcgSettings
    from vestige.models.load import LoadedModel, ModelSettings


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
