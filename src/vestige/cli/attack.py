"""`vestige attack`: try to make a model say what it was made to forget, and print what each attack gained.

An attack runs from end to end: asked before, attacked, asked after. `gcg` with a question and answer of the user's own
searches for a prompt that brings the answer, and sends it.
"""

from collections.abc import Callable, Iterable, Mapping
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
    reading,
    say_notes,
)
from vestige.cli.output import progress_bar, refuse_torchrun
from vestige.cli.tables import print_columns, print_json, print_table
from vestige.core.errors import InputError
from vestige.core.estimates import to_json
from vestige.core.text import half_character, one_line

if TYPE_CHECKING:
    from vestige.artifacts.layout import AttackFolder
    from vestige.artifacts.records import KeptPrompt, Summary
    from vestige.attacks.gcg import GcgSettings
    from vestige.attacks.planning import Attack, AttackSettings
    from vestige.core.estimates import Estimate
    from vestige.models.load import ModelSettings

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
class AttackOptions:
    """How the attacked model is asked, and of which items."""

    data: Data
    forget: Forget
    retain: Retain = None
    evals: Evals = "qa"
    max_new_tokens: Longest = 64

    def run(
        self,
        subject: str,
        settings: "AttackSettings",
        evidence: EvidenceOptions,
        typed: Given,
        *,
        kind: str = "",
        target: str | None = None,
        start: Path | None = None,
    ) -> None:
        """Make the attack on the subject, ask it before and after, and print what changed.

        `kind` is the name under which an attack of another package has its settings; `target` leads a search for a
        prefix.
        """
        refuse_torchrun("attack")
        from vestige import requests
        from vestige.artifacts.records import read_prompt, read_summary
        from vestige.steps.attack import attack_summaries, read_spent, run_attack
        from vestige.steps.evaluate import evaluate_together, requests_of

        evals = evals_from(typed, eval_names(self.evals), kind, max_new_tokens=self.max_new_tokens)
        corpus = corpus_from(typed, self.data)
        splits = say_notes(requests.questions(corpus, self.forget, self.retain, models=[subject]), alternatives=True)
        guide = None if target is None else partial(requests.guide, target, reading(typed), evidence.output_dir)
        request = requests.attack(settings, splits, evals, seed=evidence.seed, guide=guide, start=start)
        attack, attacked = request.attack, evidence.subject(typed, subject)
        # Attacked first: what it refuses is refused before anything is asked or written.
        with progress_bar(attack.plan.name) as show:
            folder = run_attack(attacked, request, lambda share: show(share, ""))
        before = evaluate_together(attacked, requests_of(splits, evals, evidence.seed, attack.tested))
        levels = {"before": _results(read_summary(evaluation.summary(request.forget)) for evaluation in before)}
        summaries = attack_summaries(attacked, folder, request)
        for point in attack.plan.points:
            levels[point] = _results(summaries[point, name][1] for name in evals)
        prompt = read_prompt(folder) if attack.plan.searches else None
        print_attack(attack, folder, read_spent(folder), prompt, levels, as_json=evidence.as_json)


@command(RELEARN, SOURCE, MODEL, *EVALUATIONS, common=f"{COMMON} items material")
def relearn_command(
    subject: SubjectName,
    preset: Annotated[
        str | None, typer.Option(help="The paper's settings: zephyr-7b, phi-1.5, llama-3.2-1b-instruct.")
    ] = None,
    *,
    asking: AttackOptions,
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
    asking.run(subject, settings, evidence, typed)


def plain_command(kind: str) -> Callable[..., None]:
    """The command of an attack that needs no options beside its settings, which another package may bring.

    The settings of such a one are given by `--set NAME.KEY=VALUE`, as a method's are.
    """
    from vestige.attacks import known_attacks

    attack = known_attacks()[kind]
    # `--items` of relearning and the searches too.
    part = Part(attack.home, "Attack", renamed={"facts": "items"} if kind == "in_context" else {})

    def run(subject: SubjectName, *, asking: AttackOptions, evidence: EvidenceOptions, typed: Given) -> None:
        from vestige.attacks.planning import find_attack

        settings = find_attack(kind)
        if part.rows():
            return asking.run(subject, typed.build(settings), evidence, typed)
        # settings.json, of which options are made, knows the classes of this package alone.
        asking.run(subject, settings.build(typed.part(kind), where=f"attack {kind}"), evidence, typed, kind=kind)

    # An f-string within the function would be no docstring, and --help has its words from there.
    run.__doc__ = f"{attack.about}\n\nSUBJECT is asked about the forget items before and after, and stays as it is."
    # Not every attack has these two; what is no option of a command is passed over.
    return command(part, SOURCE, MODEL, *EVALUATIONS, common=f"{COMMON} bits items")(run)


@dataclass(frozen=True)
class SearchOptions(AttackOptions):
    """The same where one question of the user's own may stand in place of data."""

    data: Annotated[str, typer.Option(help="A compiled folder, a file, or a hub dataset id; not with --question.")] = ""
    forget: Annotated[str, typer.Option(help="A file of items or selectors (edge:A_B, node:A, ...).")] = ""
    question: Annotated[str, typer.Option(help="One question of your own in place of data; nothing is stored.")] = ""
    answer: Annotated[str, typer.Option(help="The answer to --question that the prompt is to bring.")] = ""
    control: Annotated[
        str, typer.Option(help="With --question, a model that never knew the answer: the same search on it.")
    ] = ""

    def check(self, start: Path | None) -> None:
        """Refuse half of either, or a mixture."""
        if not any((self.question, self.answer, self.control)):
            if not self.data or not self.forget:
                raise InputError("give --data and --forget, or one text of your own by --question and --answer")
        elif self.data or self.forget or start:
            raise InputError("--question is asked in place of data; leave --data, --forget and --start out")
        elif not self.question.strip() or not self.answer.strip():
            raise InputError("one text of your own is --question with --answer, and neither may be empty; give both")
        elif half_character(self.question + self.answer):
            raise InputError("--question or --answer is not valid UTF-8; give it in UTF-8")


@command(GCG, SOURCE, MODEL, *EVALUATIONS, common=f"{COMMON} question answer control")
def gcg_command(
    subject: SubjectName, start: Start = None, *, asking: SearchOptions, evidence: EvidenceOptions, typed: Given
) -> None:
    """Search for one prompt that elicits answers to some forget items, and test it on others (GCG, 2307.15043).

    At each step the gradient proposes tokens, and of `width` prompts the one with the least loss wins.
    """
    from vestige.attacks.gcg import GcgSettings

    asking.check(start)
    settings = typed.build(GcgSettings)
    if not asking.question:
        return asking.run(subject, settings, evidence, typed, start=start)
    refuse_torchrun("attack")
    # By one seed, so that the two searches differ by the model alone.
    searched = {
        name: _search_for_text(model_from(typed, model), asking, settings, evidence.seed)
        for name, model in (("model", subject), ("control", asking.control))
        if model
    }
    if evidence.as_json:
        beside = {"control": searched["control"]} if asking.control else {}
        return print_json(searched["model"] | beside)
    for name, prompt in searched.items():
        if asking.control:
            typer.echo(f"{name}:")
        _print_text_prompt(prompt)


def _search_for_text(model: "ModelSettings", text: SearchOptions, settings: "GcgSettings", seed: int) -> dict[str, Any]:
    """A prompt that brings the answer to one question: what is sent, what is replied with and without it, and bits.

    `loss` is in nats a token of the answer. `bits` is what so many admissible tokens can carry, `needed` what it takes
    to tell the answer to somebody who knows what the model knows: its code length without the prompt.
    """
    import numpy as np

    from vestige.attacks.gcg import find_prompt
    from vestige.attacks.placement import around, deployed, target_of
    from vestige.metrics.information import code_length
    from vestige.models.generation import generate
    from vestige.models.load import load
    from vestige.models.scoring import score_answers

    loaded = load(model)
    prompter, question, placement = loaded.prompter, text.question, settings.placement
    target = target_of(prompter, question, text.answer, placement)
    with progress_bar("gcg") as show:
        prompt = find_prompt(
            loaded,
            [around(prompter, question, target, placement)],
            settings,
            seed=seed,
            on_step=lambda done, of: show(done / of, ""),
        )
    sent = deployed(question, prompt.text, placement)
    (alone,) = score_answers(loaded.model, [prompter.encode(question, text.answer)])
    # The search's claim is not believed: the prompt is sent as text, and the model replies from a fresh cache.
    reply, plain = generate(
        loaded.model,
        [prompter.prompt(sent), prompter.prompt(question)],
        end_ids=prompter.end_ids,
        # What a model says after so many tokens is not compared.
        max_new_tokens=len(target),
        context=prompter.max_tokens,
    )
    return {
        "prompt": prompt.text,
        "ids": prompt.ids,
        "sent": sent,
        "reply": prompter.decode(reply.ids),
        "plain": prompter.decode(plain.ids),
        "loss": prompt.loss,
        "claimed": prompt.reached,
        "verified": reply.ids[: len(target)] == target,
        "plain_right": plain.ids[: len(target)] == target,
        "ended": prompt.ended,
        "steps": prompt.steps,
        "spent": dict(prompt.spent),
        "bits": len(prompt.ids) * prompt.admissible_bits,
        "needed": code_length(np.array(alone.logp)),
    }


def _print_text_prompt(prompt: Mapping[str, Any]) -> None:
    claimed, verified = ("yes" if prompt[key] else "no" for key in ("claimed", "verified"))
    typer.echo(f"prompt of {len(prompt['ids'])} tokens: {one_line(prompt['prompt'], width=1000)!r}")
    typer.echo(f"sent: {one_line(prompt['sent'], width=1000)!r}")
    typer.echo(f"reply: {one_line(prompt['reply'], width=1000)!r}")
    typer.echo(f"reply without the prompt: {one_line(prompt['plain'], width=1000)!r}")
    typer.echo(
        f"loss {prompt['loss']:.3f} nats a token after {prompt['steps']} steps (ended: {prompt['ended']}); "
        f"brings the answer as the search claims: {claimed}; as the reply shows: {verified}"
    )
    if prompt["plain_right"]:
        typer.echo("the model gives the answer without the prompt too, so the prompt did not bring it")
    typer.echo(
        f"carried in, at most: {bits_at_most(prompt['bits'])} (tokens x log2(admissible vocabulary) of the prompt)"
    )
    typer.echo(f"needed: {prompt['needed']:.1f} bits (the answer in the model's own code, without the prompt)")


@command(PREFIX, SOURCE, MODEL, *EVALUATIONS, common=f"{COMMON} target start")
def prefix_command(
    subject: SubjectName,
    target: Annotated[
        str, typer.Option(help="The target model, whose words and hidden states the prefix should elicit.")
    ],
    start: Start = None,
    *,
    asking: AttackOptions,
    evidence: EvidenceOptions,
    typed: Given,
) -> None:
    """Search for one prefix that makes SUBJECT answer some forget items like TARGET, and test it on others.

    Enhanced GCG, the prompt attack of 2506.00688; see docs/attacks.md.
    """
    from vestige.attacks.enhanced import EnhancedSettings

    asking.run(subject, typed.build(EnhancedSettings), evidence, typed, target=target, start=start)


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
    title = f"{attack.plan.name}: {len(attack.tested)} forget items, 95 % intervals"
    if prompt is None:
        trained = attack.plan.kind == "relearn"
        points = [f"epoch {p}" if trained and p != "before" else p.replace("given", "after") for p in levels]
        table = [[key, *(level[key].said() for level in levels.values())] for key in levels["before"]]
        print_table(title, ["format/metric", *points], table, no_wrap=["format/metric"])
    else:
        # Each part of the prompt beside its bits.
        bits = [at_most(prompt.points[point].bits) if point in prompt.points else "" for point in levels]
        columns = [[key, *(level[key].said() for level in levels.values())] for key in levels["before"]]
        print_columns(title, [["of the prompt", *levels], ["bits", *bits]], columns)
        for line in said_of(prompt):
            typer.echo(line)
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


def at_most(bits: float) -> str:
    """An upper bound rounded up, so that it stays one: below 10 to a tenth, above to a whole."""
    # By its decimals: as a float 0.1 is a little more than a tenth, and would be rounded up to 0.2.
    rounded = Decimal(str(bits)).quantize(Decimal("0.1" if bits < 10 else "1"), ROUND_CEILING)
    return f"{int(rounded) if rounded == int(rounded) else rounded:,}"


def bits_at_most(bits: float) -> str:
    """The same with its unit, as in `1 bit` or `0.4 bits`."""
    amount = at_most(bits)
    return f"{amount} bit{'' if amount == '1' else 's'}"


def said_of(prompt: "KeptPrompt") -> tuple[str, ...]:
    """The prompt in lines for a terminal. Its text comes from a model's vocabulary, so it is hostile."""
    n, verified = len(prompt.samples), sum(s.verified for s in prompt.samples)
    claimed = "all" if prompt.claimed else "not all"
    altered = sum(not s.same_tokens for s in prompt.samples)
    steps, total = _counted(prompt.steps, "step"), _counted(n, "sample")
    lines = [
        f"{prompt.placement} of {_counted(len(prompt.ids), 'token')}: {one_line(prompt.text, width=1000)!r}",
        f"loss {prompt.loss:.3f} after {steps} (ended: {prompt.ended}); spent: {_amounts(prompt.spent)}",
        f"claimed by the search: {claimed} of its {total}; verified by replies to its text: {verified} of {n}",
    ]
    plain, brought = sum(s.plain_right for s in prompt.samples), sum(s.brought for s in prompt.samples)
    lost = sum(s.plain_right and not s.verified for s in prompt.samples)
    by_it, with_it = (f"{k} {'is' if k == 1 else 'are'}" for k in (brought, lost))
    lines.append(f"without the prompt: {plain} of {n} already; so {by_it} brought by it, and {with_it} lost with it")
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


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _amounts(spent: Mapping[str, int]) -> str:
    return ", ".join(f"{amount:,} {name.replace('_', ' ')}" for name, amount in spent.items())
