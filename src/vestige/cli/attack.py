"""`vestige attack`: try to make a model say what it was made to forget, and print what each attack gained.

An attack runs from end to end: asked before, attacked, asked after. `gcg` with a question and answer of the user's own
searches for a prompt that brings the answer, and sends it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from vestige.cli.command import Given, Part, command
from vestige.cli.evaluate import EVALUATIONS
from vestige.cli.options import (
    MODEL,
    SOURCE,
    Data,
    Evals,
    EvidenceOptions,
    Forget,
    Longest,
    Retain,
    SubjectName,
    corpus_from,
    eval_names,
    evals_from,
    model_from,
    say_notes,
)
from vestige.cli.output import progress_bar, refuse_torchrun
from vestige.cli.tables import print_columns, print_json, print_table
from vestige.core.errors import InputError
from vestige.core.estimates import to_json
from vestige.core.text import half_character, one_line

if TYPE_CHECKING:
    from vestige.artifacts.layout import AttackFolder
    from vestige.artifacts.records import KeptPrompt, SampleReply, Summary
    from vestige.attacks.gcg import GcgSettings
    from vestige.attacks.planning import Attack, AttackSettings
    from vestige.core.estimates import Estimate
    from vestige.core.settings import Settings
    from vestige.models.load import LoadedModel, ModelSettings

    Levels: TypeAlias = Mapping[str, Mapping[str, Estimate]]
    """By point, the estimates over the tested items by `format/metric`."""

NO_EVIDENCE = (
    "without the same attack on a model that never knew (retrained), a gain does not show that anything was "
    "recovered: `vestige audit` runs both"
)
METRICS = ("rouge1_recall", "exact_match", "contains_match", "leaked", "probability", "answer_bits", "accuracy")
"""What the table shows; everything else is in the evidence."""

RELEARN = Part(
    "vestige.attacks.relearn:RelearnSettings",
    "Relearning",
    first=("material", "items", "rate", "epochs", "rank"),
    renamed={"also": ""},
)
GCG = Part("vestige.attacks.gcg:GcgSettings", "Search", first=("items", "placement", "tokens", "steps", "width"))
PREFIX = Part("vestige.attacks.enhanced:EnhancedSettings", "Search", first=("items", "tokens", "steps", "candidates"))
Start = Annotated[
    Path | None,
    typer.Option("--start", help="Folder of an earlier attack whose prompt the search starts from; its cost counts."),
]


COMMON = "data forget output_dir evals max_new_tokens retain role seed device as_json"


@dataclass(frozen=True)
class AskingOptions:
    """How the attacked model is asked, and of which items."""

    retain: Retain = None
    evals: Evals = "qa"
    max_new_tokens: Longest = 64

    def settings(self, typed: Given, attack: str) -> "dict[str, Settings]":
        """The settings of each evaluation; those of an attack of another package are given under its name."""
        return evals_from(typed, eval_names(self.evals), attack, max_new_tokens=self.max_new_tokens)


@command(RELEARN, SOURCE, MODEL, *EVALUATIONS, common=f"{COMMON} items material")
def relearn_command(
    subject: SubjectName,
    data: Data,
    forget: Forget,
    preset: Annotated[
        str | None, typer.Option(help="The paper's settings: zephyr-7b, phi-1.5, llama-3.2-1b-instruct.")
    ] = None,
    *,
    asking: AskingOptions,
    evidence: EvidenceOptions,
    typed: Given,
) -> None:
    """Tune SUBJECT on some items; after every epoch, test it on forget items outside that training.

    The defaults are those of the paper 2506.00688.
    """
    from vestige.attacks.relearn import PRESETS, RelearnSettings
    from vestige.core.text import closest

    if preset is not None and preset not in PRESETS:
        raise InputError(f"no preset {one_line(preset)!r}; {closest(preset, list(PRESETS))}")
    settings = typed.build(RelearnSettings, {} if preset is None else PRESETS[preset].settings)
    attack_and_print(subject, data, forget, settings, asking, evidence, typed)


def plain_command(kind: str) -> Callable[..., None]:
    """The command of an attack that needs no options beside its settings, which another package may bring.

    The settings of such a one are given by `--set NAME.KEY=VALUE`, as a method's are.
    """
    from vestige.attacks import known_attacks

    attack = known_attacks()[kind]
    part = Part(attack.home, "Attack", renamed=_RENAMED.get(kind, {}))

    def run(
        subject: SubjectName,
        data: Data,
        forget: Forget,
        *,
        asking: AskingOptions,
        evidence: EvidenceOptions,
        typed: Given,
    ) -> None:
        from vestige.attacks.planning import find_attack

        settings = find_attack(kind)
        built = typed.build(settings) if part.rows() else settings.build(typed.part(kind), where=f"attack {kind}")
        attack_and_print(subject, data, forget, built, asking, evidence, typed, "" if part.rows() else kind)

    run.__doc__ = f"{attack.about}\n\nSUBJECT is asked about the forget items before and after, and stays as it is."
    return command(part, SOURCE, MODEL, *EVALUATIONS, common=f"{COMMON} bits items")(run)


_RENAMED = {"in_context": {"facts": "items"}}


def attack_and_print(
    subject: str,
    data: str,
    forget: str,
    settings: "AttackSettings",
    asking: AskingOptions,
    evidence: EvidenceOptions,
    typed: Given,
    kind: str = "",
    *,
    target: str | None = None,
    start: Path | None = None,
) -> None:
    """Make the attack on the subject, ask it before and after, and print what changed.

    `target` leads a search for a prefix. The attack comes before the questions: what it refuses is refused before
    anything is asked or written.
    """
    refuse_torchrun("attack")
    from vestige import requests
    from vestige.artifacts.records import read_prompt, read_summary
    from vestige.steps.attack import attack_summaries, read_spent, run_attack
    from vestige.steps.evaluate import evaluate_together, requests_of

    evals = asking.settings(typed, kind)
    splits = say_notes(
        requests.questions(corpus_from(typed, data), forget, asking.retain, models=[subject]), alternatives=True
    )
    guide = None if target is None else partial(evidence.guide, typed, target)
    request = requests.attack(settings, splits, evals, seed=evidence.seed, guide=guide, start=start)
    attack, attacked = request.attack, evidence.subject(typed, subject)
    with progress_bar(attack.plan.name) as show:
        folder = run_attack(attacked, request, lambda share: show(share, ""))
    before = evaluate_together(attacked, requests_of(splits, evals, evidence.seed, attack.tested))
    levels = {"before": _results(read_summary(evaluation.summary(request.forget)) for evaluation in before)}
    summaries = attack_summaries(attacked, folder, request)
    for point in attack.plan.points:
        levels[point] = _results(summaries[point, name][1] for name in evals)
    prompt = read_prompt(folder) if attack.plan.searches else None
    print_attack(attack, folder, read_spent(folder), prompt, levels, as_json=evidence.as_json)


@command(GCG, SOURCE, MODEL, *EVALUATIONS, common=f"{COMMON} question answer control")
def gcg_command(
    subject: SubjectName,
    data: Annotated[
        str | None, typer.Option(help="A compiled folder, a file, or a hub dataset id; not with --question.")
    ] = None,
    forget: Annotated[str | None, typer.Option(help="A file of items or selectors (edge:A_B, node:A, ...).")] = None,
    question: Annotated[
        str | None, typer.Option(help="One question of your own in place of data; nothing is stored.")
    ] = None,
    answer: Annotated[str | None, typer.Option(help="The answer to --question that the prompt is to bring.")] = None,
    control: Annotated[
        str | None, typer.Option(help="With --question, a model that never knew the answer: the same search on it.")
    ] = None,
    start: Start = None,
    *,
    asking: AskingOptions,
    evidence: EvidenceOptions,
    typed: Given,
) -> None:
    """Search for one prompt that elicits answers to some forget items, and test it on others (GCG, 2307.15043).

    At each step the gradient proposes tokens, and of `width` prompts the one with the least loss wins. The placement
    infix puts the prompt at {prompt} in --question.
    """
    refuse_torchrun("attack")
    from vestige.attacks.gcg import GcgSettings

    settings = typed.build(GcgSettings)
    if question is not None or answer is not None:
        if data or forget or start:
            raise InputError("--question is asked in place of data; leave --data, --forget and --start out")
        if question is None or answer is None or not question.strip() or not answer.strip():
            raise InputError("one text of your own is --question with --answer, and neither may be empty; give both")
        if half_character(question + answer):
            raise InputError("--question or --answer is not valid UTF-8; give it in UTF-8")
        models = {name: model_from(typed, path) for name, path in (("model", subject), ("control", control)) if path}
        search_and_print(models, question, answer, settings, seed=evidence.seed, as_json=evidence.as_json)
        return
    if control is not None or not data or not forget:
        raise InputError(
            "--control goes with --question; " * (control is not None)
            + "give --data and --forget, or one text of your own by --question and --answer"
        )
    attack_and_print(subject, data, forget, settings, asking, evidence, typed, start=start)


@command(PREFIX, SOURCE, MODEL, *EVALUATIONS, common=f"{COMMON} target start")
def prefix_command(
    subject: SubjectName,
    target: Annotated[
        str, typer.Option(help="The target model, whose words and hidden states the prefix should elicit.")
    ],
    data: Data,
    forget: Forget,
    start: Start = None,
    *,
    asking: AskingOptions,
    evidence: EvidenceOptions,
    typed: Given,
) -> None:
    """Search for one prefix that makes SUBJECT answer some forget items like TARGET, and test it on others.

    Enhanced GCG, the prompt attack of 2506.00688; see docs/attacks.md.
    """
    from vestige.attacks.enhanced import EnhancedSettings

    settings = typed.build(EnhancedSettings)
    attack_and_print(subject, data, forget, settings, asking, evidence, typed, target=target, start=start)


@dataclass(frozen=True)
class OwnPrompt:
    """A prompt for one text: what is sent with it, what the search claims of it, what is replied with and without it.

    `loss` is in nats a token of the answer; `bits` is what so many admissible tokens can carry, `needed` what it takes
    to tell the answer to somebody who knows what the model knows: its code length without the prompt.
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
    needed: float


def search_and_print(
    models: "Mapping[str, ModelSettings]",
    question: str,
    answer: str,
    settings: "GcgSettings",
    *,
    seed: int,
    as_json: bool,
) -> None:
    """Search on the model, and on a control if there is one, send what was found, and print both; nothing is kept."""
    from vestige.models.load import load

    prompts = {name: _search_own(load(model), question, answer, settings, seed) for name, model in models.items()}
    if as_json:
        beside = {"control": asdict(prompts["control"])} if "control" in prompts else {}
        return print_json(asdict(prompts["model"]) | beside)
    for name, prompt in prompts.items():
        if len(prompts) > 1:
            typer.echo(f"{name}:")
        _print_own(prompt)


def _print_own(prompt: OwnPrompt) -> None:
    typer.echo(f"prompt of {len(prompt.ids)} tokens: {one_line(prompt.prompt, width=1000)!r}")
    typer.echo(f"sent: {one_line(prompt.sent, width=1000)!r}")
    typer.echo(f"reply: {one_line(prompt.reply, width=1000)!r}")
    typer.echo(f"reply without the prompt: {one_line(prompt.plain, width=1000)!r}")
    typer.echo(
        f"loss {prompt.loss:.3f} nats a token after {prompt.steps} steps (ended: {prompt.ended}); "
        f"brings the answer as the search claims: {_yes(prompt.claimed)}; as the reply shows: {_yes(prompt.verified)}"
    )
    if prompt.plain_right:
        typer.echo("the model gives the answer without the prompt too, so the prompt did not bring it")
    typer.echo(f"carried in, at most: {bits_at_most(prompt.bits)} (tokens x log2(admissible vocabulary) of the prompt)")
    typer.echo(f"needed: {prompt.needed:.1f} bits (the answer in the model's own code, without the prompt)")


def _search_own(loaded: "LoadedModel", question: str, answer: str, settings: "GcgSettings", seed: int) -> OwnPrompt:
    import numpy as np

    from vestige.attacks.gcg import find_prompt
    from vestige.attacks.placement import around, deployed, target_of
    from vestige.metrics.information import code_length
    from vestige.models.generation import generate
    from vestige.models.scoring import score_answers

    prompter = loaded.prompter
    target = target_of(prompter, question, answer, settings.placement)
    text = around(prompter, question, target, settings.placement)
    with progress_bar("gcg") as show:
        searched = find_prompt(loaded, [text], settings, seed=seed, on_step=lambda done, of: show(done / of, ""))
    sent = deployed(question, searched.text, settings.placement)
    bare = deployed(question, "", settings.placement)
    (alone,) = score_answers(loaded.model, [prompter.encode(bare, answer)])
    reply, plain = generate(
        loaded.model,
        [prompter.prompt(text) for text in (sent, bare)],
        end_ids=prompter.end_ids,
        max_new_tokens=len(target),
        context=prompter.max_tokens,
    )
    return OwnPrompt(
        prompt=searched.text,
        ids=searched.ids,
        sent=sent,
        reply=prompter.decode(reply.ids),
        plain=prompter.decode(plain.ids),
        loss=searched.loss,
        claimed=searched.reached,
        verified=reply.ids[: len(target)] == target,
        plain_right=plain.ids[: len(target)] == target,
        ended=searched.ended,
        steps=searched.steps,
        spent=dict(searched.spent),
        bits=len(searched.ids) * searched.admissible_bits,
        needed=code_length(np.array(alone.logp)),
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def print_attack(
    attack: "Attack",
    folder: "AttackFolder",
    spent: Mapping[str, Any],
    prompt: "KeptPrompt | None",
    levels: "Levels",
    *,
    as_json: bool,
) -> None:
    """Print what the tested items say before and at each point of the attack, and what it carried in."""
    if as_json:
        document = {"attack": asdict(attack.plan), "evidence": str(folder.path), **spent, "notes": attack.notes}
        document |= {} if prompt is None else {"prompt": asdict(prompt)}
        rows = {point: {k: to_json(e) for k, e in at.items()} for point, at in levels.items()}
        return print_json({**document, "levels": rows})
    if prompt is None:
        trained = attack.plan.kind == "relearn"
        points = [f"epoch {p}" if trained and p != "before" else p.replace("given", "after") for p in levels]
        table = [[key, *(level[key].said() for level in levels.values())] for key in levels["before"]]
        title = f"{attack.plan.name}: {len(attack.tested)} forget items, 95 % intervals"
        print_table(title, ["format/metric", *points], table, no_wrap=["format/metric"])
    else:
        print_by_share(attack, prompt, levels)
    for note in attack.notes:
        typer.echo(note)
    for name, bits in spent["bounds_bits"].items():
        typer.echo(f"carried in, at most: {bits_at_most(bits)} ({name})")
    typer.echo(NO_EVIDENCE)
    typer.echo(f"evidence in {folder.path}")


def _results(summaries: "Iterable[Summary]") -> "dict[str, Estimate]":
    """The estimates over the tested items, by `format/metric`."""
    return {
        f"{r.format}/{r.estimate.metric}": r.estimate
        for summary in summaries
        for r in summary.results
        if (r.split, r.scope) == ("forget", "all") and r.estimate.metric in METRICS
    }


def print_by_share(attack: "Attack", prompt: "KeptPrompt", levels: "Mapping[str, Mapping[str, Estimate]]") -> None:
    """The levels before and with each part of the prompt beside the part's bits, then the whole prompt."""
    bits = [at_most(prompt.points[point].bits) if point in prompt.points else "" for point in levels]
    fixed = [["of the prompt", *levels], ["bits", *bits]]
    columns = [[key, *(level[key].said() for level in levels.values())] for key in levels["before"]]
    print_columns(f"{attack.plan.name}: {len(attack.tested)} forget items, 95 % intervals", fixed, columns)
    for line in said_of(prompt):
        typer.echo(line)


def at_most(bits: float) -> str:
    """An upper bound rounded up, so that it stays one: below 10 to a tenth, above to a whole."""
    rounded = Decimal(str(bits)).quantize(Decimal("0.1" if bits < 10 else "1"), ROUND_CEILING)
    return f"{int(rounded) if rounded == int(rounded) else rounded:,}"


def bits_at_most(bits: float) -> str:
    """The same with its unit, as in `1 bit` or `0.4 bits`."""
    amount = at_most(bits)
    return f"{amount} bit{'' if amount == '1' else 's'}"


def said_of(prompt: "KeptPrompt") -> tuple[str, ...]:
    """The prompt in lines for a terminal. Its text comes from a model's vocabulary, so it is hostile."""
    n, brought = len(prompt.samples), sum(s.verified for s in prompt.samples)
    claimed = "all" if prompt.claimed else "not all"
    altered = sum(not s.same_tokens for s in prompt.samples)
    steps, total = _counted(prompt.steps, "step"), _counted(n, "sample")
    lines = [
        f"{prompt.placement} of {_counted(len(prompt.ids), 'token')}: {one_line(prompt.text, width=1000)!r}",
        f"loss {prompt.loss:.3f} after {steps} (ended: {prompt.ended}); spent: {_amounts(prompt.spent)}",
        f"claimed by the search: {claimed} of its {total}; verified by replies to its text: {brought} of {n}",
    ]
    lines.append(_beside_plain(prompt.samples))
    lines += [
        f"{one_line(s.question, width=60)!r}: wanted {one_line(s.wanted, width=60)!r}, with the prompt "
        f"{one_line(s.replied, width=60)!r}, without it {one_line(s.plain, width=60)!r}"
        for s in prompt.samples
    ]
    if altered:
        lines.append(f"in {altered} of {n} samples the text is read as other tokens than the search scored")
    if prompt.earlier:
        lines.append(f"it began with the prompt of an earlier search, which had spent {_amounts(prompt.earlier)}")
    if prompt.seen_bits is None:
        lines.append(
            "the search saw more than answers (the target's inner states, or another model by the prompt it began "
            "with): what that tells has no bound here"
        )
    return tuple(lines)


def _beside_plain(samples: "Sequence[SampleReply]") -> str:
    """What of the replies is the prompt's doing."""
    n, plain, brought = len(samples), sum(s.plain_right for s in samples), sum(s.brought for s in samples)
    lost = sum(s.plain_right and not s.verified for s in samples)
    by_it, with_it = (f"{k} {'is' if k == 1 else 'are'}" for k in (brought, lost))
    return f"without the prompt: {plain} of {n} already; so {by_it} brought by it, and {with_it} lost with it"


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _amounts(spent: Mapping[str, int]) -> str:
    return ", ".join(f"{amount:,} {name.replace('_', ' ')}" for name, amount in spent.items())
