"""The demo: PISTOL's sample dataset 1 through the whole pipeline, on the built-in tiny model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field, PositiveInt

from vestige.artifacts.audits import AuditOutcome
from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.auditing.request import AuditedModel, AuditRequest
from vestige.auditing.run import conduct
from vestige.auditing.settings import AuditSettings, Bits, Material
from vestige.core.errors import InputError, PartialFailure
from vestige.core.files import locked, write_text
from vestige.core.ids import changed_keys
from vestige.core.items import FormName
from vestige.core.settings import Settings, read_toml, to_toml
from vestige.core.text import closest
from vestige.data.alternatives import with_alternatives
from vestige.data.corpus import Corpus, SourceSettings, everything, named_splits, open_corpus
from vestige.data.findings import SoundnessSettings
from vestige.data.folder import CompileSettings, compile_to_folder
from vestige.data.graph import load_graph
from vestige.data.selectors import select_edges
from vestige.evals.qa import QASettings
from vestige.models.load import ModelSettings
from vestige.requests import TINY_FINETUNE, tiny_unlearning
from vestige.steps.check_data import CheckRequest, check_data
from vestige.steps.evaluate import EvaluateRequest, evaluate, finished_subject, view_of
from vestige.steps.finetune import finetune, finetune_request, untrained
from vestige.steps.runner import Report, State, Task, run_tasks
from vestige.steps.unlearn import UnlearnRequest, unlearn, unlearn_request, unlearn_spec
from vestige.studies.presets import DEMO_RATES, PISTOL_METHODS, TINY_AUDIT
from vestige.training.settings import UnlearningSettings


class DemoSettings(Settings):
    """What the demo compiles, forgets, compares and audits.

    Each control is trained from its own seed. The names from `evals` on are those of the audit's settings; without
    evals there is no audit.
    """

    graph: str = "sample1"
    """The graph to compile."""
    seed: int = 0
    """Seed of everything random."""
    forget: tuple[str, ...] = Field(default=("edge:A_B,edge:A_C,edge:A_C2,edge:B_D,edge:B_D2",), min_length=1)
    """Forget sets."""
    methods: tuple[str, ...] = Field(default=PISTOL_METHODS, min_length=1)
    """Methods to compare."""
    factual: bool = False
    """Add the built-in factual questions."""
    epochs: PositiveInt = TINY_FINETUNE.epochs
    """Epochs of fine-tuning."""
    controls: PositiveInt = 5
    """Models trained without each forget set."""
    reference: bool = True
    """Judge one more such model as if it had been unlearned: every claim should hold."""
    unlearning_epochs: PositiveInt = 6
    """Epochs of unlearning."""
    max_new_tokens: PositiveInt = TINY_AUDIT.max_new_tokens
    """Longest reply, in tokens."""
    evals: tuple[str, ...] = TINY_AUDIT.evals
    """Evaluations to run on every model."""
    forms: tuple[FormName, ...] = TINY_AUDIT.forms
    """Forms of free questions."""
    relearn: tuple[Material, ...] = TINY_AUDIT.relearn
    """What models are tuned on again."""
    relearn_items: tuple[PositiveInt, ...] = TINY_AUDIT.relearn_items
    """How many items of it."""
    relearn_epochs: PositiveInt = TINY_AUDIT.relearn_epochs
    """Epochs of relearning."""
    quantize: tuple[Bits, ...] = TINY_AUDIT.quantize
    """Bits of a weight to round to; nf4 has 16 levels of its own."""
    in_context: tuple[PositiveInt, ...] = TINY_AUDIT.in_context
    """How many retained items to show before the question."""

    def audit(self) -> AuditSettings:
        """The settings of the audit: those of the tiny model, with what was set here."""
        changes = {name: value for name, value in self if name in AuditSettings.model_fields}
        return AuditSettings.build({**TINY_AUDIT.model_dump(), **changes})


@dataclass(frozen=True)
class DemoEnd:
    """What became of a demo: the audits that were judged, the failures by task name, how many tasks there were."""

    outcomes: tuple[AuditOutcome, ...]
    failed: Mapping[str, Exception]
    n_tasks: int


# On the processor, so that the demo comes to the same numbers on machines with a card.
_TINY = ModelSettings(model="builtin:tiny", device="cpu")
_REFERENCE = "retrained"
"""The name in the audit of the model that never saw the forget set and is judged as if it had been unlearned."""


# Processor seconds of each kind of task on the machine that the demo was written on: weights for the time left.
_TRAINING_SHARE = 0.6
"""Of the demo's processor seconds, what goes before the audit."""
_WEIGHTS = {"compile": 1.0, "base": 2.0, "finetune": 120.0, "unlearn": 6.0, "evaluate": 5.0}


def run_demo(
    run: RunFolder,
    settings: DemoSettings,
    *,
    workers: int,
    show: Callable[[float, str], None] = lambda _share, _note: None,
) -> DemoEnd:
    """Fill the run's folder with everything but the report; resumes. `show` is told the share done and what runs."""
    _check(settings)
    with locked(run.lock):
        same_run(run, settings)
        watch = Stopwatch()
        write_text(run.settings, to_toml(settings.identity()))
        tasks = demo_tasks(run, settings)
        training = _TRAINING_SHARE if settings.evals else 1.0
        failed = run_tasks(tasks, workers=workers, show=lambda s: show(training * s.share, s.at_work))
        done, n_tasks = [], len(tasks)
        audited = settings.forget if settings.evals and not {"compile", "target"} & set(failed) else ()
        for number, forget in enumerate(audited):
            each = (1 - training) / len(audited)

            def tell(state: State, before: float = training + number * each, each: float = each) -> None:
                show(before + each * state.share, state.at_work)

            try:
                request = demo_request(run, settings, forget)
                _check_data(run, request)
                result = conduct(run, request, workers=workers, show=tell)
            except PartialFailure as error:
                failed[f"audit {forget}"] = error
                continue
            done.append(result.outcome)
            failed |= result.failed
            n_tasks += result.n_tasks
        if not run.provenance.exists():
            write_provenance(run.provenance, watch, workers=workers)
    return DemoEnd(tuple(done), failed, n_tasks)


def demo_request(run: RunFolder, settings: DemoSettings, forget: str) -> AuditRequest:
    """The audit of one forget set; the target has to be there."""
    controls, judged = _retrained(settings, forget)
    models = [AuditedModel("target", "target", str(run.control("target").path))]
    models += [AuditedModel(name, "retrained", str(run.control(name).path)) for name in controls]
    models += [AuditedModel(_REFERENCE, "unlearned", str(run.control(name).path)) for name in judged]
    for method in settings.methods:
        folder = _cell(run, unlearning_of(run, settings, method, forget))
        models.append(AuditedModel(method, "unlearned", str(folder.path)))
    corpus = _corpus(run, settings)
    splits = named_splits(corpus, forget)
    if "exposure" in settings.evals:
        splits = with_alternatives(corpus, splits)
    return AuditRequest(
        tuple(models), splits, settings.audit(), settings.seed, device="cpu", untested=_for_time(settings)
    )


def _check_data(run: RunFolder, request: AuditRequest) -> None:
    """Check the forget set as it is audited; what its questions give away may be as much as an audit lets pass."""
    audit = request.settings
    settings = SoundnessSettings(margin=audit.delta_wide, options=audit.options)
    check_data(run, CheckRequest(request.splits, settings, request.seed))


def _for_time(settings: DemoSettings) -> tuple[str, ...]:
    """What the demo leaves out so that it ends in minutes, besides what the audit's settings leave out themselves."""
    if len(settings.forget) > 1:
        return ()
    return (
        f"the demo forgets {settings.forget[0]} alone, by one training of each method: other contracts, or another "
        "seed, can come out otherwise",
    )


def _retrained(settings: DemoSettings, forget: str) -> tuple[list[str], list[str]]:
    """The models that never see the forget set, by name: the controls, and the one that is judged if there is one.

    The first has the run's own seed, each of the others the next.
    """
    names = [f"retrained {forget}"]
    names += [f"retrained {forget} seed {settings.seed + k}" for k in range(1, settings.controls + settings.reference)]
    return names[: settings.controls], names[settings.controls :]


def _check(settings: DemoSettings) -> None:
    """Refuse what would fail only after the target has been trained."""
    graph = load_graph(settings.graph, seed=settings.seed)
    for forget in settings.forget:
        select_edges(graph, forget, seed=0)
    for method in settings.methods:
        if method not in DEMO_RATES:
            raise InputError(
                f"the demo has no learning rate for the method {method!r}; {closest(method, list(DEMO_RATES))}"
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
    base = {"run": run, "settings": settings}
    retrained = {
        name: (forget, settings.seed + k)
        for forget in settings.forget
        for k, name in enumerate(name for group in _retrained(settings, forget) for name in group)
    }
    tasks = [Task("compile", compile_task, base, weight=_WEIGHTS["compile"])]
    for name, (forget, seed) in {"target": ("", settings.seed), **retrained}.items():
        arguments = {**base, "name": name, "forget": forget, "seed": seed}
        tasks.append(Task(name, finetune_task, arguments, ("compile",), _WEIGHTS["finetune"]))
    tasks.append(Task("base", base_task, base, ("compile",), _WEIGHTS["base"]))
    unlearned = {f"{method} {forget}": (method, forget) for forget in settings.forget for method in settings.methods}
    for name, (method, forget) in unlearned.items():
        arguments = {**base, "method": method, "forget": forget}
        tasks.append(Task(name, unlearn_task, arguments, ("target",), _WEIGHTS["unlearn"]))
    views = {"base": settings.forget, "target": settings.forget}
    views |= {name: (forget,) for name, (forget, _) in retrained.items()}
    views |= {name: (forget,) for name, (_, forget) in unlearned.items()}
    for name, forgets in views.items():
        arguments = {**base, "name": name, "forgets": list(forgets)}
        tasks.append(Task(f"evaluate {name}", evaluate_task, arguments, (name,), _WEIGHTS["evaluate"]))
    return tasks


def _corpus(run: RunFolder, settings: DemoSettings) -> Corpus:
    return open_corpus(SourceSettings(data=str(run.data), factual="builtin" if settings.factual else None))


def compile_task(run: RunFolder, settings: DemoSettings, report: Report) -> None:
    """Compile the data set into the run's folder."""
    compile_to_folder(settings.graph, run.data, CompileSettings(seed=settings.seed))


def base_task(run: RunFolder, settings: DemoSettings, report: Report) -> None:
    """Keep the untrained model as the subject `base`."""
    corpus = _corpus(run, settings)
    untrained(run.control("base"), _TINY, (*corpus.items, *corpus.factual), settings.seed)


def finetune_task(
    run: RunFolder, settings: DemoSettings, name: str, forget: str, report: Report, seed: int | None = None
) -> None:
    """Train the target, or a model that never sees the forget set; from the run's seed if no other is given."""
    corpus = _corpus(run, settings)
    request = finetune_request(
        _TINY,
        corpus,
        named_splits(corpus, forget) if forget else None,
        TINY_FINETUNE.model_copy(update={"epochs": settings.epochs}),
        name=name,
        seed=settings.seed if seed is None else seed,
        factual=settings.factual,
    )
    finetune(run.control(name), request, lambda p: report(p.step / p.n_steps))


def unlearn_task(run: RunFolder, settings: DemoSettings, method: str, forget: str, report: Report) -> None:
    """Make the target forget by one method."""
    request = unlearning_of(run, settings, method, forget)
    unlearn(_cell(run, request), request, lambda p: report(p.step / p.n_steps))


def unlearning_of(
    run: RunFolder, settings: DemoSettings, method: str, forget: str, *, rate: float | None = None
) -> UnlearnRequest:
    """What is asked of one method; `rate` replaces the demo's learning rate."""
    target = ModelSettings(model=str(run.control("target").model), device="cpu")
    changes = {"epochs": settings.unlearning_epochs, "learning_rate": rate or DEMO_RATES[method]}
    training = UnlearningSettings.build({**tiny_unlearning(method), **changes})
    splits = named_splits(_corpus(run, settings), forget)
    return unlearn_request(target, splits, method, lambda _: training, seed=settings.seed)


def _cell(run: RunFolder, request: UnlearnRequest) -> SubjectFolder:
    return run.cell(request.name, unlearn_spec(request).id)


def evaluate_task(run: RunFolder, settings: DemoSettings, name: str, forgets: Sequence[str], report: Report) -> None:
    """Evaluate one subject of the demo."""
    method, _, forget = name.partition(" ")
    cell = method in settings.methods
    folder = _cell(run, unlearning_of(run, settings, method, forget)) if cell else run.control(name)
    evaluate_subject(run, settings, folder, forgets, report)


def evaluate_subject(
    run: RunFolder, settings: DemoSettings, folder: SubjectFolder, forgets: Sequence[str], report: Report
) -> None:
    """Ask a subject every question of the run, and sum up as seen from each of its forget sets."""
    corpus = _corpus(run, settings)
    every = [named_splits(corpus, f) for f in settings.forget]
    views = tuple(view_of(s) for s in every if s.forget in forgets)
    questions = QASettings(max_new_tokens=settings.max_new_tokens)
    request = EvaluateRequest(everything(every), views, questions, settings.seed)
    evaluate(finished_subject(folder, device="cpu"), request, lambda done, of: report(done / of))
