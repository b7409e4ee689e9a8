"""Write the scores of a run in other tools' formats, one log for each model: every question, its reply and its score.

A note under `vestige`, if the tool allows free metadata, has values without a field (split, fact, group, chance, the
measurement), so that the reader here restores the same scores. No log names weights, or a local path.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from operator import attrgetter
from typing import get_args

from vestige.artifacts.audits import AuditPlan
from vestige.artifacts.exports import EEE_SCHEMA, without_paths
from vestige.artifacts.scores import Measurement, Question, Role, ScoreTable, Split, Texts
from vestige.core.files import json_line
from vestige.core.ids import slug
from vestige.core.text import Fields, TextByName, TextMapping, grouped
from vestige.logs.log import NOTE
from vestige.logs.open_unlearning import METRICS


@dataclass(frozen=True)
class ExportedScore:
    """One score with its question's facts. `score` is None if it is missing, because of `reason`.

    `scope` and `drawn_from` are the columns of a table of scores.
    """

    item: str
    question: Question
    measurement: Measurement
    score: float | None
    reason: str
    chance: float | None
    texts: Texts
    scope: str
    drawn_from: int | None

    def about(self) -> Fields:
        """Return the values of the question without a field in another tool's format."""
        about = {"item": self.item, **asdict(self.question), "scope": self.scope, "drawn_from": self.drawn_from}
        return {key: value for key, value in about.items() if value}

    def note(self) -> Fields:
        """Return all values without a field in another tool's format."""
        note: Fields = {"measurement": asdict(self.measurement), **self.about()}
        if self.chance is not None:
            note["chance"] = self.chance
        if self.reason:
            note["reason"] = self.reason
        return note


@dataclass(frozen=True)
class ExportedModel:
    """All scores of one model, before or after one attack. `id` is its public name (ORG/NAME)."""

    name: str
    role: Role
    attack: str
    id: str
    when: datetime
    rows: tuple[ExportedScore, ...]

    @property
    def file(self) -> str:
        """Return a file name that distinguishes roles, models and attacks."""
        return slug(f"{self.role} {self.name} {self.attack}".strip())


_item, _name = attrgetter("item"), attrgetter("measurement.name")
_split_and_name = attrgetter("question.split", "measurement.name")


def models_of(table: ScoreTable, plan: AuditPlan, ids: TextMapping, when: datetime) -> Iterator[ExportedModel]:
    """Return the models of a table, each before and after each attack.

    An item of several splits, such as a retained item that is also independent, is a question of each split.
    """
    splits: dict[str, list[Split]] = {}
    for split in get_args(Split):
        for item in plan.splits.get(split, ()):
            splits.setdefault(item, []).append(split)
    rows: dict[tuple[str, str], list[ExportedScore]] = {}
    for source, tables in table.values.items():
        texts = table.texts.get(source, {})
        for name, scores in tables.items():
            reasons, chances = table.reasons.get((source, name), {}), table.chances.get(name, {})
            for item, score in scores.items():
                own_texts = texts.get(item, Texts())
                # A question without text gets its id as text, by which the logs of two models are matched.
                own_texts = own_texts._replace(question=own_texts.question or item)
                question = table.questions[item]
                for split in splits.get(item, [question.split]):
                    size = plan.sizes.get(split, 0)
                    row = ExportedScore(
                        item=item if split == question.split else f"{item} ({split})",
                        question=replace(question, split=split),
                        measurement=table.measurements[name],
                        score=None if math.isnan(score) else score,
                        reason=without_paths(reasons.get(item, "")),
                        chance=chances.get(item),
                        texts=own_texts,
                        scope=plan.scopes.get(item, "") if split == "forget" else "",
                        drawn_from=size if size > len(plan.splits.get(split, ())) else None,
                    )
                    rows.setdefault((source.subject, source.attack), []).append(row)
    for (model, attack), own in rows.items():
        yield ExportedModel(model, table.roles[model], attack, ids[model], when, tuple(own))


def _means(rows: Sequence[ExportedScore]) -> float | None:
    known = [row.score for row in rows if row.score is not None]
    if known:
        return sum(known) / len(known)
    return None


def _item_note(rows: Sequence[ExportedScore]) -> Fields:
    """The note of a question with several measurements."""
    measured = {}
    for row in rows:
        note = row.note()
        measured[row.measurement.name] = {key: note[key] for key in ("measurement", "chance", "reason") if key in note}
    return {**rows[0].about(), "measured": measured}


def inspect_log(model: ExportedModel) -> TextByName:
    """A log of Inspect in JSON: a sample for each question, a scorer for each measurement."""
    time = model.when.astimezone(UTC).isoformat(timespec="seconds")
    samples = []
    for item, rows in grouped(model.rows, _item).items():
        texts = rows[0].texts
        scores = {}
        for row in rows:
            if row.score is not None:
                scores[row.measurement.name] = {"value": row.score, "answer": row.texts.reply}
        message = {"role": "assistant", "content": texts.reply}
        output = {"model": model.id, "choices": [{"message": message}], "completion": texts.reply}
        samples.append(
            {
                "id": item,
                "epoch": 1,
                "input": texts.question,
                "target": texts.answer,
                "messages": [],
                "output": output,
                "scores": scores,
                "metadata": {NOTE: _item_note(rows)},
            }
        )
    means = []
    for name, rows in grouped(model.rows, _name).items():
        mean = _means(rows)
        if mean is not None:
            metrics = {"mean": {"name": "mean", "value": mean}}
            means.append({"name": name, "scorer": name, "metrics": metrics})
    sizes = {"total_samples": len(samples), "completed_samples": len(samples)}
    log = {
        "version": 2,
        "status": "success",
        "eval": {
            "run_id": model.file,
            "task_id": model.file,
            "created": time,
            "task": "vestige",
            "dataset": {"name": "vestige", "samples": len(samples), "sample_ids": [s["id"] for s in samples]},
            "model": model.id,
            "config": {},
        },
        "plan": {"name": "plan", "steps": []},
        "results": {**sizes, "scores": means},
        "stats": {"started_at": time, "completed_at": time},
        "samples": samples,
    }
    return {f"{model.file}.json": json.dumps(log, ensure_ascii=False, allow_nan=False) + "\n"}


def lm_eval_samples(model: ExportedModel) -> TextByName:
    """samples_TASK_TIME.jsonl of lm-evaluation-harness, a task for each split, and results_TIME.json."""
    time = model.when.astimezone(UTC).strftime("%Y-%m-%dT%H-%M-%S.000000")
    files: dict[str, list[str]] = {}
    metrics: dict[str, list[str]] = {}
    for split, name in grouped(model.rows, _split_and_name):
        metrics.setdefault(split, []).append(name)
    for number, rows in enumerate(grouped(model.rows, _item).values()):
        texts = rows[0].texts
        line = {
            "doc_id": number,
            "doc": {"question": texts.question, "answer": texts.answer, NOTE: _item_note(rows)},
            "target": texts.answer,
            "arguments": {"gen_args_0": {"arg_0": texts.question, "arg_1": {}}},
            "resps": [[texts.reply]],
            "filtered_resps": [texts.reply],
            "filter": "none",
            "metrics": metrics[rows[0].question.split],
            "doc_hash": _digest(texts.question, texts.answer),
            "prompt_hash": _digest(texts.question),
            "target_hash": _digest(texts.answer),
            **{row.measurement.name: row.score for row in rows},
        }
        files.setdefault(rows[0].question.split, []).append(json_line(line))
    results: dict[str, Fields] = {}
    for (split, name), rows in grouped(model.rows, _split_and_name).items():
        of_task = results.setdefault(f"vestige_{split}", {"alias": f"vestige_{split}"})
        of_task[f"{name},none"] = _means(rows)
    summary = {
        "results": results,
        "configs": {task: {"task": task} for task in results},
        "versions": dict.fromkeys(results, 1),
        "n-shot": dict.fromkeys(results, 0),
        "model_name": model.id,
        "date": model.when.timestamp(),
    }
    named = {f"{model.file}/samples_vestige_{split}_{time}.jsonl": "".join(lines) for split, lines in files.items()}
    return named | {f"{model.file}/results_{time}.json": json.dumps(summary, indent=2, ensure_ascii=False) + "\n"}


def _digest(*texts: str) -> str:
    return sha256("\0".join(texts).encode()).hexdigest()


def open_unlearning_log(model: ExportedModel) -> TextByName:
    """TOFU_EVAL.json of OpenUnlearning: a metric for each split and measurement, with `value_by_index`.

    A measurement that OpenUnlearning has, as its logs define it, has its name there. Others begin with `vestige`.
    """
    known = {metric.measurement: (name, metric.keys[0]) for name, metric in reversed(METRICS.items())}
    spelled = {"q_a_prob": "Q_A_Prob", "q_a_rouge": "Q_A_ROUGE", "q_a_para_prob": "Q_A_PARA_Prob"}
    log = {}
    for (split, _), rows in grouped(model.rows, _split_and_name).items():
        measurement = rows[0].measurement
        bare = replace(measurement, metric="", version="")
        name, column = f"vestige_{slug(measurement.name)}", "score"
        for theirs, (their_name, key) in known.items():
            # A truth ratio and the letter options have separate columns for this.
            own = replace(theirs, metric="", version="")
            if own == bare and key in ("prob", "rougeL_recall") and their_name in spelled:
                name, column = spelled[their_name], key
        values = {}
        for number, row in enumerate(rows):
            texts = {"input": row.texts.question, "ground_truth": row.texts.answer, "generation": row.texts.reply}
            values[str(number)] = {column: row.score, **texts, NOTE: {**row.note(), "column": column}}
        log[f"{_SPLITS.get(split, split)}_{name}"] = {"agg_value": _means(rows), "value_by_index": values}
    return {f"{model.file}/TOFU_EVAL.json": json.dumps(log, indent=1, ensure_ascii=False, allow_nan=False) + "\n"}


_SPLITS = {"independent": "ra", "factual": "wf"}
"""OpenUnlearning's names of splits."""


def eee_samples(model: ExportedModel, evaluation: str) -> str:
    """The instance file of Every Eval Ever (instance_level_eval.schema.json): a line for each score."""
    lines = []
    for row in model.rows:
        missing = row.score is None
        line = {
            "schema_version": EEE_SCHEMA,
            "evaluation_id": evaluation,
            "model_id": model.id,
            "evaluation_name": row.measurement.name,
            "evaluation_result_id": row.measurement.name,
            "sample_id": row.item,
            "sample_hash": _digest(row.texts.question, row.texts.answer),
            "interaction_type": "single_turn",
            "input": {"raw": row.texts.question, "reference": [row.texts.answer]},
            "output": {"raw": [row.texts.reply]},
            "answer_attribution": [],
            # The schema requires a score. `error` marks it as missing.
            "evaluation": {"score": 0.0 if missing else row.score, "is_correct": row.score == row.measurement.high},
            "metadata": {NOTE: row.note()},
        }
        if missing:
            line["error"] = row.reason or "the question has no score"
        lines.append(json_line(line))
    return "".join(lines)


def eee_means(model: ExportedModel) -> list[Fields]:
    """The aggregate results of the instance file."""
    results = []
    for name, rows in grouped(model.rows, _name).items():
        mean = _means(rows)
        if mean is None:
            continue
        measurement = rows[0].measurement
        scores = [row.score for row in rows if row.score is not None]
        # The format requires a range. For bits, the observed range is used.
        low = min(scores) if measurement.low is None else measurement.low
        high = max(scores) if measurement.high is None else measurement.high
        config = {
            "metric_id": f"vestige.{slug(name)}",
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": low,
            "max_score": high,
        }
        results.append(
            {
                "evaluation_result_id": name,
                "evaluation_name": name,
                "source_data": {"dataset_name": "vestige", "source_type": "other"},
                "metric_config": config,
                "score_details": {"score": mean, "uncertainty": {"num_samples": len(scores)}},
            }
        )
    return results


def dataset_rows(models: Sequence[ExportedModel]) -> TextByName:
    """A folder for `datasets.load_dataset`: scores.jsonl in the columns of a table of scores, and a README.md."""
    lines = []
    for model in models:
        for row in model.rows:
            kind = row.measurement.score_type
            bits = kind == "bits"
            line = {
                "model": model.name,
                "role": model.role,
                "attack": model.attack,
                "split": row.question.split,
                "drawn_from": row.drawn_from,
                "scope": row.scope,
                "item": row.item,
                "fact": row.question.fact,
                "group": row.question.group,
                "format": row.measurement.name.removesuffix(", bits") if bits else row.measurement.name,
                "ratio": "yes" if row.measurement.ratio else "no",
                "question_type": row.measurement.question_type,
                "unit": kind if kind in ("bits", "order") else "share",
                "direction": "higher" if row.measurement.direction > 0 else "lower",
                "score": row.score,
                "reason": row.reason,
                "chance": row.chance,
                **row.texts._asdict(),
            }
            lines.append(json_line(line))
    readme = (
        "---\nconfigs:\n- config_name: default\n  data_files: scores.jsonl\ntags:\n- machine-unlearning\n---\n\n"
        "Scores of models by question. `vestige audit --logs scores.jsonl` judges them.\n"
    )
    return {"scores.jsonl": "".join(lines), "README.md": readme}


LOGS: Mapping[str, Callable[[ExportedModel], TextByName]] = {
    "inspect": inspect_log,
    "lm-eval": lm_eval_samples,
    "open-unlearning": open_unlearning_log,
}
"""The formats with one log for each model."""
