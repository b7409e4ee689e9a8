"""`evaluate` and `attack`: the functions that ask one model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import vestige
from vestige.api.inputs import (
    DataLike,
    HowReadOrAdapted,
    ModelLike,
    PathLikeStr,
    corpus_of,
    path_of,
    selector,
    text_of,
    verb,
)
from vestige.api.output import refuse_torchrun, say_notes
from vestige.api.results import Attacked, Results
from vestige.core.progress import progress_bar, say
from vestige.core.text import one_line
from vestige.models import Reading

if TYPE_CHECKING:
    from vestige.steps.evaluate import Subject

Role: TypeAlias = Literal["base", "target", "retrained", "unlearned"]


@verb
def evaluate(
    model: ModelLike,
    *,
    data: DataLike,
    forget: DataLike | None = None,
    retain: DataLike | None = None,
    evals: "Sequence[str | vestige.Evaluation] | Mapping[str, Mapping[str, Any]]" = ("qa",),
    output_dir: PathLikeStr | None = None,
    role: Role = "base",
    name: str = "",
    max_new_tokens: int | None = None,
    published: str | None = None,
    splits: Sequence[str] | None = None,
    most_items: int | None = None,
    summarize: bool = True,
    seed: int = 0,
    verify: bool = False,
    **read: Unpack[HowReadOrAdapted],
) -> Results:
    """Evaluate a model on the data set: estimates by split, with intervals and n.

    Keeps per-item records and the summary. The same call resumes a stopped run.

    Args:
        model: A folder of `vestige finetune` or `unlearn`, or any model.
        data: A compiled folder, a file (JSONL, JSON, CSV, Parquet), a pack, or a hub dataset id.
        forget: As for `vestige unlearn`. Without it everything is one split.
        retain: Items to keep: a file or selectors, as for forget. By default all other items.
        evals: Evaluations, comma-separated: see `vestige list evals`.
        output_dir: Where the evidence goes. By default into the subject's own folder.
        role: Role of an external model: base, target, retrained, unlearned.
        name: Name in reports of a model from elsewhere.
        max_new_tokens: Longest reply, in tokens. A longer one counts as truncated.
        published: With a pack: the model whose published figures the target must show before the evaluation. By default
            the model of the target's name. none leaves this out.
        splits: The splits to ask in addition to the forget set (retain, factual, ...). All by default.
        most_items: At most this many questions of each other split with a contract or person, and as many without.
            They are the same for every model and forget set.
        summarize: Compute the estimates. Otherwise, `items()` has the scores alone.
        seed: Seed of everything random.
        verify: Check stored answers: read all their models' files and regenerate a sample.
        **read: device, dtype, trust_remote_code, chat_template, tokenizer and base, as in `HowReadOrAdapted`.

    Returns:
        The estimates in `rows`, and the score of each question by `items()`.

    Raises:
        InputError: The data, the model or an evaluation cannot be used.

    Example:
        >>> vestige.evaluate("runs/npo", data="data.csv", forget="forget.csv", evals=["qa", "choices"]).to_frame()
    """
    refuse_torchrun("evaluate")
    from vestige.api import selection
    from vestige.artifacts.provenance import odd_tokens_told
    from vestige.artifacts.records import ItemScores, read_summary, result_rows
    from vestige.data.loaders import published_of
    from vestige.evals import eval_home

    for entry in evals:
        if isinstance(entry, str):
            eval_home(entry)  # A name is looked up before anything is loaded.
    path = path_of(model)
    source = corpus_of(data)
    # Evaluations load torch, so that a mistake in the data is named before.
    settings = selection.evaluations(evals, max_new_tokens=max_new_tokens)
    # A model that the pack has no figures of is refused before anything is asked.
    figures = published_of(source.settings.data, path, published)
    questions = selection.questions(source, selector(forget), selector(retain), models=[path])
    if forget is not None:
        say_notes(questions)
    questions = selection.fewer(source, questions, splits, most_items)
    from vestige.api import requests
    from vestige.steps.evaluate import check_published, evaluate_together, requests_of

    how = Reading(**read)
    subject = requests.subject(path, how, text_of(output_dir), role=role, name=name, verify=verify)
    _say_not_forgotten(subject, [item.id for item in questions.splits.get("forget", ())], questions.forget)
    # A model that does not show its own published figures is not loaded or asked as it was: all else would mislead.
    if figures is not None:
        check_published(subject, *figures, seed=seed)
    plans = [replace(plan, summed=summarize) for plan in requests_of(questions, settings, seed)]
    with progress_bar(f"evaluating {', '.join(plan.settings.name for plan in plans)}") as show:

        def on_items(done: int, of: int) -> None:
            show(done / of, f"{done} of {of}")

        folders = evaluate_together(subject, plans, on_items)
    # The note is on the model, and is in the provenance of each of its evaluations.
    for note in dict.fromkeys(odd_tokens_told(folder.provenance) for folder in folders):
        if note:
            say(note)
    summaries = []
    if summarize:
        summaries = [read_summary(folder.summary(questions.forget)) for folder in folders]
    answers = [ItemScores("", kind, folder, questions) for kind, folder in zip(settings, folders, strict=True)]
    evidence = tuple(folder.path for folder in folders)
    return Results(
        rows=tuple(result_rows(summaries)),
        evidence=evidence,
        notes=questions.told,
        answers=tuple(answers),
        summaries=tuple(summaries),
        role=subject.spec.subject,
    )


def _say_not_forgotten(subject: "Subject", ids: Sequence[str], forget: str) -> None:
    """Say how many of the judged questions are not among those that the model forgot."""
    strange = subject.spec.not_forgotten(ids)
    if strange:
        earlier = " and ".join(forgotten.name for forgotten in subject.spec.forgotten)
        say(
            f"{subject.spec.name} was made without {one_line(earlier)}; {strange} of the {len(ids)} questions of the "
            f"forget set {one_line(forget)} are not among what it forgot"
        )


@verb
def attack(
    model: ModelLike,
    attack: "vestige.Attack | str",
    *,
    data: DataLike,
    forget: DataLike,
    output_dir: PathLikeStr | None = None,
    target: ModelLike | None = None,
    retain: DataLike | None = None,
    evals: "Sequence[str | vestige.Evaluation] | Mapping[str, Mapping[str, Any]]" = ("qa",),
    max_new_tokens: int | None = None,
    role: Role = "base",
    name: str = "",
    seed: int = 0,
    verify: bool = False,
    **read: Unpack[HowReadOrAdapted],
) -> Attacked:
    """Attack a model in memory. The forget items are scored before and after. `model` is not changed.

    A gain shows a recovery only in comparison with the same attack on a retrained model: `vestige audit` makes both.

    Args:
        model: A folder of `vestige finetune` or `unlearn`, or any model.
        attack: `Relearn(items=50)`, `Quantize(bits=4)` or another attack, or its name with settings, as in "relearn
            items=50".
        data: A compiled folder, a file (JSONL, JSON, CSV, Parquet), a pack, or a hub dataset id.
        forget: A file of items, or comma-separated selectors: edge:A_B, person:NAME, node:A, component:2,
            type:sales, random:3.
        output_dir: Where the evidence goes. By default into the subject's own folder.
        target: The target model, whose words and hidden states the prefix should elicit.
        retain: Items to keep: a file or selectors, as for forget. By default all other items.
        evals: Evaluations, comma-separated: see `vestige list evals`.
        max_new_tokens: Longest reply, in tokens. A longer one counts as truncated.
        role: Role of an external model: base, target, retrained, unlearned.
        name: Name in reports of a model from elsewhere.
        seed: Seed of everything random.
        verify: Check stored answers: read all their models' files and regenerate a sample.
        **read: device, dtype, trust_remote_code, chat_template, tokenizer and base, as in `HowReadOrAdapted`.

    Returns:
        The estimates. In the column `attack` they are empty before, and have attack and point after.

    Raises:
        InputError: The attack is unknown, or the data do not allow for it.

    Example:
        >>> vestige.attack("runs/npo", vestige.Relearn(items=50), data="data.csv", forget="forget.csv").to_frame()
    """
    from vestige.api import requests, selection
    from vestige.artifacts.records import ItemScores, read_prompt, read_summary, result_rows
    from vestige.attacks.planning import further
    from vestige.core.files import read_json
    from vestige.steps.attack import attack_summaries, read_spent, run_attack
    from vestige.steps.evaluate import evaluate_together, requests_of

    refuse_torchrun("attack")
    # Before any model is loaded, so that a mistake in the data or the names costs no time.
    settings = attack
    if isinstance(settings, str):
        settings = further(settings)
    path, evidence = path_of(model), text_of(output_dir)
    asked_by = selection.evaluations(evals, max_new_tokens=max_new_tokens)
    splits = selection.questions(corpus_of(data), selector(forget), selector(retain), models=[path])
    say_notes(splits)
    how = Reading(**read)
    guide = None
    if target is not None:
        guide = partial(requests.guide, path_of(target), how, evidence)
    request = requests.attack(settings, splits, asked_by, seed=seed, guide=guide)
    subject = requests.subject(path, how, evidence, role=role, name=name, verify=verify)
    plan = request.attack.plan
    # Attacked first: what it refuses is refused before anything is asked or written.
    with progress_bar(plan.name) as show:
        folder = run_attack(subject, request, lambda share: show(share, ""))
    originals = read_json(folder.asked)
    before = evaluate_together(subject, requests_of(splits, asked_by, seed, request.attack.tested))
    levels = [("before", evaluation, read_summary(evaluation.summary(splits.forget))) for evaluation in before]
    answers = [ItemScores("", kind, answered, splits) for kind, answered in zip(asked_by, before, strict=True)]
    labels = {"before": ""}
    for (point, kind), (evaluation, summary) in attack_summaries(subject, folder, request).items():
        labels[point] = f"{plan.name}, {point}"
        levels.append((point, evaluation, summary))
        answers.append(ItemScores(labels[point], kind, evaluation, splits, originals))
    rows = []
    for point, _, summary in levels:
        rows += [{**row, "attack": labels[point]} for row in result_rows([summary])]
    return Attacked(
        rows=tuple(rows),
        evidence=(folder.path, *(evaluation.path for _, evaluation, _ in levels)),
        notes=(*splits.told, *request.attack.notes),
        answers=tuple(answers),
        attack=request.attack,
        levels=tuple((point, summary) for point, _, summary in levels),
        spent=read_spent(folder),
        prompt=read_prompt(folder) if plan.searches else None,
    )
