"""`vestige attack`: try to get out of one model what it was made to forget, and say what the attack brought."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.cli.asked import refuse_torchrun, settings_from, split_method_settings
from vestige.cli.evaluate import eval_settings
from vestige.cli.options import (
    AnswerKey,
    AsJson,
    Config,
    Data,
    DataConfig,
    Device,
    EdgeKey,
    Factual,
    Forget,
    KeepDuplicates,
    Limit,
    QuestionKey,
    Retain,
    Seed,
    Split,
    TrustRemoteCode,
)
from vestige.cli.progress import progress_bar
from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.layout import EvalFolder
    from vestige.attacks.planning import Attack
    from vestige.core.estimates import Estimate
    from vestige.data.corpus import NamedSplits

NO_EVIDENCE = (
    "without the same attack on a model that never knew (retrained), a gain does not show that anything was "
    "recovered: `vestige audit` runs both"
)

SubjectName = Annotated[str, typer.Argument(help="A folder of `vestige finetune` or `unlearn`, or any model.")]
EvidenceDir = Annotated[
    str | None, typer.Option("--output-dir", help="Where the evidence goes; into the subject's own folder by default.")
]
Role = Annotated[str, typer.Option(help="What a model from elsewhere is: base, target, retrained, unlearned.")]
Name = Annotated[str | None, typer.Option(help="What to call a model from elsewhere in reports.")]
Dtype = Annotated[
    str | None, typer.Option(help="Number format of a model from elsewhere (float32); Vestige's own have theirs.")
]
Evals = Annotated[str, typer.Option(help="Evaluations by which the attacked model is asked, apart by commas.")]
MaxNewTokens = Annotated[int, typer.Option(help="Longest reply; a longer one counts as truncated.")]
EvalSet = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="EVAL.KEY=VALUE", help="A setting of one evaluation: choices.orders=cyclic."),
]

attack_app = typer.Typer(
    help="Try to get out of a model what it was made to forget. What it brings is no evidence without a control.",
    no_args_is_help=True,
)


@dataclass(frozen=True)
class Words:
    """What was typed of whom to attack and how to ask it; `assignments` are settings of the evaluations."""

    subject: str
    output_dir: str | None
    role: str
    name: str | None
    dtype: str | None
    device: str
    trust_remote_code: bool
    evals: str
    assignments: Sequence[str]
    max_new_tokens: int
    seed: int
    as_json: bool


@attack_app.command("relearn")
def relearn_command(
    subject: SubjectName,
    data: Data,
    forget: Forget,
    output_dir: EvidenceDir = None,
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
    evals: Evals = "qa",
    max_new_tokens: MaxNewTokens = 64,
    role: Role = "base",
    name: Name = None,
    retain: Retain = None,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    edge_key: EdgeKey = None,
    split: Split = "train",
    data_config: DataConfig = None,
    limit: Limit = None,
    keep_duplicates: KeepDuplicates = False,
    factual: Factual = False,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Tune SUBJECT again on some items; after every epoch ask forget items, none of which was shown.

    Settings: epochs, rate, rank (of LoRA; 0 trains all weights), alpha, dropout, batch_size, warmup (a share of all
    steps), weight_decay, precision. The defaults are those of the paper 2506.00688.
    """
    refuse_torchrun("attack")
    from vestige.attacks.planning import relearn_attack
    from vestige.attacks.relearn import MATERIALS, RelearnSettings
    from vestige.core.settings import closest
    from vestige.data.corpus import SourceSettings, named_splits, open_corpus

    known = next((m for m in MATERIALS if m == material), None)
    if known is None:
        raise InputError(f"no material {one_line(material)!r}; {closest(material, list(MATERIALS))}")
    of_evals, own = _parted(evals, assignments)
    settings = settings_from(RelearnSettings, config, own, defaults=_preset(preset))
    source = SourceSettings(
        data=data,
        question_key=question_key,
        answer_key=answer_key,
        edge_key=edge_key,
        split=split,
        config=data_config,
        limit=limit,
        keep_duplicates=keep_duplicates,
        factual=factual,
    )
    splits = named_splits(open_corpus(source), forget, retain=retain, seed=seed)
    words = Words(
        subject=subject,
        output_dir=output_dir,
        role=role,
        name=name,
        dtype=dtype,
        device=device,
        trust_remote_code=trust_remote_code,
        evals=evals,
        assignments=of_evals,
        max_new_tokens=max_new_tokens,
        seed=seed,
        as_json=as_json,
    )
    _attack(words, splits, relearn_attack(known, items, settings, splits.splits, seed=seed))


@attack_app.command("quantize")
def quantize_command(
    subject: SubjectName,
    data: Data,
    forget: Forget,
    output_dir: EvidenceDir = None,
    bits: Annotated[int, typer.Option(help="Bits of a weight: 8 or 4.")] = 4,
    assignments: EvalSet = None,
    evals: Evals = "qa",
    max_new_tokens: MaxNewTokens = 64,
    role: Role = "base",
    name: Name = None,
    retain: Retain = None,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    edge_key: EdgeKey = None,
    split: Split = "train",
    data_config: DataConfig = None,
    limit: Limit = None,
    keep_duplicates: KeepDuplicates = False,
    factual: Factual = False,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Round the weights of SUBJECT's blocks to 8 or 4 bits, and ask the forget items. SUBJECT itself stays as it is."""
    refuse_torchrun("attack")
    from vestige.attacks.planning import quantize_attack
    from vestige.data.corpus import SourceSettings, named_splits, open_corpus

    if bits not in (4, 8):
        raise InputError(f"--bits {bits}: weights are rounded to 8 or to 4 bits")
    source = SourceSettings(
        data=data,
        question_key=question_key,
        answer_key=answer_key,
        edge_key=edge_key,
        split=split,
        config=data_config,
        limit=limit,
        keep_duplicates=keep_duplicates,
        factual=factual,
    )
    splits = named_splits(open_corpus(source), forget, retain=retain, seed=seed)
    words = Words(
        subject=subject,
        output_dir=output_dir,
        role=role,
        name=name,
        dtype=dtype,
        device=device,
        trust_remote_code=trust_remote_code,
        evals=evals,
        assignments=assignments or (),
        max_new_tokens=max_new_tokens,
        seed=seed,
        as_json=as_json,
    )
    _attack(words, splits, quantize_attack(4 if bits == 4 else 8, splits.splits))


@attack_app.command("in-context")
def in_context_command(
    subject: SubjectName,
    data: Data,
    forget: Forget,
    output_dir: EvidenceDir = None,
    items: Annotated[int, typer.Option(min=1, help="Retain items before each question, none of which answers it.")] = 8,
    assignments: EvalSet = None,
    evals: Evals = "qa",
    max_new_tokens: MaxNewTokens = 64,
    role: Role = "base",
    name: Name = None,
    retain: Retain = None,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    edge_key: EdgeKey = None,
    split: Split = "train",
    data_config: DataConfig = None,
    limit: Limit = None,
    keep_duplicates: KeepDuplicates = False,
    factual: Factual = False,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Ask SUBJECT the forget items with retain items before each question, as facts."""
    refuse_torchrun("attack")
    from vestige.attacks.planning import in_context_attack
    from vestige.data.corpus import SourceSettings, named_splits, open_corpus

    source = SourceSettings(
        data=data,
        question_key=question_key,
        answer_key=answer_key,
        edge_key=edge_key,
        split=split,
        config=data_config,
        limit=limit,
        keep_duplicates=keep_duplicates,
        factual=factual,
    )
    splits = named_splits(open_corpus(source), forget, retain=retain, seed=seed)
    words = Words(
        subject=subject,
        output_dir=output_dir,
        role=role,
        name=name,
        dtype=dtype,
        device=device,
        trust_remote_code=trust_remote_code,
        evals=evals,
        assignments=assignments or (),
        max_new_tokens=max_new_tokens,
        seed=seed,
        as_json=as_json,
    )
    _attack(words, splits, in_context_attack(items, splits.splits, seed=seed))


def _parted(evals: str, assignments: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """The words of --set that begin with the name of an evaluation, and the attack's own."""
    left = list(assignments or ())
    for name in (n.strip() for n in evals.split(",")):
        _, left = split_method_settings(name, left)
    return [word for word in assignments or () if word not in left], left


def _preset(name: str | None) -> Mapping[str, Any]:
    from vestige.attacks.relearn import PRESETS
    from vestige.core.settings import closest

    if name is None:
        return {}
    if name not in PRESETS:
        raise InputError(f"no preset {one_line(name)!r}; {closest(name, list(PRESETS))}")
    return PRESETS[name].settings


def _attack(words: Words, splits: "NamedSplits", attack: "Attack") -> None:
    """Ask the subject as it is, attack it, and tell what changed."""
    from vestige.data.corpus import everything
    from vestige.models.load import ModelSettings
    from vestige.steps.attack import AttackRequest, attack_evaluations, read_spent, run_attack
    from vestige.steps.evaluate import EvaluateRequest, evaluate_together, view_of
    from vestige.steps.subjects import any_subject

    asked = eval_settings(words.evals, words.assignments, max_new_tokens=words.max_new_tokens, pistol=False)
    model = ModelSettings(
        model=words.subject,
        device=words.device,
        dtype=words.dtype or "float32",
        trust_remote_code=words.trust_remote_code,
    )
    who = any_subject(model, words.output_dir, role=words.role, name=words.name or "", dtype=words.dtype)
    tested = frozenset(i.id for i in attack.tested)
    items, views = everything([splits]), (view_of(splits),)
    before = evaluate_together(
        who, [EvaluateRequest(items, views, own, words.seed, name, tested) for name, own in asked.items()]
    )
    request = AttackRequest(attack, asked, splits.forget, words.seed)
    with progress_bar(attack.plan.name) as show:
        folder = run_attack(who, request, lambda share: show(share, ""))
    levels: dict[str, dict[str, Estimate]] = {"before": _results(before, splits.forget)}
    places = attack_evaluations(folder, request)
    for point in attack.plan.points:
        levels[point] = _results([places[point, name] for name in asked], splits.forget)
    spent = read_spent(folder)
    found = {"attack": asdict(attack.plan), "evidence": str(folder.path), **spent, "notes": attack.notes}
    if words.as_json:
        typer.echo(
            json.dumps(
                {**found, "levels": {p: {k: asdict(e) for k, e in at.items()} for p, at in levels.items()}}, indent=2
            )
        )
        return
    _print_levels(attack, levels)
    for note in attack.notes:
        typer.echo(note)
    for name, bits in spent["bounds_bits"].items():
        typer.echo(f"carried in, at most: {bits:,.0f} bits ({name})")
    typer.echo(NO_EVIDENCE)
    typer.echo(f"evidence in {folder.path}")


METRICS = ("rouge1_recall", "exact_match", "contains_match", "probability", "answer_bits", "accuracy")
"""What the table shows; everything else is in the evidence."""


def _results(places: "Sequence[EvalFolder]", forget: str) -> "dict[str, Estimate]":
    """The estimates over the tested items, by `format/metric`."""
    from vestige.artifacts.records import read_summary

    return {
        f"{r.format}/{r.estimate.metric}": r.estimate
        for place in places
        for r in read_summary(place.summary(forget)).results
        if (r.split, r.scope) == ("forget", "all") and r.estimate.metric in METRICS
    }


def _print_levels(attack: "Attack", levels: "Mapping[str, Mapping[str, Estimate]]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"{attack.plan.name}: {len(attack.tested)} forget items, 95 % intervals"))
    trained = attack.plan.kind == "relearn"
    table.add_column("format/metric", no_wrap=True)
    for point in levels:
        table.add_column(f"epoch {point}" if trained and point != "before" else point.replace("given", "after"))
    for key in levels["before"]:
        cells = [found[key] for found in levels.values()]
        table.add_row(Text(key), *(f"{e.value:.2f} [{e.low:.2f}, {e.high:.2f}]" for e in cells))
    Console().print(table)
