"""The demo: PISTOL's sample dataset 1 through the whole pipeline, on the built-in tiny model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vestige.api import requests
from vestige.api.selection import DEMO_RATES, TINY, DemoSettings
from vestige.artifacts.audits import AuditOutcome
from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.auditing.request import AuditedModel, AuditRequest
from vestige.auditing.run import conduct
from vestige.core.errors import InputError, PartialFailure
from vestige.core.files import locked
from vestige.core.ids import changed_keys
from vestige.core.progress import OnShare, Show
from vestige.core.settings import read_settings, write_settings
from vestige.core.text import closest
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


@dataclass(frozen=True)
class DemoEnd:
    """The result of a demo: its audits, the failures by task name, and the number of tasks."""

    outcomes: tuple[AuditOutcome, ...]
    failed: Mapping[str, Exception]
    n_tasks: int


# On the CPU, so that the demo gives the same numbers on machines with a GPU.
_TINY = ModelSettings(model=TINY, device="cpu")
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
