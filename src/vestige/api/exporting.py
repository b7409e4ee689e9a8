"""`export` and `export_task`: the parts of a run that other tools read, and a task that they run themselves."""

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, get_args
from uuid import UUID

from vestige.api.inputs import DataLike, PathLikeStr, corpus_of, verb
from vestige.core.errors import InputError
from vestige.core.text import Fields, TextByName, TextMapping, closest, one_line

if TYPE_CHECKING:
    from vestige.artifacts.audits import AuditOutcome, AuditPlan
    from vestige.artifacts.exports import ModelFacts
    from vestige.artifacts.layout import AuditFolder, RunFolder
    from vestige.artifacts.scores import ScoreTable
    from vestige.logs.writing import ExportedModel

SCORES = ("eee", "inspect", "lm-eval", "open-unlearning", "dataset")
FORMATS = ("junit", "card", "hf", *SCORES)
_PUBLIC = re.compile(r"[\w.-]+/[\w.-]+")


@verb
def export(
    run: PathLikeStr,
    to: str,
    *,
    output_dir: PathLikeStr | None = None,
    model_id: str | TextMapping = "",
    dataset: str | None = None,
    baseline: PathLikeStr | None = None,
    fail_on_inconclusive: bool = False,
) -> list[Path]:
    """Write verdicts or scores of a run in the format of another tool. No model is loaded.

    `vestige audit --logs` reads the scores of every format back. The scores are the input of the verdicts. Scores after
    attacks and of internal layers are left out.

    Args:
        run: The folder of an audited run.
        to: junit (one XML file, for CI), card (Markdown for model cards), hf (README.md and .eval_results/ for the
            model's repository on the Hugging Face Hub), eee (Every Eval Ever, with its instance file), inspect,
            lm-eval, open-unlearning (a log for each model), or dataset (a folder for `datasets.load_dataset`).
        output_dir: Where the files go; exports/FORMAT in the run by default.
        model_id: The public name of the unlearned model (ORG/NAME). Of several models a name for each.
        dataset: hf: the Hub's id of the benchmark that the results belong to (ORG/NAME).
        baseline: junit: an earlier run's folder or verdicts.json. Only verdicts that are worse than there fail.
        fail_on_inconclusive: junit: an inconclusive claim is a failure, not skipped.

    Returns:
        The files.

    Raises:
        InputError: The run has no audit, or an argument does not go with the format.

    Example:
        >>> vestige.export("runs/audit", "inspect", model_id="org/unlearned")  # doctest: +SKIP
    """
    from vestige.artifacts.audits import read_outcome
    from vestige.artifacts.exports import junit, shareable
    from vestige.artifacts.layout import RunFolder
    from vestige.artifacts.verdicts import read_baseline, regressions, verdict_rows
    from vestige.core.files import refuse_links, write_text
    from vestige.report.contents import plain_outcome

    if to not in FORMATS:
        raise InputError(f"--to {one_line(to)!r}: {closest(to, list(FORMATS))}")
    if (to == "hf") != (dataset is not None):
        raise InputError("--to hf needs --dataset ORG/NAME, and only --to hf takes --dataset")
    if to != "junit" and (fail_on_inconclusive or baseline is not None):
        raise InputError("--fail-on-inconclusive and --baseline go with --to junit. Leave them out.")
    folder = RunFolder(Path(run))
    audits = folder.audits()
    if not audits:
        raise InputError(f"{run} holds no finished audit. Run `vestige audit --output-dir {run}` first")
    # Exported files must belong to the run, and not be targets of links.
    refuse_links(folder.path)
    home = Path(output_dir) if output_dir is not None else folder.path / "exports" / to
    files: TextByName = {}
    if to == "junit":
        outcomes = [read_outcome(audit) for audit in audits]
        worse = None
        if baseline is not None:
            rows = regressions(verdict_rows(outcomes), read_baseline(Path(baseline)))
            worse = {(row["forget"], row["subject"], row["claim"]) for row, _ in rows}
        # The words are those of the page.
        plain = [shareable(plain_outcome(outcome, {})) for outcome in outcomes]
        files["junit.xml"] = junit(plain, fail_open=fail_on_inconclusive, worse=worse)
    else:
        for audit in audits:
            files |= _of_audit(folder, audit, to, model_id, dataset, several=len(audits) > 1)
    for path, text in files.items():
        write_text(home / path, text)
    return [home / path for path in files]


def _of_audit(
    run: "RunFolder", audit: "AuditFolder", to: str, model_id: str | TextMapping, dataset: str | None, *, several: bool
) -> TextByName:
    """The files of one audit by path within the folder of exports."""
    from vestige.artifacts.audits import read_outcome, read_plan
    from vestige.artifacts.exports import card, hub_results, shareable
    from vestige.auditing.control_checks import made_of_others
    from vestige.auditing.gather import read_table_of
    from vestige.auditing.ground import Case
    from vestige.auditing.judge import lay
    from vestige.core.ids import slug
    from vestige.core.progress import say
    from vestige.logs.writing import LOGS, dataset_rows, models_of

    plan = read_plan(audit)
    outcome = shareable(read_outcome(audit))
    # The time of the judgement, which a later export does not change.
    when = datetime.fromtimestamp(audit.outcome.stat().st_mtime, tz=UTC)
    ids = _public_names(plan, model_id)
    files: TextByName = {}
    if to in ("card", "hf"):
        for subject, facts in _facts(run, audit, plan, outcome, ids).items():
            # The name includes the forget set, since two audits of a run may be of the same model.
            name = slug(f"{subject} {outcome.forget}")
            text = card([outcome], subject, facts)
            if to == "card":
                files[f"{name}.md"] = text
                continue
            # The Hub reads a block at the very beginning as the card's metadata.
            files[f"{name}/README.md"] = f"---\ntags:\n- machine-unlearning\n---\n\n{text}"
            results = hub_results(outcome, subject, facts, str(dataset), when)
            files[f"{name}/.eval_results/vestige.yaml"] = results
        return files
    scores = read_table_of(run, plan)
    table = score_table_of(run, plan, scores)
    models = list(models_of(table, plan, ids, when))
    if plan.apart:
        # A log has no weights, so a later reading would accept a copy as a control.
        copied = made_of_others(lay(Case(plan, scores.judged()), 1))
        for name, why in copied.items():
            say(f"left out: {one_line(name, width=60)} is no control, since {why}")
        models = [model for model in models if model.name not in copied]
    if to == "eee":
        return _eee(outcome, _facts(run, audit, plan, outcome, ids), models, when, several=several)
    if to == "dataset":
        files = dataset_rows(models)
    else:
        for model in models:
            files |= LOGS[to](model)
        files["roles.csv"] = _roles({f"{model.file}*": model for model in models})
    # Each of several forget sets has a folder, which is judged separately.
    if several:
        return {f"{slug(plan.forget)}/{path}": text for path, text in files.items()}
    return files


def judging_commands(run: Path, to: str, output_dir: Path | None = None) -> list[str]:
    """The command for each forget set that judges an export again at the margins of the run."""
    from vestige.artifacts.audits import read_outcome
    from vestige.artifacts.layout import RunFolder
    from vestige.core.ids import slug
    from vestige.metrics.verdicts import Thresholds

    usual = Thresholds().model_dump()
    audits = RunFolder(run).audits()
    commands = []
    for audit in audits:
        outcome = read_outcome(audit)
        source = output_dir or run / "exports" / to
        if len(audits) > 1:
            source /= f"data/vestige-{slug(outcome.forget)}" if to == "eee" else slug(outcome.forget)
        if to == "dataset":
            source /= "scores.jsonl"
        words = ["vestige", "audit", "--logs", str(source)]
        for name, value in outcome.thresholds.items():
            if value != usual[name]:
                words += ["--set", f"{name}={value}"]
        commands.append(shlex.join(words))
    return commands


def _roles(models: "Mapping[str, ExportedModel]") -> str:
    """The roles file of exported logs, by pattern: a log does not name its model's role."""
    from vestige.artifacts.records import csv_text

    rows = []
    for pattern, model in models.items():
        rows.append({"pattern": pattern, "role": model.role, "name": f"{model.name}@{model.attack}".rstrip("@")})
    return csv_text(("pattern", "role", "name"), rows)


def _public_names(plan: "AuditPlan", model_id: str | TextMapping) -> TextByName:
    """The public name of every model: as given, otherwise its name in the run under an unknown organisation."""
    from vestige.artifacts.exports import UNKNOWN
    from vestige.core.ids import slug

    names = (plan.target, *plan.retrained, *plan.unlearned, *([plan.suppressed] if plan.suppressed else []))
    given = dict(model_id) if isinstance(model_id, Mapping) else {}
    if isinstance(model_id, str) and model_id:
        if len(plan.unlearned) != 1:
            raise InputError(
                f"--model-id names one model, and the run judges {len(plan.unlearned)}. Give MODEL=ORG/NAME for each."
            )
        given = {plan.unlearned[0]: model_id}
    for name, public in given.items():
        if name not in names:
            raise InputError(f"--model-id {one_line(name)}: {closest(name, list(names))}")
        if not _PUBLIC.fullmatch(public):
            raise InputError(f"--model-id {one_line(public)!r} is not the name of a repository. Give ORG/NAME.")
    return {name: given.get(name) or f"{UNKNOWN}/{slug(name)}" for name in names}


def _facts(
    run: "RunFolder", audit: "AuditFolder", plan: "AuditPlan", outcome: "AuditOutcome", ids: TextMapping
) -> "dict[str, ModelFacts]":
    """The known facts about each judged model."""
    from vestige.artifacts.audits import FROM_LOGS
    from vestige.artifacts.exports import ModelFacts
    from vestige.artifacts.layout import SubjectFolder
    from vestige.artifacts.provenance import installed_versions
    from vestige.artifacts.records import read_finished, read_spec
    from vestige.core.ids import file_digest

    version = installed_versions()["vestige"]
    subjects = dict.fromkeys(v.subject for v in outcome.verdicts)
    if outcome.evidence_level in FROM_LOGS:
        digest = file_digest(audit.scores)
        return {name: ModelFacts(ids[name], digest, version, seen=False) for name in subjects}
    folders = {name: SubjectFolder(run.path / path) for name, path in plan.folders.items()}
    digests = {name: read_finished(f.done, "digest")["digest"] for name, f in folders.items() if f.done.exists()}
    # Without the controls' digests, the reference of the judgement would be unknown.
    compared = {name: digest for name, digest in digests.items() if name in (outcome.target, *outcome.retrained)}
    facts = {}
    for name in subjects:
        if name in folders:
            served = read_spec(folders[name].spec).model.startswith(("http://", "https://"))
            facts[name] = ModelFacts(ids[name], digests[name], version, compared, served)
    return facts


def score_table_of(run: "RunFolder", plan: "AuditPlan", table: "ScoreTable") -> "ScoreTable":
    """Return the public part of a run's scores. For audited models, these are the scores without attacks."""
    from vestige.artifacts.scores import HITS, ScoreColumn, ScoreTable, Source, Texts
    from vestige.auditing.gather import replies_on_disk
    from vestige.auditing.measures import LOGP, PREFIX
    from vestige.auditing.settings import MemberScore

    if not plan.evaluations:
        return table
    # The first wording of a fact identifies it. Logs have other ids.
    leads = set(plan.facts.values())
    questions = {i: replace(q, fact=i) if i in leads else q for i, q in table.questions.items()}
    public = ScoreTable(roles=table.roles, questions=questions)
    for subject, _, item, form in replies_on_disk(run, plan, {(subject, "") for subject in table.roles}):
        texts = Texts(form["asked"], form["answer"], form["reply"])
        public.texts.setdefault(Source(subject), {}).setdefault(item, texts)
    names = {table.bits: "forced, bits"}
    for judged in table.formats:
        if judged.hits and not judged.inside:
            names[judged.hits] = f"{judged.name}{HITS}"
        if not judged.inside:
            names[judged.key] = judged.name
    left_out = set(get_args(MemberScore)) - set(plan.settings.get("membership", ()))
    for key, its in table.measurements.items():
        score = "reference" if key == LOGP else key.removeprefix(PREFIX)
        if its.score_type == "order" and score not in left_out:
            names[key] = key
    values: dict[Source, dict[str, ScoreColumn]] = {Source(subject): {} for subject in table.roles}
    for key, name in names.items():
        asked = dict.fromkeys(item for subject in table.roles for item in table.table(subject, key))
        if not asked:
            continue
        public.measurements[name] = replace(table.measurements[key], name=name)
        if key in table.chances:
            public.chances[name] = table.chances[key]
        for source, columns in values.items():
            scores = table.table(source, key)
            # Questions that only another model has are missing here.
            columns[name] = ScoreColumn(tuple(asked), (scores.get(item, math.nan) for item in asked))
    return replace(public, values=values)


def _eee(
    outcome: "AuditOutcome",
    facts: "Mapping[str, ModelFacts]",
    models: "Sequence[ExportedModel]",
    when: datetime,
    *,
    several: bool,
) -> TextByName:
    """The aggregate record and the instance file of each model, where Every Eval Ever files them, and their roles."""
    from vestige.artifacts.exports import ModelFacts, eee
    from vestige.artifacts.provenance import installed_versions
    from vestige.core.ids import slug
    from vestige.logs.writing import eee_means, eee_samples

    files = {}
    by_file = {}
    folder = f"data/vestige-{slug(outcome.forget)}"
    for model in models:
        known = facts.get(model.name) or ModelFacts(model.id, "", installed_versions()["vestige"], seen=False)
        record: Fields = eee(outcome, model.name, known, when)
        record["evaluation_id"] = f"{record['evaluation_id']}/{model.file}"
        samples = eee_samples(model, record["evaluation_id"])
        record["evaluation_results"] += eee_means(model)
        checksum = sha256(samples.encode()).hexdigest()
        # The schema requires a random UUID. One from the content is reproducible.
        name = UUID(bytes=sha256(f"{model.file} {checksum}".encode()).digest()[:16], version=4)
        place = f"{folder}/{model.id}/{name}"
        by_file[f"{place}_samples.jsonl"] = model
        record["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": f"{place}_samples.jsonl",
            "hash_algorithm": "sha256",
            "checksum": checksum,
            "total_rows": len(model.rows),
            "additional_details": {"role": model.role, "attack": model.attack},
        }
        files[f"{place}.json"] = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        files[f"{place}_samples.jsonl"] = samples
    if several:
        by_file = {file.removeprefix(f"{folder}/"): model for file, model in by_file.items()}
    files[f"{folder}/roles.csv" if several else "roles.csv"] = _roles(by_file)
    return files


TOOLS = ("lm-eval", "inspect")
_LM_EVAL = """\
task: vestige_forget
custom_dataset: !function vestige_task.questions
output_type: generate_until
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 64
  do_sample: false
process_results: !function vestige_task.scored
metric_list:
  - metric: contains
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""
_LM_EVAL_CODE = '''\
"""The questions of questions.jsonl for lm-evaluation-harness, and whether a reply contains the answer."""

import json
from pathlib import Path

import datasets


def questions(**_):
    """The questions beside this file."""
    lines = (Path(__file__).parent / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return {"test": datasets.Dataset.from_list([json.loads(line) for line in lines])}


def scored(doc, results):
    """1.0 where the reply contains the answer."""
    answer = doc["answer"].strip().rstrip(".").lower()
    return {"contains": float(answer in results[0].lower())}
'''
_INSPECT_CODE = '''\
"""The questions of questions.jsonl for Inspect: `inspect eval vestige_forget.py --log-format json`."""

import json
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate


@task
def vestige_forget():
    """One sample for each question; a reply is right if it contains the answer."""
    samples = []
    for line in (Path(__file__).parent / "questions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        prompt = f"Question: {row['question']}\\nAnswer:"
        samples.append(Sample(id=row["id"], input=prompt, target=row["answer"].strip().rstrip(".")))
    # The provider of local models rejects a temperature of 0.
    greedy = {"top_k": 1} if str(get_model()).startswith("hf/") else {"temperature": 0}
    config = GenerateConfig(max_tokens=64, **greedy)
    return Task(dataset=MemoryDataset(samples), solver=generate(), scorer=includes(), config=config)
'''


@verb
def export_task(data: DataLike, to: str, *, output_dir: PathLikeStr = "vestige_task") -> list[Path]:
    """Write a data set's questions as a task for another tool. `vestige audit --logs` judges its log.

    A reply is right if it contains the answer, without regard to case.

    Args:
        data: The questions that were to be forgotten: a file, a hub id, or rows in memory.
        to: lm-eval or inspect.
        output_dir: The folder of the task.

    Returns:
        The files. The first is the task.

    Raises:
        InputError: The data cannot be read, or no such tool is known.

    Example:
        >>> vestige.export_task("forget.jsonl", "inspect")  # doctest: +SKIP
    """
    from vestige.core.files import json_line, write_text

    if to not in TOOLS:
        raise InputError(f"--to {one_line(to)!r}: {closest(to, list(TOOLS))}")
    lines = []
    for item in corpus_of(data).items:
        lines.append(json_line({"id": item.id, "question": item.question, "answer": item.answer}))
    files = {"vestige_forget.py": _INSPECT_CODE}
    if to == "lm-eval":
        files = {"vestige_forget.yaml": _LM_EVAL, "vestige_task.py": _LM_EVAL_CODE}
    files["questions.jsonl"] = "".join(lines)
    folder = Path(output_dir)
    for name, text in files.items():
        write_text(folder / name, text)
    return [folder / name for name in files]
