"""`finetune`, `unlearn`, `evaluate` and `attack`: the functions that train and ask models."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import vestige
from vestige.api.inputs import (
    DataLike,
    HowRead,
    HowReadOrAdapted,
    ModelLike,
    PathLikeStr,
    corpus_of,
    path_of,
    selector,
    text_of,
    verb,
)
from vestige.api.output import output_in, refuse_torchrun, say_notes
from vestige.api.results import Attacked, Model, Results
from vestige.core.errors import InputError
from vestige.core.progress import progress_bar, say
from vestige.core.text import Record, Sentences, one_line
from vestige.models import Reading

if TYPE_CHECKING:
    from vestige.artifacts.layout import SubjectFolder
    from vestige.steps.evaluate import Subject
    from vestige.steps.making import Made
    from vestige.steps.unlearn import UnlearnRequest
    from vestige.training.loop import Progress
    from vestige.training.parallel import World

    Train: TypeAlias = Callable[[SubjectFolder, Callable[[Progress], None], World], Made]

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
    # Evaluations load torch, so mistakes in the data are reported before.
    settings = selection.evaluations(evals, max_new_tokens=max_new_tokens)
    # A model without published figures in the pack is rejected before any evaluation.
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
    # A model that does not reproduce its published figures was not loaded or queried as published: all results would
    # mislead.
    if figures is not None:
        check_published(subject, *figures, seed=seed)
    plans = [replace(plan, summed=summarize) for plan in requests_of(questions, settings, seed)]
    with progress_bar(f"evaluating {', '.join(plan.settings.name for plan in plans)}") as show:

        def on_items(done: int, of: int) -> None:
            show(done / of, f"{done} of {of}")

        folders = evaluate_together(subject, plans, on_items)
    # The note concerns the model, and is in the provenance of each of its evaluations.
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
    """Print the number of judged questions that the model did not forget."""
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
    # The check comes before a model is loaded, so that a mistake in the data or the names costs no time.
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
    # The attack comes first, so that it can reject its input before anything is evaluated or written.
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


Save: TypeAlias = Literal["merged", "adapter"]


@verb
def finetune(
    model: ModelLike,
    *,
    data: DataLike,
    output_dir: PathLikeStr,
    forget: DataLike | None = None,
    imitate: ModelLike | None = None,
    train_factual: bool = False,
    name: str | None = None,
    seed: int = 0,
    training: "vestige.Training | None" = None,
    save: Save = "merged",
    fresh: bool = False,
    **read: Unpack[HowReadOrAdapted],
) -> Model:
    """Train a model on the answers of a data set. With `forget`, on all items but those.

    The output folder holds the model (a Hugging Face folder in model/), its training log and its provenance. The same
    call continues a training that was stopped.

    Args:
        model: Hub id, local folder, folder with an adapter, or built-in model.
        data: A compiled folder, a file (JSONL, JSON, CSV, Parquet), a pack, or a hub dataset id.
        output_dir: Where the output goes. The same command resumes there.
        forget: Leave these items out: makes a `retrained` control.
        imitate: Teach this model's distributions on the answers, by KL, in place of the answers themselves.
        train_factual: Train on the factual questions too.
        name: Name of the model in reports.
        seed: Seed of everything random.
        training: The settings of the training. Others have the defaults of `builtin:tiny` or PISTOL.
        save: merged: a whole model; adapter: the LoRA adapter alone, for peft.
        fresh: Start over. Files of Vestige are deleted once the new ones are complete; others stay.
        **read: device, dtype, trust_remote_code, chat_template, tokenizer and base, as in `HowReadOrAdapted`.

    Returns:
        The model, which every other function takes.

    Raises:
        InputError: The data, the model or the settings cannot be used.
        NotFinite: The loss is no longer a number. Take a lower learning rate.

    Example:
        >>> target = vestige.finetune("./model", data="data.csv", output_dir="runs/target",
        ...                           training=vestige.Training(learning_rate=2e-5))
    """
    from vestige.api import selection

    path, forgotten = path_of(model), selector(forget)
    selection.training_settings(path, training)  # Mistakes are reported before the data are read.
    corpus = corpus_of(data)
    splits = None
    notes: Sentences = ()
    if forgotten is not None:
        splits = selection.questions(corpus, forgotten)
        notes = splits.told
        say_notes(splits)
    if corpus.factual:
        state = "not taught (--train-factual teaches them)"
        if train_factual:
            state = "taught too"
        say(f"factual: {len(corpus.factual)} questions, {state}")
    # Torch is loaded only now, so that mistakes in data and settings are reported quickly.
    from vestige.api import requests
    from vestige.steps.finetune import finetune as train

    start = requests.model_settings(path, Reading(**read))
    request = requests.finetuning(
        start,
        corpus,
        splits,
        training,
        name=name,
        seed=seed,
        factual=train_factual,
        save=save,
        imitate=path_of(imitate),
    )
    return _trained(
        f"fine-tuning: learning rate {request.training.learning_rate:g}",
        output_dir,
        lambda folder, on_step, world: train(folder, request, on_step, world),
        inputs=(path, corpus.settings.data, forgotten),
        fresh=fresh,
        notes=notes,
    )


@verb
def unlearn(
    model: ModelLike,
    *,
    method: str,
    data: DataLike,
    forget: DataLike,
    output_dir: PathLikeStr,
    retain: DataLike | None = None,
    idk: PathLikeStr | None = None,
    base: PathLikeStr | None = None,
    retrained: ModelLike | None = None,
    harm_judge: str = "",
    method_settings: Record | None = None,
    seed: int = 0,
    training: "vestige.Training | None" = None,
    trajectory: "vestige.Trajectory | None" = None,
    validation: "vestige.Validation | None" = None,
    save: Save = "merged",
    fresh: bool = False,
    **read: Unpack[HowRead],
) -> Model:
    """Unlearn part of the data from a model by one method.

    The method retrain repeats the model's training without the forget set. For a model that Vestige did not train, it
    needs `base` and `training`. The output folder contains the unlearned model (a Hugging Face folder in model/), its
    training log and its provenance.

    With a `trajectory`, the model is scored during training on validation items: forget, retain, forget_nll,
    retain_nll, and harm with `harm_judge`. The curve is in train/trajectory.jsonl. If no checkpoint meets the rule
    `choose`, the nearest is kept.

    Args:
        model: The target model: a folder from `vestige finetune`, or any model.
        method: A name of `vestige list methods`, or package.module:Class.
        data: A compiled folder, a file (JSONL, JSON, CSV, Parquet), a pack, or a hub dataset id.
        forget: A file of items, or comma-separated selectors: edge:A_B, person:NAME, node:A, component:2,
            type:sales, random:3.
        output_dir: Where the output goes. The same command resumes there.
        retain: Items to keep: a file or selectors, as for forget. By default all other items.
        idk: Text file of answers such as 'I don't know', one per line.
        base: Method retrain: the model to begin with, if the target does not record it.
        retrained: A model that never saw the forget set, for rules such as 'forget<=retrained'.
        harm_judge: local:MODEL or http://host/v1#name: adds the score harm, the share of harmful replies to forget
            questions, for rules such as 'harm<=0'.
        method_settings: The method's own settings, as in {"beta": 0.2}.
        seed: Seed of everything random.
        training: The settings of the training. Others have the defaults of `builtin:tiny` or PISTOL.
        trajectory: How often the model is scored while it trains, when to stop, and which checkpoint to keep.
        validation: The questions of these scores.
        save: merged: a whole model; adapter: the LoRA adapter alone, for peft.
        fresh: Start over. Files of Vestige are deleted once the new ones are complete; others stay.
        **read: device, dtype, trust_remote_code, chat_template and tokenizer, as in `HowRead`.

    Returns:
        The unlearned model. If a rule chose the checkpoint, `chosen["met"]` is true if one met it.

    Raises:
        InputError: The data, the model, the method or the settings cannot be used.
        NotFinite: The loss is no longer a number. Take a lower learning rate.

    Example:
        >>> vestige.unlearn("runs/target", method="npo_gd", data="data.csv", forget="forget.csv",
        ...                 output_dir="runs/npo", training=vestige.Training(learning_rate=2e-5))
    """
    from vestige.api import requests, selection
    from vestige.methods import find_method
    from vestige.steps.unlearn import unlearn as train

    # This check comes first: with a mistyped method, every setting would be an unknown key.
    find_method(method)
    path, forgotten, kept_back = path_of(model), selector(forget), selector(retain)
    control = path_of(retrained)
    how = Reading(**read)
    target = requests.model_settings(path, how, as_made=True)
    corpus = corpus_of(data)
    splits = selection.questions(corpus, forgotten, kept_back, models=[path])
    say_notes(splits)
    request = requests.unlearning(
        target,
        corpus,
        splits,
        method,
        training,
        retain=kept_back,
        base=text_of(base),
        method_settings=method_settings,
        seed=seed,
        idk=text_of(idk),
        save=save,
    )
    if harm_judge:
        # Each process would query and pay the judge for the same replies.
        refuse_torchrun("unlearn --harm-judge")
    harm = requests.harm_grader(harm_judge, Path(output_dir) / "train" / "judge", how.device)
    watch = requests.trajectory(target, splits, trajectory, validation, retrained=control, seed=seed, harm=harm)
    request = replace(request, trajectory=watch)
    return _trained(
        _rate_in_words(request),
        output_dir,
        lambda folder, on_step, world: train(folder, request, on_step, world),
        inputs=(path, corpus.settings.data, forgotten, kept_back, text_of(base), control),
        fresh=fresh,
        notes=splits.told,
    )


def _rate_in_words(request: "UnlearnRequest") -> str:
    """Return method and learning rate in words, with the command that finds a rate if none was chosen."""
    from vestige.methods import find_method
    from vestige.training.settings import UnlearningSettings

    title = f"unlearning by {request.method}"
    if not find_method(request.method).needs.splits:
        return f"{title}: nothing is trained"
    rate = request.training.learning_rate
    if request.recipe:
        rate = request.recipe.request.training.learning_rate
    if request.recipe or rate != UnlearningSettings().learning_rate:
        return f"{title}: learning rate {rate:g}"
    return (
        f"{title}: learning rate {rate:g}, which is PISTOL's for LoRA on models of 7B; `vestige find-rate` "
        "searches one for this model"
    )


def _trained(
    title: str, output_dir: PathLikeStr, train: "Train", *, inputs: Sequence[str | None], fresh: bool, notes: Sentences
) -> Model:
    """Train with one or several processes. The first process writes. None of `inputs` may be in the output folder.

    `title` is printed, and its part before the colon names the progress.
    """
    from vestige.artifacts.layout import SubjectFolder
    from vestige.training.parallel import joined

    if not fspath(output_dir).strip():
        raise InputError("--output-dir is empty. Name a folder")
    folder = SubjectFolder(Path(output_dir))
    with joined() as world, contextlib.ExitStack() as stack:
        if world.leads:
            stack.enter_context(output_in(folder.path, fresh=fresh, made_by=("spec.json",), inputs=inputs))
            say(title)
        # The other processes must not train before the folder is known to be free.
        world.wait()
        show = stack.enter_context(progress_bar(title.partition(": ")[0], visible=world.leads))

        def on_step(progress: "Progress") -> None:
            # Displayed epochs begin at one.
            show(progress.step / progress.n_steps, f"epoch {progress.epoch + 1}, loss {progress.loss:.3f}")

        made = train(folder, on_step, world)
    return Model(
        path=folder.path,
        steps=made.steps,
        stopped=made.stopped,
        notes=notes,
        digest=made.digest.id,
        chosen=None if made.chosen is None else asdict(made.chosen),
    )
