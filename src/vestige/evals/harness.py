"""lm-evaluation-harness on a model that Vestige has loaded: its tasks, prompts and metrics, question by question.

The model is handed over as it stands in memory (adapters merged, in its number format), and nothing is ever taken from
the harness's cache of answers, whose key has no weights in it. A task is the harness's own whether its rows come from
the hub or from files (`data.bench_rows`); of a task only metrics that are means over questions are kept.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import torch
from jinja2 import TemplateError
from pydantic import NonNegativeInt, PositiveInt

from vestige.artifacts.bench import BenchItem, TaskRun
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.settings import Settings
from vestige.core.text import closest, one_line
from vestige.data.bench_rows import WHOLE, Splits
from vestige.models.load import LoadedModel, context_tokens

PACKAGE = "lm_eval"
_SHARES = ("acc", "acc_norm", "acc_bytes", "exact_match", "exact_match_norm", "f1", "em", "contains")
"""Metrics of one question that lie in [0, 1]."""


class HarnessSettings(Settings):
    """How tasks are asked. Rows go together in batches, which can change the last digits."""

    limit: PositiveInt | None = None
    """Ask only the first questions of each task."""
    shots: NonNegativeInt | None = None
    """Examples before each question; by default the task's own number."""
    chat: bool = False
    """Render tasks with the model's chat template."""
    batch_size: PositiveInt = 16
    """Rows that go through the model together."""
    seed: NonNegativeInt = 1234
    """Seed of the examples."""


class Asked(NamedTuple):
    """What a name stands for: the tasks that it is made of; `pooled` if the mean over all their questions is its own.

    A task is its own only part.
    """

    name: str
    parts: tuple[str, ...]
    pooled: bool


def harness_version() -> str:
    """The harness's version; an InputError says how to install it where it is not."""
    try:
        return version(PACKAGE)
    except PackageNotFoundError as error:
        raise InputError(
            'lm-evaluation-harness is not installed; install it with `pip install "vestige[lmeval]"`'
        ) from error


@dataclass(frozen=True)
class Catalogue:
    """The harness's tasks by name. Reading its list takes seconds, so it is read once and when it is first wanted."""

    @cached_property
    def manager(self) -> Any:
        """The harness's own list."""
        harness_version()
        from lm_eval.tasks import TaskManager

        return TaskManager()

    def asked(self, name: str) -> Asked:
        """What the name stands for: a task, a group such as mmlu, or a tag such as ai2_arc."""
        if name not in self.manager.task_index:
            raise InputError(f"no task {one_line(name)!r} in lm-evaluation-harness; {closest(name, self._known)}")
        leaves = tuple(dict.fromkeys(self._leaves(name)))
        return Asked(name, leaves, pooled=leaves != (name,) and self._is_pooled(name))

    @property
    def _known(self) -> list[str]:
        return list(self.manager.task_index)

    def _kind(self, name: str) -> str:
        return str(self.manager.task_index[name].kind.name)

    def _leaves(self, name: str) -> Iterator[str]:
        entry, kind = self.manager.task_index[name], self._kind(name)
        if kind == "TAG":
            yield from sorted(entry.tags)
        elif kind == "GROUP":
            for child in _children(entry.cfg, name):
                yield from self._leaves(child)
        else:
            yield name

    def _is_pooled(self, name: str) -> bool:
        """Whether the group's number is the mean over all questions of all its parts."""
        if self._kind(name) != "GROUP":
            return False
        config = self.manager.task_index[name].cfg
        metrics = config.get("aggregate_metric_list") or []
        metrics = metrics if isinstance(metrics, list) else [metrics]
        whole = bool(metrics) and all(
            m.get("weight_by_size", True) and m.get("aggregation", "mean") == "mean" for m in metrics
        )
        groups = [c for c in _children(config, name) if self._kind(c) == "GROUP"]
        return whole and all(self._is_pooled(child) for child in groups)

    def task(self, name: str, rows: Splits | None) -> Any:
        """The harness's task, with its rows from the hub, or with `rows` in their place."""
        if rows is None:
            try:
                return self.manager.load([name])["tasks"][name]
            # Of the hub's library, and of the HTTP library below it, whose errors change their names.
            except Exception as error:
                raise InputError(
                    f"the data of the task {name} cannot be had from the hub ({type(error).__name__}: "
                    f"{one_line(str(error), width=120)}); give files with --task-data"
                ) from error
        from lm_eval.api.task import ConfigurableTask
        from lm_eval.tasks._yaml_loader import load_yaml

        config = dict(load_yaml(self.manager.task_index[name].yaml_path, resolve_func=True))
        if "class" in config:
            raise InputError(
                f"the task {name} is code of its own, which takes no rows from files; leave --task-data out"
            )
        for structural in ("tag", "group", "task_list"):
            config.pop(structural, None)
        datasets = _datasets(name, config, rows)
        try:
            # The harness calls this with what the task's definition holds beside, which is not for us.
            return ConfigurableTask(config={**config, "custom_dataset": lambda **_: datasets})
        except (KeyError, ValueError, TypeError, IndexError, TemplateError) as error:
            raise _unfit(name, error) from error


def _children(config: Mapping[str, Any], name: str) -> list[str]:
    listed = config.get("task")
    if not isinstance(listed, list) or not all(isinstance(child, str) for child in listed):
        raise InputError(f"the group {name} defines parts inside itself; name the tasks that you want instead")
    return list(listed)


def _datasets(name: str, config: Mapping[str, Any], rows: Splits) -> dict[str, Any]:
    """The rows as the harness's library has them, by the task's own names of splits; absent ones are empty."""
    import pyarrow as pa
    from datasets import Dataset

    asked = config.get("test_split") or config.get("validation_split")
    own = {config.get(f"{kind}_split") for kind in ("training", "validation", "test", "fewshot")} - {None}
    shown = (config.get("fewshot_config") or {}).get("split")
    wanted = {*own, *([shown] if shown else [])}
    # `dev` where the task has no such split is what it calls validation.
    called = {WHOLE: asked, **({} if "dev" in wanted else {"dev": "validation"})}
    by_split = {called.get(split, split): r for split, r in rows.items()}
    if asked not in by_split:
        raise InputError(
            f"of the task {name} the files hold {', '.join(map(str, by_split)) or 'nothing'}, and what is asked is its "
            f"split {asked}; call a file {name}_{asked} or {name}"
        )
    try:
        return {split: Dataset.from_list([dict(row) for row in by_split.get(split, [])]) for split in wanted}
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _unfit(name, error) from error


def _unfit(name: str, error: Exception) -> InputError:
    return InputError(
        f"the rows given for the task {name} are not in its form ({type(error).__name__}: "
        f"{one_line(str(error), width=120)}); give the columns that its data set on the hub has"
    )


def run_task(subject: LoadedModel, name: str, task: Any, settings: HarnessSettings, *, bars: bool = False) -> TaskRun:
    """Ask the model every question of the task, and keep what each metric says of each question.

    With `bars` the harness shows its own progress on stderr.
    """
    from lm_eval.evaluator import evaluate

    shots = _set_shots(task, name, settings)
    # Where a task samples its answers, it draws from torch's one generator.
    with torch.random.fork_rng(), torch.inference_mode():
        torch.manual_seed(settings.seed)
        try:
            found = evaluate(
                backend(subject, settings, bars=bars),
                {"tasks": {name: task}},
                limit=settings.limit,
                bootstrap_iters=0,
                log_samples=True,
                apply_chat_template=settings.chat,
                fewshot_as_multiturn=settings.chat,
            )
        except (ValueError, KeyError, TypeError, IndexError, AssertionError, TemplateError) as error:
            raise InputError(
                f"lm-evaluation-harness cannot ask {subject.name} the task {name} ({type(error).__name__}: "
                f"{one_line(str(error), width=160)})"
            ) from error
    samples = found["samples"][name]
    return replace(_kept(name, task, samples, shots), cut=sum(_is_cut(subject, sample) for sample in samples))


def _is_cut(subject: LoadedModel, sample: Mapping[str, Any]) -> bool:
    """Whether the harness cut a prompt of the question on its left, since the model does not read as much."""
    most = context_tokens(subject.model)
    for context, *rest in sample["arguments"]:
        if rest and isinstance(rest[0], str):
            # Of the last token nothing is asked, so that it need not be read.
            if _n_tokens(subject, context + rest[0]) > most + 1:
                return True
        elif rest and _n_tokens(subject, context) > most - int(rest[0].get("max_gen_toks", 0)):
            return True
    return False


def _n_tokens(subject: LoadedModel, text: str) -> int:
    return len(subject.tokenizer(text, verbose=False)["input_ids"])


def backend(subject: LoadedModel, settings: HarnessSettings, *, bars: bool) -> Any:
    """The model as the harness wants it. The tokeniser is a copy, since the harness gives it a token for padding."""
    from lm_eval.models.huggingface import HFLM

    found: Any = HFLM(
        pretrained=subject.model,
        tokenizer=copy.deepcopy(subject.tokenizer),
        backend="causal",
        batch_size=settings.batch_size,
        max_length=context_tokens(subject.model),
    )
    if subject.tokenizer.chat_template is not None:
        found.apply_chat_template = partial(_chat, subject)
    if not bars:
        # `evaluate` has no word for it.
        found.loglikelihood = partial(found.loglikelihood, disable_tqdm=True)
        found.loglikelihood_rolling = partial(found.loglikelihood_rolling, disable_tqdm=True)
        found.generate_until = partial(found.generate_until, disable_tqdm=True)
    return found


def _chat(subject: LoadedModel, history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
    """A conversation as text, as Vestige renders it: under bounds, with the pinned date.

    As in the harness it goes without system messages where the template refuses them, and an answer that was begun ends
    where it ends.
    """
    answered = not add_generation_prompt
    try:
        text = subject.prompter.chat(history, answered=answered)
    except InputError:
        text = subject.prompter.chat([m for m in history if m["role"] != "system"], answered=answered)
    last = history[-1]["content"].strip()
    return text[: text.rindex(last) + len(last)] if answered and last in text else text


def _set_shots(task: Any, name: str, settings: HarnessSettings) -> int:
    """How many examples are shown: as many as asked for, unless the task fixes that there are none."""
    own = task.get_config("num_fewshot")
    shots = int(own or 0) if settings.shots is None or own == 0 else settings.shots
    pool = task.fewshot_docs() if shots else None
    if shots and (pool is None or len(pool) < shots):
        raise InputError(f"the task {name} has fewer than {shots} examples to show; lower --shots or give more of them")
    task.set_config(key="num_fewshot", value=shots)
    task.set_fewshot_seed(seed=settings.seed)
    return shots


def _kept(name: str, task: Any, samples: list[dict[str, Any]], shots: int) -> TaskRun:
    """Each question with the values of its metrics; of a task with several filters each metric once a filter."""
    from lm_eval.api.metrics import mean

    means = {metric for metric, combine in task.aggregation().items() if combine is mean}
    items: dict[int, BenchItem] = {}
    failures: dict[str, int] = {}
    for sample in samples:
        number, beside = int(sample["doc_id"]), "" if sample["filter"] == "none" else f"/{sample['filter']}"
        values = {}
        for metric in sample["metrics"]:
            if metric not in means:
                continue
            value = float(sample[metric])
            if math.isfinite(value):
                values[f"{metric}{beside}"] = value
            else:
                failures["not finite"] = failures.get("not finite", 0) + 1
        before = items.get(number)
        said = {**(before.said if before else {}), sample["filter"]: _plain(sample["filtered_resps"])}
        content = content_id([sample["doc_hash"], sample["prompt_hash"], sample["target_hash"]], length=32)
        items[number] = BenchItem(number, content, {**(before.values if before else {}), **values}, said)
    names = tuple(dict.fromkeys(metric for item in items.values() for metric in item.values))
    left_out = tuple(sorted({metric for sample in samples for metric in sample["metrics"]} - means))
    if not names:
        raise InputError(
            f"the task {name} has no metric that is a mean over questions ({', '.join(left_out)}); take another task"
        )
    return TaskRun(
        task=name,
        version=str(task.VERSION),
        shots=shots,
        items=tuple(items[number] for number in sorted(items)),
        units={metric: "share" if _is_share(metric) else "score" for metric in names},
        bounds={metric: (0.0, 1.0) if _is_share(metric) else None for metric in names},
        failures=failures,
        left_out=left_out,
    )


def _is_share(metric: str) -> bool:
    return metric.partition("/")[0] in _SHARES


def _plain(value: Any) -> Any:
    """What was said, as JSON has it; a log-probability that is no finite number by its name."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)
