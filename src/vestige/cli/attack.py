"""`vestige attack`: try to make a model say what it was made to forget, and print what each attack gained.

An attack runs from end to end: asked before, attacked, asked after. `gcg` with a question and answer of the user's own
searches for a prompt that brings the answer, and sends it; `acr` compares how short a prompt makes each model say a
text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Decimal
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
    Forget,
    Longest,
    Retain,
    SubjectName,
    Who,
    eval_names,
    evals_from,
    model_from,
    source_from,
    splits_from,
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
    from vestige.data.corpus import NamedSplits
    from vestige.metrics.memorization import PairedLengths
    from vestige.models.load import LoadedModel, ModelSettings
    from vestige.steps.attack import AttackRequest
    from vestige.steps.evaluate import EvaluateRequest, Subject

    Levels: TypeAlias = Mapping[str, Mapping[str, Estimate]]
    """By point, the estimates over the tested items by `format/metric`."""

NO_EVIDENCE = (
    "without the same attack on a model that never knew (retrained), a gain does not show that anything was "
    "recovered: `vestige audit` runs both"
)
METRICS = ("rouge1_recall", "exact_match", "contains_match", "leaked", "probability", "answer_bits", "accuracy")
"""What the table shows; everything else is in the evidence."""
NOT_FOUND = "not found"

RELEARN = Part(
    "vestige.attacks.relearn:RelearnSettings",
    "Relearning",
    first=("material", "items", "rate", "epochs", "rank"),
    renamed={"also": ""},
)
GCG = Part("vestige.attacks.gcg:GcgSettings", "Search", first=("items", "placement", "tokens", "steps", "width"))
PREFIX = Part("vestige.attacks.enhanced:EnhancedSettings", "Search", first=("items", "tokens", "steps", "candidates"))
ACR = Part(
    "vestige.evals.compression:AcrSettings",
    "Search",
    first=("items", "form", "schedule", "longest", "steps"),
    renamed={"seed": ""},
)
Start = Annotated[
    Path | None,
    typer.Option("--start", help="Folder of an earlier attack whose prompt the search starts from; its cost counts."),
]


@dataclass(frozen=True)
class Asking:
    """How the attacked model is asked, and of which items."""

    retain: Retain = None
    evals: Evals = "qa"
    max_new_tokens: Longest = 64

    def settings(self, given: Given, attack: str) -> "dict[str, Settings]":
        """The settings of each evaluation; those of an attack of another package are given under its name."""
        return evals_from(given, eval_names(self.evals), attack, max_new_tokens=self.max_new_tokens)


@command(RELEARN, SOURCE, MODEL, *EVALUATIONS)
def relearn_command(
    subject: SubjectName,
    data: Data,
    forget: Forget,
    preset: Annotated[
        str | None, typer.Option(help="The paper's settings: zephyr-7b, phi-1.5, llama-3.2-1b-instruct.")
    ] = None,
    *,
    ask: Asking,
    who: Who,
    given: Given,
) -> None:
    """Tune SUBJECT on some items; after every epoch, test it on forget items outside that training.

    The defaults are those of the paper 2506.00688.
    """
    refuse_torchrun("attack")
    from vestige.attacks.relearn import PRESETS, RelearnSettings
    from vestige.core.text import closest

    if preset is not None and preset not in PRESETS:
        raise InputError(f"no preset {one_line(preset)!r}; {closest(preset, list(PRESETS))}")
    settings = given.build(RelearnSettings, {} if preset is None else PRESETS[preset].settings)
    attack_on(subject, data, forget, settings, ask, who, given)


def plain_command(kind: str) -> Callable[..., None]:
    """The command of an attack that needs no options beside its settings, which another package may bring.

    The settings of such a one are given by `--set NAME.KEY=VALUE`, as a method's are.
    """
    from vestige.attacks import known_attacks

    part = Part(known_attacks()[kind].home, "Attack", renamed=_RENAMED.get(kind, {}))

    def run(subject: SubjectName, data: Data, forget: Forget, *, ask: Asking, who: Who, given: Given) -> None:
        refuse_torchrun("attack")
        from vestige.attacks.planning import find_attack

        found = find_attack(kind)
        settings = given.build(found) if part.rows() else found.build(given.part(kind), where=f"attack {kind}")
        attack_on(subject, data, forget, settings, ask, who, given, "" if part.rows() else kind)

    about = known_attacks()[kind].about
    run.__doc__ = f"{about}\n\nSUBJECT is asked about the forget items before and after, and itself stays as it is."
    return command(part, SOURCE, MODEL, *EVALUATIONS)(run)


_RENAMED = {"in_context": {"facts": "items"}}


def __getattr__(name: str) -> Callable[..., None]:
    """The commands of the attacks that have none above."""
    from vestige.attacks import known_attacks

    kind = name.removesuffix("_command")
    if kind == name or kind not in known_attacks():
        raise AttributeError(name)
    return plain_command(kind)


def attack_on(
    subject: str,
    data: str,
    forget: str,
    settings: "AttackSettings",
    ask: Asking,
    who: Who,
    given: Given,
    kind: str = "",
    *,
    guide: str | None = None,
    start: Path | None = None,
) -> None:
    """Plan the attack, make it on the subject, and say what changed; `guide` is the target, where one leads it."""
    from vestige.attacks.planning import check_kind
    from vestige.steps.attack import AttackRequest

    evals = ask.settings(given, kind)
    splits = splits_from(source_from(given, data), forget, ask.retain, subject)
    attack = settings.plan(splits.splits, seed=who.seed)
    check_kind(settings, attack.plan)
    leads = None if guide is None else who.guide(given, guide)
    request = AttackRequest(attack, evals, splits.forget, who.seed, guide=leads, start=start)
    attack_and_tell(who.subject(given, subject), splits, request, as_json=who.as_json)


@command(GCG, SOURCE, MODEL, *EVALUATIONS)
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
    start: Start = None,
    *,
    ask: Asking,
    who: Who,
    given: Given,
) -> None:
    """Search for one prompt that elicits answers to some forget items, and test it on others (GCG, 2307.15043).

    At each step the gradient proposes tokens, and of `width` prompts the one with the least loss wins. The placement
    infix puts the prompt at {prompt} in --question.
    """
    refuse_torchrun("attack")
    from vestige.attacks.gcg import GcgSettings

    settings = given.build(GcgSettings)
    if question is not None or answer is not None:
        if data or forget or start:
            raise InputError("--question is asked in place of data; leave --data, --forget and --start out")
        if question is None or answer is None or not question.strip() or not answer.strip():
            raise InputError("one text of your own is --question with --answer, and neither may be empty; give both")
        if half_character(question + answer):
            raise InputError("--question or --answer is not valid UTF-8; give it in UTF-8")
        search_and_tell(model_from(given, subject), question, answer, settings, seed=who.seed, as_json=who.as_json)
        return
    if not data or not forget:
        raise InputError("give --data and --forget, or one text of your own by --question and --answer")
    attack_on(subject, data, forget, settings, ask, who, given, start=start)


@command(PREFIX, SOURCE, MODEL, *EVALUATIONS)
def prefix_command(
    subject: SubjectName,
    target: Annotated[
        str, typer.Option(help="The target model, whose words and hidden states the prefix should elicit.")
    ],
    data: Data,
    forget: Forget,
    start: Start = None,
    *,
    ask: Asking,
    who: Who,
    given: Given,
) -> None:
    """Search for one prefix that makes SUBJECT answer some forget items like TARGET, and test it on others.

    Enhanced GCG, the prompt attack of 2506.00688; see docs/attacks.md.
    """
    refuse_torchrun("attack")
    from vestige.attacks.enhanced import EnhancedSettings

    attack_on(subject, data, forget, given.build(EnhancedSettings), ask, who, given, guide=target, start=start)


@dataclass(frozen=True)
class OwnPrompt:
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

    found = _search_own(load(model), question, answer, settings, seed)
    if as_json:
        return print_json(found)
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


def _search_own(loaded: "LoadedModel", question: str, answer: str, settings: "GcgSettings", seed: int) -> OwnPrompt:
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
    return OwnPrompt(
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


@command(ACR, SOURCE, MODEL)
def acr_command(
    subjects: Annotated[
        list[str], typer.Argument(metavar="SUBJECT", help="Folders of Vestige, or any models; compared in pairs.")
    ],
    data: Data,
    forget: Forget,
    retain: Retain = None,
    *,
    who: Who,
    given: Given,
) -> None:
    """Find the shortest prompt that makes each SUBJECT output an item's text, token for token (ACR, 2404.15146).

    ACR is the text's tokens over the prompt's; a text is memorised where it exceeds 1. A prompt that was not found has
    no ratio. See docs/attacks.md.
    """
    refuse_torchrun("attack")
    from vestige.evals.compression import AcrSettings
    from vestige.steps.evaluate import requests_of

    given.refuse_others()
    settings = given.build(AcrSettings, {"seed": who.seed})
    splits = splits_from(source_from(given, data), forget, retain, *subjects)
    _refuse_twice(subjects)
    (request,) = requests_of(splits, {"acr": settings}, who.seed)
    found: list[Searched] = []
    for name in subjects:
        subject = who.subject(given, name, alone=len(subjects) == 1)
        found.append(_searched(subject, request, _called(subject, [one.name for one in found])))
    if who.as_json:
        print_json(_as_json(found, who.seed))
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


def _compared(found: Sequence[Searched]) -> "dict[str, PairedLengths]":
    """Each other model against the first, item by item, where both read text alike."""
    from vestige.metrics.memorization import paired

    first, *others = found
    alike = (other for other in others if other.reads == first.reads)
    return {other.name: paired(first.prompt_tokens, other.prompt_tokens) for other in alike}


def _as_json(found: Sequence[Searched], seed: int) -> dict[str, Any]:
    from vestige.metrics.memorization import compression

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
    rows = []
    for row in zip(*(one.records for one in found), strict=True):
        lengths = "/".join(str(n) for n in dict.fromkeys(record["n_text"] for record in row))
        rows.append([one_line(row[0]["question"], width=60), lengths, *map(_cell, row)])
    heads = ["item", "text's tokens", *(one.name for one in found)]
    print_table("tokens of the shortest prompt found, and ACR", heads, rows)
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
    from vestige.metrics.memorization import compression

    all_of_it = compression(one.text_tokens, one.prompt_tokens, seed=seed)
    ends = all_of_it.share_interval
    said = f"{one.name}: memorised {all_of_it.share:.2f} [{ends.low:.2f}, {ends.high:.2f}], n = {all_of_it.n}"
    if all_of_it.ratio is None:
        return f"{said}; no prompt was found"
    of_ratio = all_of_it.ratio_interval
    around = "" if of_ratio is None else f" [{of_ratio.low:.2f}, {of_ratio.high:.2f}]"
    lost = f"; {all_of_it.n_not_found} not found" if all_of_it.n_not_found else ""
    return f"{said}; mean ACR of those found {all_of_it.ratio:.2f}{around}, n = {all_of_it.n_found}{lost}"


def attack_and_tell(subject: "Subject", splits: "NamedSplits", request: "AttackRequest", *, as_json: bool) -> None:
    """Attack the subject, ask it as it is too, and say what changed; `splits` are all items, seen from the forget set.

    The attack comes first: what it refuses is refused before anything is asked or written.
    """
    from vestige.artifacts.records import read_prompt
    from vestige.steps.attack import read_spent, run_attack

    attack = request.attack
    with progress_bar(attack.plan.name) as show:
        folder = run_attack(subject, request, lambda share: show(share, ""))
    levels = {"before": _asked_before(subject, splits, request), **_levels_after(subject, folder, request)}
    spent = read_spent(folder)
    prompt = read_prompt(folder) if attack.plan.searches else None
    if as_json:
        found = {"attack": asdict(attack.plan), "evidence": str(folder.path), **spent, "notes": attack.notes}
        found |= {} if prompt is None else {"prompt": asdict(prompt)}
        rows = {p: {k: to_json(e) for k, e in at.items()} for p, at in levels.items()}
        return print_json({**found, "levels": rows})
    if prompt is None:
        trained = attack.plan.kind == "relearn"
        points = [f"epoch {p}" if trained and p != "before" else p.replace("given", "after") for p in levels]
        table = [[key, *(found[key].said() for found in levels.values())] for key in levels["before"]]
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


def _asked_before(subject: "Subject", splits: "NamedSplits", request: "AttackRequest") -> "Mapping[str, Estimate]":
    """What the subject answers to the tested items without the attack."""
    from vestige.artifacts.records import read_summary
    from vestige.steps.evaluate import evaluate_together, requests_of

    asked = requests_of(splits, request.evals, request.seed, request.attack.tested)
    return _results(read_summary(place.summary(request.forget)) for place in evaluate_together(subject, asked))


def _levels_after(subject: "Subject", folder: "AttackFolder", request: "AttackRequest") -> "Levels":
    from vestige.steps.attack import attack_summaries

    summaries = attack_summaries(subject, folder, request)
    points = request.attack.plan.points
    return {point: _results(summaries[point, name][1] for name in request.evals) for point in points}


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
    columns = [[key, *(found[key].said() for found in levels.values())] for key in levels["before"]]
    print_columns(f"{attack.plan.name}: {len(attack.tested)} forget items, 95 % intervals", fixed, columns)
    for line in said_of(prompt):
        typer.echo(line)


def at_most(bits: float) -> str:
    """An upper bound rounded up, so that it stays one: below 10 to a tenth, above to a whole."""
    rounded = Decimal(str(bits)).quantize(Decimal("0.1" if bits < 10 else "1"), ROUND_CEILING)
    return f"{int(rounded) if rounded == int(rounded) else rounded:,}"


def bits_at_most(bits: float) -> str:
    """The same with its unit, as in `1 bit` or `0.4 bits`."""
    said = at_most(bits)
    return f"{said} bit{'' if said == '1' else 's'}"


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


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _amounts(spent: Mapping[str, int]) -> str:
    return ", ".join(f"{amount:,} {name.replace('_', ' ')}" for name, amount in spent.items())
