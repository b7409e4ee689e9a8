"""`audit`, `plan`, `judge`, `rejudge`, `read_audit` and `compare`: from models or scores to verdicts.

`compare`: models on the same questions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import vestige
from vestige.api.inputs import (
    DataLike,
    HowReadOrAdapted,
    ModelLike,
    PathLikeStr,
    corpus_of,
    path_of,
    paths_of,
    selector,
    verb,
)
from vestige.api.output import output_in, refuse_torchrun, say_notes
from vestige.api.results import Audit, Comparison
from vestige.core.errors import InputError
from vestige.core.files import read_text
from vestige.core.progress import progress_bar, say
from vestige.core.text import Record, TextTuple, has_thought, one_line
from vestige.models import Reading

if TYPE_CHECKING:
    from vestige.artifacts.audits import SealedPlan
    from vestige.auditing.request import AuditRequest
    from vestige.auditing.settings import AuditSettings

# An audit may use the folder with its models and checked data, as `init` plans it.
MADE_BY = ("run.toml", "models/*/spec.json", "cells/*/spec.json", "soundness.json", "data/manifest.json")


@verb
def audit(
    *,
    target: ModelLike,
    unlearned: ModelLike | Sequence[ModelLike],
    data: DataLike,
    forget: DataLike,
    output_dir: PathLikeStr = "runs/audit",
    retrained: ModelLike | Sequence[ModelLike] = (),
    suppressed: ModelLike | None = None,
    retain: DataLike | None = None,
    holdout: DataLike | None = None,
    published: str | None = None,
    margins: "vestige.Margins | None" = None,
    attacks: "Sequence[vestige.Attack | str] | None" = None,
    settings: "vestige.AuditSettings | None" = None,
    quick: bool = False,
    baseline: PathLikeStr | None = None,
    seed: int = 0,
    verify: bool = False,
    no_cache: bool = False,
    workers: int | None = None,
    **read: Unpack[HowReadOrAdapted],
) -> Audit:
    """Test whether each unlearned model has forgotten, with evidence: six claims, a verdict on each.

    Every model is queried in several formats, attacked in the same way (relearning, rounded weights, facts in the
    prompt, prefilled and sampled answers; with `attacks` also searched prompts), and compared with retrained models,
    which never saw the forget set. An attack that finds nothing counts only if it recovers half of the knowledge that a
    positive control hides. The same call continues an audit that was stopped.

    Args:
        target: The target model: a Vestige folder, or any model.
        unlearned: The unlearned model, or a list of models.
        data: A compiled folder, a file (JSONL, JSON, CSV, Parquet), a pack, or a hub dataset id.
        forget: A file of items, or comma-separated selectors: edge:A_B, person:NAME, node:A, component:2,
            type:sales, random:3.
        output_dir: The run's folder: evidence, verdicts, report.
        retrained: Models that never saw the forget set, one for each seed. Five are advised.
        suppressed: Your positive control: a target that withholds its knowledge. By default one is made.
        retain: Items to keep: a file or selectors. By default all other items.
        holdout: File of items that no model was taught. Compiled data has its own.
        published: With a pack: the model whose published figures the target must show before the audit. By default the
            model of the target's name. none leaves this out.
        margins: The margins of the verdicts.
        attacks: Only these attacks: `Relearn(items=50)`, `Quantize(bits=4)`, "ablate", "relearn items=20". A name
            alone is made as `settings` say.
        settings: All other settings: evaluations, forms of questions, sizes of attacks, the positive control.
        quick: A first look: five claims can fail, and two claims (not expressed, utility preserved) can pass.
        baseline: An earlier run's folder or verdicts.json. An audit at other margins or by other rules is refused
            before the audit.
        seed: Seed of everything random.
        verify: Check stored answers: read all their models' files and regenerate a sample.
        no_cache: Ask target and controls again. By default their answers to the same questions are taken from earlier
            audits on this machine (in `VESTIGE_HOME`).
        workers: Processes, with one thread each. By default one for each GPU, few on a CPU.
        **read: device, dtype, trust_remote_code, chat_template, tokenizer and base, as in `HowReadOrAdapted`.

    Returns:
        The verdicts: `audit["npo"].not_expressed.verdict`, `audit.passed`.

    Raises:
        InputError: A model, the data or a setting cannot be used.
        PartialFailure: So much failed that nothing can be judged.

    Example:
        >>> found = vestige.audit(target="runs/target", unlearned="runs/npo", retrained=["runs/r1", "runs/r2"],
        ...                       data="data.csv", forget="forget.csv", margins=vestige.Margins(delta=0.1))
        >>> found.passed
    """
    from vestige.artifacts.verdicts import comparable, read_baseline
    from vestige.auditing.judge import VERSION
    from vestige.auditing.run import run_audit
    from vestige.metrics.verdicts import Thresholds

    refuse_torchrun("audit")
    # This is read before the audit, which may write into the same folder.
    earlier = None
    if baseline is not None:
        earlier = read_baseline(Path(baseline))
    request = audit_request(
        target=target,
        unlearned=unlearned,
        data=data,
        forget=forget,
        retrained=retrained,
        suppressed=suppressed,
        retain=retain,
        holdout=holdout,
        published=published,
        margins=margins,
        attacks=attacks,
        settings=settings,
        quick=quick,
        seed=seed,
        verify=verify,
        reading=Reading(**read),
    )
    request = replace(request, store=not no_cache)
    if earlier is not None:
        # The check comes before hours of evaluation: verdicts with other margins or rules cannot be compared.
        values = {name: getattr(request.settings, name) for name in Thresholds.model_fields}
        comparable(earlier, request.splits.forget, values, VERSION)
    run = Path(output_dir)
    # This is read now because the audit replaces it.
    before = _audited_before(run, request.splits.forget)
    with output_in(run, fresh=False, made_by=MADE_BY), progress_bar("audit") as show:
        judged = run_audit(run, request, workers=workers, show=show)
    failed = {name: str(error) for name, error in judged.failed.items()}
    for name, why in failed.items():
        say(f"failed: {one_line(name)}: {one_line(why, width=500)}")
    gone = [name for name in before if name not in request.names("unlearned")]
    if gone:
        names = one_line(", ".join(gone), width=200)
        say(f"The verdicts of an earlier audit here are replaced. To keep {names}, give all models together.")
    return Audit(run, (judged.outcome,), failed, request.splits.told, judged.n_tasks, request)


def _audited_before(run: Path, forget: str) -> TextTuple:
    """The unlearned models of the last audit of the same forget set in this folder. Its verdicts are replaced."""
    from vestige.artifacts.audits import read_outcome
    from vestige.artifacts.layout import RunFolder

    folder = RunFolder(run).audit(forget)
    try:
        if folder.outcome.exists():
            return read_outcome(folder).unlearned
        return ()
    except InputError:
        return ()  # The files are from another version, which no report can show: this audit makes them readable again.


@verb
def plan(
    *,
    data: DataLike,
    forget: DataLike,
    controls: int = 3,
    target: ModelLike = "target",
    unlearned: ModelLike | Sequence[ModelLike] = "unlearned",
    retrained: ModelLike | Sequence[ModelLike] | None = None,
    suppressed: ModelLike | None = None,
    retain: DataLike | None = None,
    holdout: DataLike | None = None,
    margins: "vestige.Margins | None" = None,
    attacks: "Sequence[vestige.Attack | str] | None" = None,
    settings: "vestige.AuditSettings | None" = None,
    quick: bool = False,
    seed: int = 0,
    seal_in: PathLikeStr | None = None,
    **read: Unpack[HowReadOrAdapted],
) -> "vestige.AuditPower":
    """Predict the verdicts of an audit of these data before training or scoring.

    Args:
        data: The data of the audit.
        forget: The forget set.
        controls: The number of retrained models, if none are named.
        target: The target model. It need not exist.
        unlearned: The unlearned models. They need not exist.
        retrained: The retrained models. They need not exist.
        suppressed: Your positive control.
        retain: Items to keep. By default all other items.
        holdout: File of items that no model was taught.
        margins: The margins of the verdicts.
        attacks: Only these attacks, as in `audit`.
        settings: All other settings of the audit.
        quick: Predict the quick audit.
        seed: Seed of everything random.
        seal_in: The folder of the audit: plan and margins are written there with a digest (`sealed.json`), and the
            audit reports every later change.
        **read: device, dtype, trust_remote_code, chat_template, tokenizer and base, as in `HowReadOrAdapted`.

    Returns:
        For each claim, the share of audits of perfect unlearning in which it passes, and the least detectable leak.

    Raises:
        InputError: The data or a setting cannot be used, or `controls` is below 1.

    Example:
        >>> vestige.plan(data="data.csv", forget="forget.csv", controls=5).holds
    """
    from vestige.auditing.forecast import foresee_audit

    if controls < 1:
        raise InputError(f"controls = {controls}: no forecast is possible without controls. Give at least 1")
    # Only names are needed: a plan counts its controls and does not load any.
    named: Any = retrained
    if named is None:
        named = [f"retrained {number}" for number in range(1, controls + 1)]
    request = audit_request(
        target=target,
        unlearned=unlearned,
        data=data,
        forget=forget,
        retrained=named,
        suppressed=suppressed,
        retain=retain,
        holdout=holdout,
        margins=margins,
        attacks=attacks,
        settings=settings,
        quick=quick,
        seed=seed,
        fetch=seal_in is not None,
        reading=Reading(**read),
    )
    if seal_in is not None:
        seal(Path(seal_in), request)
    return foresee_audit(request)


def seal(run: Path, request: "AuditRequest") -> "SealedPlan":
    """Write plan and margins with their digest into the folder of the audit."""
    from vestige.auditing.run import seal_plan

    with output_in(run, fresh=False, made_by=MADE_BY):
        return seal_plan(run, request)


def audit_request(
    *,
    target: ModelLike,
    unlearned: ModelLike | Sequence[ModelLike],
    data: DataLike,
    forget: DataLike,
    retrained: ModelLike | Sequence[ModelLike] = (),
    suppressed: ModelLike | None = None,
    retain: DataLike | None = None,
    holdout: DataLike | None = None,
    published: str | None = None,
    margins: "vestige.Margins | None" = None,
    attacks: "Sequence[vestige.Attack | str] | None" = None,
    settings: "vestige.AuditSettings | None" = None,
    quick: bool = False,
    seed: int = 0,
    verify: bool = False,
    fetch: bool = True,
    reading: Reading,
) -> "AuditRequest":
    """Build the request of an audit or a plan, and print notes on the data.

    With `fetch`, Vestige downloads the chat templates of models on the hub. The models of a plan need not exist.
    """
    from vestige.api import selection
    from vestige.auditing.request import AuditRequest, named_models
    from vestige.data.loaders import pack_named, published_of
    from vestige.models.address import shown_address

    control = path_of(suppressed)
    # Settings come first: they are wrong more often than data, and are fast to check.
    built, untested = selection.audit_settings(
        settings, margins, attacks=attacks, quick=quick, suppressed=control is not None
    )
    models = named_models(path_of(target), paths_of(unlearned), paths_of(retrained), control)
    if settings is None or "evals" not in settings.model_fields_set:
        built = _with_reasoning(built, [model.model for model in models], fetch=fetch)
    corpus = corpus_of(data)
    paths = [model.model for model in models]
    request = AuditRequest(
        models=tuple(models),
        splits=selection.audit_questions(corpus, selector(forget), paths, selector(retain), selector(holdout)),
        settings=built,
        # Only the target has published figures. The others were made from it.
        published=published_of(corpus.settings.data, paths[0], published),
        read=reading,
        seed=seed,
        verify=verify,
        untested=untested,
    )
    say_notes(request.splits)
    pack = pack_named(corpus.settings.data)
    if request.published is None and published is None and pack is not None and pack.published:
        figures = ", ".join(row.model for row in pack.published)
        shown = one_line(shown_address(paths[0]))
        say(f"the pack has no figures of {shown} to compare with; it has those of {figures}")
    return request


def _with_reasoning(settings: "AuditSettings", models: Sequence[str], *, fetch: bool) -> "AuditSettings":
    """Add the evaluation `reasoning` if the chat template of a model has a reasoning trace.

    Such a model can leak in its trace alone, and its answer may begin after the longest reply of other evaluations.
    """
    from vestige.artifacts.layout import own_folder
    from vestige.models.places import find, is_hub_id

    for model in models:
        folder = Path(model).expanduser()
        if own := own_folder(model):
            folder = own.model
        if fetch and is_hub_id(model):
            folder, _ = find(model, weights=False)
        for name in ("chat_template.jinja", "tokenizer_config.json"):
            path = folder / name
            if path.exists() and has_thought(read_text(path)):
                say(f"the chat template of {one_line(model)} has a reasoning trace, so the audit asks `reasoning` too")
                return settings.model_copy(update={"evals": (*settings.evals, "reasoning")})
    return settings


@verb
def judge(
    table: Any,
    *,
    output_dir: PathLikeStr = "runs/judged",
    forget: str = "the forget set",
    without_controls: bool = False,
    margins: "vestige.Margins | None" = None,
) -> Audit:
    """Judge models by scores that were made elsewhere. No model is loaded.

    Args:
        table: A CSV, JSON Lines or Parquet file, a list of dicts, or a DataFrame: a row for each answer, in the columns
            that docs/logs.md names.
        output_dir: The run's folder.
        forget: The name of the forget set.
        without_controls: Predict the controls: `table` is then a folder with logs of TOFU.
        margins: The margins of the verdicts.

    Returns:
        The verdicts.

    Raises:
        InputError: The table has other columns, or no target, or the controls cannot be predicted.

    Example:
        >>> vestige.judge("scores.csv").passed
    """
    from vestige.artifacts.layout import RunFolder
    from vestige.auditing.table import columns_of, judge_table, read_scores

    if without_controls:
        return _judge_without_controls(table, Path(output_dir), forget, given_margins(margins))
    source = fspath(table) if isinstance(table, str | PathLike) else "a table of scores"
    outcome = judge_table(
        RunFolder(Path(output_dir)),
        columns_of(read_scores(table)),
        forget=forget,
        margins=given_margins(margins),
        source=str(source),
    )
    return Audit(Path(output_dir), (outcome,), {})


def _judge_without_controls(folder: Any, run: Path, forget: str, margins: Record) -> Audit:
    from vestige.artifacts.layout import RunFolder
    from vestige.auditing.logs import judge_logs
    from vestige.auditing.predicted import predicting
    from vestige.logs.folders import recognise

    if not isinstance(folder, str | PathLike) or not Path(folder).is_dir():
        raise InputError("a judgement without controls needs the questions, which a table lacks. Give a folder of logs")
    named = "" if forget == "the forget set" else forget
    groups = recognise([Path(folder)], None, named, without_controls=True).groups
    if not groups:
        raise InputError(
            f"{one_line(str(folder), width=200)} has no target and unlearned model of the same forget set. Give a "
            "folder with both"
        )
    outcomes = []
    for group in map(predicting, groups):
        outcomes.append(judge_logs(RunFolder(run), group.logs, forget=group.name, margins=margins, forgiving=True))
    return Audit(run, tuple(outcomes), {})


def given_margins(margins: "vestige.Margins | None") -> Record:
    """The margins that were set, by name."""
    if margins is None:
        return {}
    return margins.explicit()


@verb
def read_audit(run: PathLikeStr) -> Audit:
    """Read the verdicts of a run as they were judged. No model is loaded.

    Args:
        run: The folder of a finished audit.

    Returns:
        The verdicts.

    Raises:
        InputError: The folder has no audit.

    Example:
        >>> vestige.read_audit("runs/audit")["npo"].not_expressed.reason
    """
    from vestige.artifacts.audits import read_outcome, read_plan
    from vestige.artifacts.layout import RunFolder

    folders = list(RunFolder(Path(run)).audits())
    if not folders:
        raise InputError(f"{one_line(str(run), width=200)} has no audit. Give the folder of a finished audit")
    failed = {}
    for folder in folders:
        for task in read_plan(folder).failed:
            failed[f"{task.subject}, {task.attack or 'as it is'}"] = task.reason
    return Audit(Path(run), tuple(map(read_outcome, folders)), failed)


@verb
def rejudge(run: PathLikeStr, *, margins: "vestige.Margins | None" = None) -> Audit:
    """Judge every audit in a run again from its answers, at other margins. No model is loaded.

    Args:
        run: The folder of a finished audit.
        margins: The margins. Margins that are not given stay as they were.

    Returns:
        The verdicts.

    Raises:
        InputError: The folder has no audit.

    Example:
        >>> vestige.rejudge("runs/audit", margins=vestige.Margins(delta_wide=0.3))
    """
    from vestige.auditing.run import rejudge as judge_again

    judge_again(Path(run), given_margins(margins))
    return read_audit(run)


@verb
def compare(
    first: PathLikeStr,
    *others: PathLikeStr,
    clusters: Mapping[str, str] | None = None,
    difference: float | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare models on the same questions by their logs or tables of scores. No control is needed.

    Args:
        first: A log, a folder of logs of one model, a table of scores, or the folder of an audit. The other models are
            compared with it.
        others: The logs or tables of the other models. They may be left out if the first is a table of several models.
        clusters: By question id or question text, the document or group of the question.
        difference: The function returns the number of questions that this difference needs. The observed one by
            default.
        seed: Seed of the resamples.

    Returns:
        Paired differences with 95 % intervals, p-values corrected by Holm's method over all rows, and the number of
        questions that would show the difference.

    Raises:
        InputError: A log cannot be read, or two models have no question or score in common.

    Example:
        >>> vestige.compare("base/samples_arc.jsonl", "mine/samples_arc.jsonl").to_frame()  # doctest: +SKIP
    """
    from vestige.auditing.compare import compare as compare_models

    paths = [Path(path) for path in (first, *others)]
    names = short_names(paths)
    models = dict(zip(names, paths, strict=True))
    compared = compare_models(models, clusters=clusters, difference=difference, seed=seed)
    return Comparison(*compared, paths=tuple(map(str, paths)))


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the part of each path that tells it from all others, or otherwise the shortest different endings."""
    parts = [path.with_suffix("").parts for path in paths]
    for place in range(1, min(map(len, parts)) + 1):
        names = [part[-place] for part in parts]
        # OpenUnlearning writes the log of each model into a folder evals or evals_FORGET.
        if len(set(names)) == len(names) and not all(name.startswith("evals") for name in names):
            return names
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise InputError("two of the logs are the same file. Give the logs of different models.")
