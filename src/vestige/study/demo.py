"""The demo: PISTOL's sample dataset 1 through the whole pipeline, on the built-in tiny model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, PositiveInt

from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.core.errors import InputError
from vestige.core.files import locked, write_text
from vestige.core.ids import changed_keys
from vestige.core.settings import Settings, closest, read_toml, to_toml
from vestige.data.build import CompileSettings, compile_to_folder
from vestige.data.corpus import Corpus, NamedSplits, SourceSettings, everything, left_out, named_splits, open_corpus
from vestige.data.factual import idk_answers
from vestige.data.graph_files import load_graph
from vestige.data.selectors import select_edges
from vestige.study.presets import TINY_FINETUNE, TINY_RATES, tiny_unlearning
from vestige.study.runner import Report, State, Task, run_tasks
from vestige.training.settings import UnlearningSettings

if TYPE_CHECKING:
    from vestige.steps.unlearn import UnlearnRequest


class DemoSettings(Settings):
    """What the demo compiles, forgets and compares. `factual` adds the built-in factual questions to the training."""

    graph: str = "sample1"
    seed: int = 0
    forget: tuple[str, ...] = Field(default=("edge:A_B", "edge:A_C"), min_length=1)
    methods: tuple[str, ...] = Field(default=tuple(TINY_RATES), min_length=1)
    factual: bool = True
    epochs: PositiveInt = TINY_FINETUNE.epochs
    unlearning_epochs: PositiveInt = 20
    max_new_tokens: PositiveInt = 32


LOCK_SECONDS = 10.0
"""How long to wait for another command in the same folder."""

# Processor seconds of each kind of task on the machine that the demo was written on: weights for the time left.
_WEIGHTS = {"compile": 1.0, "base": 2.0, "finetune": 120.0, "unlearn": 6.0, "evaluate": 5.0}


def run_demo(
    run: RunFolder, settings: DemoSettings, *, workers: int, show: Callable[[State], None] = lambda _: None
) -> dict[str, Exception]:
    """Fill the run's folder with everything but the report; resumes. The failures by task name."""
    _check(settings)
    with locked(run.lock, patience_seconds=LOCK_SECONDS):
        same_run(run, settings)
        watch = Stopwatch()
        write_text(run.settings, to_toml(settings.identity()))
        failed = run_tasks(demo_tasks(run, settings), workers=workers, show=show)
        if not run.provenance.exists():
            write_provenance(run.provenance, watch, workers=workers)
    return failed


def _check(settings: DemoSettings) -> None:
    """Refuse what would fail only after the target has been trained."""
    graph = load_graph(settings.graph, seed=settings.seed)
    for forget in settings.forget:
        select_edges(graph, forget, seed=settings.seed)
    for method in settings.methods:
        if method not in TINY_RATES:
            raise InputError(
                f"the demo has no learning rate for the method {method!r}; {closest(method, list(TINY_RATES))}"
            )


def same_run(run: RunFolder, settings: Settings) -> None:
    """Refuse a folder that holds a run with other settings, naming what differs."""
    if not run.settings.exists():
        return
    changed = changed_keys(settings.identity(), read_toml(run.settings))
    if changed:
        raise InputError(
            f"{run.path} holds a run with other settings ({', '.join(changed)}); choose another folder or start over "
            "with --fresh"
        )


def demo_tasks(run: RunFolder, settings: DemoSettings) -> list[Task]:
    """The plan: controls first, since everything else waits for the target."""
    base = {"run": str(run.path), "settings": settings.identity()}
    retrained = {forget: f"retrained {forget}" for forget in settings.forget}
    tasks = [Task("compile", compile_task, base, weight=_WEIGHTS["compile"])]
    for name, forget in [("target", ""), *((n, f) for f, n in retrained.items())]:
        arguments = {**base, "name": name, "forget": forget}
        tasks.append(Task(name, finetune_task, arguments, ("compile",), _WEIGHTS["finetune"]))
    tasks.append(Task("base", base_task, base, ("compile",), _WEIGHTS["base"]))
    unlearned = {f"{method} {forget}": (method, forget) for forget in settings.forget for method in settings.methods}
    for name, (method, forget) in unlearned.items():
        arguments = {**base, "method": method, "forget": forget}
        tasks.append(Task(name, unlearn_task, arguments, ("target",), _WEIGHTS["unlearn"]))
    views = {"base": settings.forget, "target": settings.forget}
    views |= {name: (forget,) for forget, name in retrained.items()}
    views |= {name: (forget,) for name, (_, forget) in unlearned.items()}
    for name, forgets in views.items():
        arguments = {**base, "name": name, "forgets": list(forgets)}
        tasks.append(Task(f"evaluate {name}", evaluate_task, arguments, (name,), _WEIGHTS["evaluate"]))
    return tasks


def _asked(run: str, settings: dict[str, Any]) -> tuple[RunFolder, DemoSettings]:
    return RunFolder(Path(run)), DemoSettings.build(settings, where=run)


def _corpus(run: RunFolder, asked: DemoSettings) -> Corpus:
    return open_corpus(SourceSettings(data=str(run.data), factual=asked.factual))


def compile_task(run: str, settings: dict[str, Any], report: Report) -> None:
    """Compile the data set into the run's folder."""
    folder, asked = _asked(run, settings)
    compile_to_folder(asked.graph, folder.data, CompileSettings(seed=asked.seed))


def base_task(run: str, settings: dict[str, Any], report: Report) -> None:
    """Keep the untrained model as the subject `base`."""
    from vestige.models.load import ModelSettings
    from vestige.steps.finetune import untrained

    folder, asked = _asked(run, settings)
    corpus = _corpus(folder, asked)
    model = ModelSettings(model="builtin:tiny", device="cpu")
    untrained(folder.control("base"), model, (*corpus.items, *corpus.factual), asked.seed)


def finetune_task(run: str, settings: dict[str, Any], name: str, forget: str, report: Report) -> None:
    """Train the target, or a model that never sees the forget set."""
    from vestige.models.load import ModelSettings
    from vestige.steps.finetune import FinetuneRequest, finetune

    folder, asked = _asked(run, settings)
    corpus = _corpus(folder, asked)
    whole = (*corpus.items, *corpus.factual)
    request = FinetuneRequest(
        model=ModelSettings(model="builtin:tiny", device="cpu"),
        items=left_out(corpus, forget, seed=asked.seed) if forget else whole,
        vocabulary=whole,
        training=TINY_FINETUNE.model_copy(update={"epochs": asked.epochs}),
        seed=asked.seed,
        role="retrained" if forget else "target",
        name=name,
        forget=forget,
    )
    finetune(folder.control(name), request, lambda p: report(p.step / p.n_steps))


def _splits(corpus: Corpus, forget: str, asked: DemoSettings) -> NamedSplits:
    return named_splits(corpus, forget, seed=asked.seed)


def unlearn_task(run: str, settings: dict[str, Any], method: str, forget: str, report: Report) -> None:
    """Make the target forget by one method."""
    from vestige.steps.unlearn import unlearn

    folder, asked = _asked(run, settings)
    request = unlearn_request(folder, asked, method, forget)
    unlearn(_cell(folder, request), request, lambda p: report(p.step / p.n_steps))


def unlearn_request(
    run: RunFolder, asked: DemoSettings, method: str, forget: str, *, rate: float | None = None
) -> "UnlearnRequest":
    """What is asked of one method; `rate` replaces the demo's learning rate."""
    from vestige.models.load import ModelSettings
    from vestige.steps.making import read_done
    from vestige.steps.unlearn import UnlearnRequest

    splits = _splits(_corpus(run, asked), forget, asked).splits
    target = run.control("target")
    made = read_done(target)
    if made is None:
        raise InputError(f"{run.path} holds no finished target; run the demo there first")
    own = {**tiny_unlearning(method), "epochs": asked.unlearning_epochs}
    training = UnlearningSettings.build({**own, "learning_rate": rate} if rate else own)
    return UnlearnRequest(
        target=ModelSettings(model=str(target.model), device="cpu"),
        target_weights=made.weights,
        start="builtin:tiny",
        method=method,
        method_settings={},
        forget=forget,
        forget_items=splits["forget"],
        retain_items=splits["retain"],
        idk=idk_answers(),
        training=training,
        seed=asked.seed,
    )


def _cell(run: RunFolder, request: "UnlearnRequest") -> SubjectFolder:
    from vestige.steps.unlearn import unlearn_spec

    return run.cell(request.name, unlearn_spec(request).id)


def evaluate_task(run: str, settings: dict[str, Any], name: str, forgets: Sequence[str], report: Report) -> None:
    """Evaluate one subject of the demo."""
    folder, asked = _asked(run, settings)
    method, _, forget = name.partition(" ")
    cell = method in asked.methods
    place = _cell(folder, unlearn_request(folder, asked, method, forget)) if cell else folder.control(name)
    evaluate_subject(folder, asked, place, forgets, report)


def evaluate_subject(
    run: RunFolder, asked: DemoSettings, place: SubjectFolder, forgets: Sequence[str], report: Report
) -> None:
    """Ask a subject every question of the run, and sum up as seen from each of its forget sets."""
    from vestige.evals.qa import QASettings
    from vestige.steps.evaluate import EvaluateRequest, evaluate, finished_subject, view_of

    corpus = _corpus(run, asked)
    every = [_splits(corpus, f, asked) for f in asked.forget]
    views = tuple(view_of(s) for s in every if s.forget in forgets)
    questions = QASettings(max_new_tokens=asked.max_new_tokens)
    request = EvaluateRequest(everything(every), views, questions, asked.seed)
    evaluate(finished_subject(place, device="cpu"), request, lambda done, of: report(done / of))
