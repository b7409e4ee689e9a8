"""The demo: PISTOL's sample dataset 1 through the whole pipeline, on the built-in tiny model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field, PositiveInt

from vestige.api import requests, selection
from vestige.artifacts.audits import AuditOutcome
from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.auditing.request import AuditedModel, AuditRequest
from vestige.auditing.run import conduct
from vestige.auditing.settings import AuditSettings, Bits, Material
from vestige.core.errors import InputError, PartialFailure
from vestige.core.files import locked
from vestige.core.ids import changed_keys
from vestige.core.items import FormName
from vestige.core.progress import OnShare, Show
from vestige.core.settings import Settings, read_settings, write_settings
from vestige.core.text import TextTuple, closest
from vestige.data.corpus import Corpus, SourceSettings, everything, named_splits, open_corpus
from vestige.data.dataset import compile_to_folder
from vestige.data.findings import SoundnessSettings
from vestige.data.graph import load_graph, select_edges
from vestige.data.soundness import check_data
from vestige.evals.base import view_of
from vestige.evals.qa import QASettings
from vestige.models import Reading
from vestige.models.load import ModelSettings
from vestige.steps.evaluate import EvaluateRequest, evaluate, finished_subject
from vestige.steps.finetune import finetune, untrained
from vestige.steps.runner import Task, kept_workers, run_tasks
from vestige.steps.unlearn import UnlearnRequest, unlearn, unlearn_spec
from vestige.training.settings import TrainingSettings, UnlearningSettings

DEMO_RATES = {"ga": 5e-5, "gd": 5e-5, "kl": 5e-5, "idk_gd": 1e-4, "dpo": 2e-4}
"""The learning rates for the demo's three contracts and 6 epochs."""

PISTOL_METHODS = ("ga", "gd", "kl", "dpo")
"""The four methods that PISTOL compares (2406.16810, section 5.3)."""

TINY_AUDIT = AuditSettings(
    evals=("qa", "choices", "freeform", "memory", "inside"),
    # Prefilled answers recover 7 % of the positive control's knowledge, and by luck up to 25 % for retrained models:
    # five controls cannot bound that, so the form would only leave "not recoverable" open.
    forms=("plain", "sampled"),
    relearn=("retain", "forget_part"),
    relearn_items=(30,),
    relearn_epochs=1,
    relearn_rate=2e-4,
    relearn_rank=0,
    relearn_rates=(),
    quantize=(4,),
    ablate=(),
    in_context=(),
    options=6,
    membership=("loss", "min_k", "zlib"),
    max_new_tokens=32,
)
"""The demo's audit of the tiny model: relearning trains all weights, for one epoch.

At this rate relearning does not damage the target's knowledge: of the knowledge that the positive control hides, 30
items of the forget set recover 0.70 [0.52, 0.93] in bits (at 5e-4 and 6 epochs 0.42, and at most 0.55 by retained
items).

Left out for time: relearning on related and unrelated items and on the forget set itself, facts before the question,
rounding to 8 bits, which changes nothing, and the reversed question. Useless here: other wordings, examples before the
question and statements with a gap, which the target was not trained to read, and the membership scores min_k_plus and
reference, which separate five controls so badly that no model could match them.
"""


class DemoSettings(Settings):
    """The data, forget sets, methods and audits of the demo.

    Each control is trained from its own seed. The names from `evals` on are audit settings. Without evals there is no
    audit.
    """

    graph: str = "sample1"
    """The graph to compile."""
    seed: int = 0
    """Seed of everything random."""
    forget: TextTuple = Field(default=("edge:A_B,edge:A_C,edge:A_C2,edge:B_D,edge:B_D2",), min_length=1)
    """Forget sets."""
    methods: TextTuple = Field(default=PISTOL_METHODS, min_length=1)
    """Methods to compare."""
    factual: bool = False
    """Add the built-in factual questions."""
    epochs: PositiveInt = selection.TINY_FINETUNE.epochs
    """Epochs of fine-tuning."""
    controls: PositiveInt = 5
    """Models trained without each forget set."""
    reference: bool = True
    """Judge one more retrained model as if it had been unlearned: every claim should pass."""
    unlearning_epochs: PositiveInt = 6
    """Epochs of unlearning."""
    max_new_tokens: PositiveInt = TINY_AUDIT.max_new_tokens
    """Longest reply, in tokens."""
    evals: TextTuple = TINY_AUDIT.evals
    """Evaluations to run on every model."""
    forms: tuple[FormName, ...] = TINY_AUDIT.forms
    """Forms of free questions."""
    relearn: tuple[Material, ...] = TINY_AUDIT.relearn
    """The material of relearning."""
    relearn_items: tuple[PositiveInt, ...] = TINY_AUDIT.relearn_items
    """The number of items."""
    relearn_epochs: PositiveInt = TINY_AUDIT.relearn_epochs
    """Epochs of relearning."""
    quantize: tuple[Bits, ...] = TINY_AUDIT.quantize
    """The number of bits per weight after rounding. nf4 has its own 16 levels."""
    in_context: tuple[PositiveInt, ...] = TINY_AUDIT.in_context
    """The number of retained items to show before the question."""

    def audit(self) -> AuditSettings:
        """Return the audit's settings: the tiny model's, with the demo's changes."""
        changes = {name: value for name, value in self if name in AuditSettings.model_fields}
        return AuditSettings.build({**TINY_AUDIT.model_dump(), **changes})


@dataclass(frozen=True)
class DemoEnd:
    """The result of a demo: its audits, the failures by task name, and the number of tasks."""

    outcomes: tuple[AuditOutcome, ...]
    failed: Mapping[str, Exception]
    n_tasks: int


# On the CPU, so that the demo gives the same numbers on machines with a GPU.
_TINY = ModelSettings(model=selection.TINY, device="cpu")
_REFERENCE = "retrained"
"""The audit's name for the model that never saw the forget set and is judged as if it had been unlearned."""


# CPU seconds of each kind of task on the machine of development: weights for the remaining time.
_TRAINING_SHARE = 0.6
"""The share of the demo's processor seconds before the audit."""
_WEIGHTS = {"compile": 1.0, "base": 2.0, "finetune": 120.0, "unlearn": 6.0, "evaluate": 5.0}


@dataclass(frozen=True)
class Demo:
    """A demo in a run's folder. Its tasks are methods, which take both with them into other processes."""

    run: RunFolder
    settings: DemoSettings

    def check(self) -> None:
        """Reject settings that would fail only after the target's training, and a folder with other settings."""
        graph = load_graph(self.settings.graph, seed=self.settings.seed)
        for forget in self.settings.forget:
            select_edges(graph, forget, seed=0)
        for method in self.settings.methods:
            if method not in DEMO_RATES:
                raise InputError(
                    f"the demo has no learning rate for the method {method!r}. {closest(method, list(DEMO_RATES))}"
                )
        stored = read_settings(self.run.settings) or self.settings.identity()
        if changed := changed_keys(self.settings.identity(), stored):
            raise InputError(
                f"{self.run.path} holds a run with other settings ({', '.join(changed)}). Choose another folder or "
                "start over with --fresh"
            )

    def retrained(self, forget: str) -> list[str]:
        """Return the models that never see the forget set: the controls, and after them the judged one, if any.

        The first has the run's own seed, each of the others the next.
        """
        first, number = self.settings.seed, self.settings.controls + self.settings.reference
        return [f"retrained {forget}", *(f"retrained {forget} seed {first + k}" for k in range(1, number))]

    def tasks(self) -> list[Task]:
        """The plan: controls first, since the rest waits for the target."""
        settings = self.settings
        tasks = [Task("compile", self.compile, {}, weight=_WEIGHTS["compile"])]
        views = {"base": settings.forget, "target": settings.forget}
        trainings = {"target": ("", settings.seed)}
        for forget in settings.forget:
            for k, name in enumerate(self.retrained(forget)):
                trainings[name] = forget, settings.seed + k
                views[name] = (forget,)
        for name, (forget, seed) in trainings.items():
            arguments = {"name": name, "forget": forget, "seed": seed}
            tasks.append(Task(name, self.finetune, arguments, ("compile",), _WEIGHTS["finetune"]))
        tasks.append(Task("base", self.base, {}, ("compile",), _WEIGHTS["base"]))
        for forget in settings.forget:
            for method in settings.methods:
                name, arguments = f"{method} {forget}", {"method": method, "forget": forget}
                tasks.append(Task(name, self.unlearn, arguments, ("target",), _WEIGHTS["unlearn"]))
                views[name] = (forget,)
        for name, forgets in views.items():
            arguments = {"name": name, "forgets": forgets}
            tasks.append(Task(f"evaluate {name}", self.evaluate, arguments, (name,), _WEIGHTS["evaluate"]))
        return tasks

    @property
    def corpus(self) -> Corpus:
        """The compiled data."""
        factual = "builtin" if self.settings.factual else None
        return open_corpus(SourceSettings(data=str(self.run.data), factual=factual))

    def compile(self, report: OnShare) -> None:
        """Compile the data set into the run's folder."""
        compile_to_folder(self.settings.graph, self.run.data, seed=self.settings.seed)

    def base(self, report: OnShare) -> None:
        """Keep the untrained model as the subject `base`."""
        corpus = self.corpus
        untrained(self.run.control("base"), _TINY, (*corpus.items, *corpus.factual), self.settings.seed)

    def finetune(self, name: str, forget: str, seed: int, report: OnShare) -> None:
        """Train the target, or a model that never sees the forget set."""
        corpus = self.corpus
        request = requests.finetuning(
            _TINY,
            corpus,
            named_splits(corpus, forget) if forget else None,
            TrainingSettings(epochs=self.settings.epochs),
            name=name,
            seed=seed,
            factual=self.settings.factual,
        )
        finetune(self.run.control(name), request, lambda p: report(p.step / p.n_steps))

    def unlearning(self, method: str, forget: str, *, rate: float | None = None) -> UnlearnRequest:
        """Return one method's unlearning request. `rate` replaces the demo's learning rate."""
        target = ModelSettings(model=str(self.run.control("target").model), device="cpu")
        training = UnlearningSettings(epochs=self.settings.unlearning_epochs, learning_rate=rate or DEMO_RATES[method])
        corpus = self.corpus
        splits = named_splits(corpus, forget)
        return requests.unlearning(target, corpus, splits, method, training, seed=self.settings.seed)

    def cell(self, request: UnlearnRequest) -> SubjectFolder:
        """The folder of an unlearned model."""
        return self.run.cell(request.name, unlearn_spec(request).id)

    def unlearn(self, method: str, forget: str, report: OnShare) -> None:
        """Make the target forget by one method."""
        request = self.unlearning(method, forget)
        unlearn(self.cell(request), request, lambda p: report(p.step / p.n_steps))

    def evaluate(self, name: str, forgets: Sequence[str], report: OnShare) -> None:
        """Evaluate one subject of the demo."""
        method, _, forget = name.partition(" ")
        unlearned = method in self.settings.methods
        folder = self.cell(self.unlearning(method, forget)) if unlearned else self.run.control(name)
        self.evaluate_subject(folder, forgets, report)

    def evaluate_subject(self, folder: SubjectFolder, forgets: Sequence[str], report: OnShare) -> None:
        """Ask a subject every question of the run, and sum up as seen from each of its forget sets."""
        corpus = self.corpus
        every = [named_splits(corpus, f) for f in self.settings.forget]
        views = tuple(view_of(s) for s in every if s.forget in forgets)
        questions = QASettings(max_new_tokens=self.settings.max_new_tokens)
        request = EvaluateRequest(everything(every), views, questions, self.settings.seed)
        evaluate(finished_subject(folder, device="cpu"), request, lambda done, of: report(done / of))

    def audit(self, forget: str) -> AuditRequest:
        """The audit of one forget set. The target has to be there."""
        settings, names = self.settings, self.retrained(forget)
        models = [AuditedModel("target", "target", str(self.run.control("target").path))]
        for n, name in enumerate(names):
            path = str(self.run.control(name).path)
            # One model after the controls is judged as if it had been unlearned: every claim should pass.
            judged = n == settings.controls
            models.append(
                AuditedModel(_REFERENCE, "unlearned", path) if judged else AuditedModel(name, "retrained", path)
            )
        for method in settings.methods:
            models.append(AuditedModel(method, "unlearned", str(self.cell(self.unlearning(method, forget)).path)))
        corpus = self.corpus
        splits = named_splits(corpus, forget)
        alone = (
            f"the demo forgets {forget} alone, by one training of each method: other contracts, or another seed, can "
            "come out otherwise"
        )
        return AuditRequest(
            tuple(models),
            splits,
            settings.audit(),
            settings.seed,
            read=Reading(device="cpu"),
            untested=(alone,) if len(settings.forget) == 1 else (),
        )


def run_demo(
    run: RunFolder, settings: DemoSettings, *, workers: int, show: Show = lambda _share, _note: None
) -> DemoEnd:
    """Fill the run's folder with everything but the report; resumes.

    `show` receives the finished share and the current task.
    """
    demo = Demo(run, settings)
    demo.check()
    with locked(run.lock), kept_workers():
        # The check is repeated under the lock.
        demo.check()
        watch = Stopwatch()
        write_settings(run.settings, settings.identity())
        tasks = demo.tasks()
        training = _TRAINING_SHARE if settings.evals else 1.0
        failed = run_tasks(tasks, workers=workers, show=lambda share, note: show(training * share, note))
        done, n_tasks = [], len(tasks)
        audited = settings.forget if settings.evals and not {"compile", "target"} & set(failed) else ()
        for number, forget in enumerate(audited):
            each = (1 - training) / len(audited)

            def tell(share: float, note: str, before: float = training + number * each, each: float = each) -> None:
                show(before + each * share, note)

            try:
                request = demo.audit(forget)
                audit = request.settings
                # The questions may reveal as much as an audit allows.
                checked = SoundnessSettings(margin=audit.delta_wide, options=audit.options)
                check_data(run, request.splits, checked, seed=request.seed)
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
