"""An attack as a step: one attack on one subject, and what the attacked model answers at each point.

The model is attacked in memory and never written; what it said is kept. The attack goes on where a stopped one ended,
and the answers are the same bytes. Bits and steps are counted for the budget (`attacks.budget`).
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from vestige.artifacts.audits import BESIDE, SEARCHES
from vestige.artifacts.layout import AttackFolder, EvalFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.attacks import Meter
from vestige.attacks.in_context import asked_with_facts
from vestige.attacks.placement import asked_with_prompt
from vestige.attacks.planning import GIVEN, Attack, n_steps
from vestige.attacks.quantize import quantize
from vestige.attacks.relearn import RelearnSettings
from vestige.core.errors import InputError, NotFinite
from vestige.core.files import begun, read_jsonl, write_json, write_jsonl
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.settings import Settings
from vestige.core.store import SCHEMA, read_sealed, write_sealed
from vestige.data.dataset import item_row
from vestige.evals import find_eval
from vestige.evals.base import View
from vestige.metrics.information import code_length, prequential, text_capacity
from vestige.models.load import LoadedModel, finite_logits
from vestige.models.prompts import Encoded
from vestige.models.scoring import score_answers
from vestige.steps.evaluate import EvaluateRequest, Subject, announce, check_known, evaluate_together, loaded_subject
from vestige.steps.finetune import items_digest
from vestige.steps.making import Made
from vestige.steps.prompt_attack import PromptSearch, prompt_found, search_identity
from vestige.training.adapters import add_lora
from vestige.training.batching import FinetunePlan, row_of
from vestige.training.checkpoints import Checkpoints, Finetune, Job
from vestige.training.loop import Hooks, Progress, train

VERSION = 1
"""Raised when the same identity would come out as other answers or other bits."""

_TUNED = "the attack's own training broke it: lower its learning rate (rate)"

OnProgress = Callable[[float], None]


@dataclass(frozen=True)
class AttackRequest:
    """One attack, the evaluations by which the attacked model is asked, the forget set's selector, the seed.

    A search for a prefix has a `guide`, the target, whose words it is to bring. A search may `start` from the prompt of
    an earlier attack, named by its folder, and then answers for what that one spent and saw.
    """

    attack: Attack
    evals: Mapping[str, Settings]
    forget: str
    seed: int
    guide: Subject | None = None
    start: Path | None = None


@dataclass(frozen=True)
class Ended:
    """What an attack leaves besides answers: upper bounds on the bits it carried in, by name, and amounts used."""

    bounds_bits: Mapping[str, float]
    granted: Mapping[str, int]
    spent: Mapping[str, int]
    seen: Mapping[str, float] = field(default_factory=dict)


def run_attack(subject: Subject, request: AttackRequest, on_progress: OnProgress = lambda _: None) -> AttackFolder:
    """The attack's folder with the answers of every point; does nothing when it is done.

    Two attacks with one identity (`attack_identity`) come out as the same bytes, however often they were stopped.
    """
    plan = request.attack.plan
    identity = attack_identity(subject, request)
    folder = subject.folder.attack(plan.name, content_id(identity, length=12))
    announced = [folder.spec.name, folder.shown.name, folder.asked.name]
    with begun(folder.lock, announced):
        if not folder.done.exists():
            watch = Stopwatch()
            work = _Work(subject, request, folder, content_id(identity, length=64), on_progress)
            write_json(folder.spec, {"schema": SCHEMA, "name": plan.name, **identity})
            write_jsonl(folder.shown, map(item_row, request.attack.shown))
            write_json(folder.asked, {asked.id: original for original, asked in work.asked.items()})
            loaded = loaded_subject(subject)
            try:
                with finite_logits(loaded, lambda: _TUNED if work.tuned else ""):
                    ended = _KINDS[plan.kind](work, loaded)
            except NotFinite:
                if work.tuned:
                    _refuse_broken(work)
                raise
            for who in (subject, request.guide):
                if who is not None:
                    announce(who)
            write_provenance(folder.provenance, watch, **loaded.provenance())
            write_sealed(folder.done, {**asdict(ended), "evaluations": work.places}, _left(folder, work.places))
        else:
            check_known(subject)
        Checkpoints(folder.checkpoints).clear()
    return folder


def _refuse_broken(work: "_Work") -> None:
    """Raise NotFinite of the subject as it was given, where no training is to blame."""
    given, attack = loaded_subject(work.subject), work.request.attack
    texts = [given.prompter.encode(i.question, i.answer) for i in (*attack.shown, *work.asked.values())]
    with finite_logits(given):
        score_answers(given.model, texts)


def attack_identity(subject: Subject, request: AttackRequest) -> dict[str, Any]:
    """Everything that can change what the attacked model answers."""
    attack, plan = request.attack, request.attack.plan
    if not attack.tested:
        raise InputError(f"the attack {plan.name!r} asks nothing; give it forget items to ask")
    if plan.kind not in _KINDS:
        raise InputError(f"{plan.kind!r} is no attack that is run: its answers are those of the evaluation freeform")
    if plan.kind in BESIDE and "reversed" in request.evals:
        raise InputError(
            f"the attack {plan.name!r} puts a text beside the question, and the evaluation reversed offers questions "
            "as options, some of which would have it; leave reversed out"
        )
    return {
        "version": VERSION,
        "kind": plan.kind,
        "material": plan.material,
        "settings": plan.settings,
        "points": list(plan.points),
        "model": subject.made.digest.id,
        "reads": subject.made.digest.reads,
        "dtype": subject.spec.settings.get("dtype", "float32"),
        "shown": items_digest(attack.shown),
        "facts": content_id({item: [f.id for f in facts] for item, facts in attack.facts.items()}),
        "tested": _whole(attack.tested),
        "drawn_from": content_id({name: _whole(items) for name, items in attack.splits.items()}),
        "evals": {n: [find_eval(n).COLLECT_VERSION, s.identity()] for n, s in request.evals.items()},
        "forget": request.forget,
        "seed": request.seed,
        **(search_identity(_search(request), subject) if plan.kind in SEARCHES else {}),
    }


def _search(request: AttackRequest) -> PromptSearch:
    return PromptSearch(request.attack, request.seed, request.guide, request.start)


def _whole(items: Sequence[Item]) -> str:
    """Content id of the items with all that an evaluation may ask of them: other wordings, wrong answers, options."""
    return content_id([asdict(i) for i in items], length=32)


def attack_evaluations(folder: AttackFolder, request: AttackRequest) -> dict[tuple[str, str], EvalFolder]:
    """Where the answers lie, by point and evaluation, of an attack that is done."""
    places = _done(folder)["evaluations"]
    return {
        (point, name): EvalFolder(folder.path / places[point][name])
        for point in request.attack.plan.points
        for name in request.evals
    }


def read_spent(folder: AttackFolder) -> dict[str, dict[str, float]]:
    """`bounds_bits`: upper bounds in bits on what was carried in, by name; `spent`: steps, items and tokens shown."""
    done = _done(folder)
    return {"bounds_bits": done["bounds_bits"], "spent": done["spent"]}


def _left(folder: AttackFolder, places: Mapping[str, Mapping[str, str]]) -> list[Path]:
    """The files of an attack that is done, and of each evaluation the one that has the checksums of its answers.

    Not the log, which holds times.
    """
    own = [folder.spec, folder.shown, folder.asked, folder.prompt]
    answers = [EvalFolder(folder.path / path).collected for of_point in places.values() for path in of_point.values()]
    return [path for path in own if path.exists()] + answers


def _done(folder: AttackFolder) -> dict[str, Any]:
    if not folder.done.exists():
        raise InputError(f"the attack in {folder.path} is not done; run the same command again")
    return read_sealed(folder.done, "bounds_bits", "spent", "evaluations")


def asked_by(attack: Attack) -> dict[str, Item]:
    """By the id of each tested item, the item as the attack asks it."""
    return asked_with_facts(attack.tested, attack.facts) if attack.facts else {i.id: i for i in attack.tested}


def as_asked(attack: Attack, asked: Mapping[str, Item], forget: str) -> tuple[tuple[Item, ...], View]:
    """All items of the attack, those in `asked` as they are asked, and the forget set's view of them."""
    splits = attack.splits or {"forget": attack.tested}
    now = {name: [asked.get(i.id, i) for i in items] for name, items in splits.items()}
    items = tuple({i.id: i for of_split in now.values() for i in of_split}.values())
    return items, View(forget, {name: tuple(i.id for i in own) for name, own in now.items()}, {})


@dataclass
class _Work:
    """One attack at work. `id` is the content id of its identity; `places` grows by what has been asked.

    `tuned` is whether it has changed the model's weights by training.
    """

    subject: Subject
    request: AttackRequest
    folder: AttackFolder
    id: str
    on_progress: OnProgress
    places: dict[str, dict[str, str]] = field(default_factory=dict)
    tuned: bool = False

    @property
    def asked(self) -> dict[str, Item]:
        """By the id of each tested item, the item as it is asked."""
        return asked_by(self.request.attack)

    def attacked(self, point: str, load: Callable[[], LoadedModel]) -> Subject:
        """The subject as the attack left it at a point, under a digest of its own."""
        digest = replace(self.subject.made.digest, weights=content_id({"attack": self.id, "point": point}, length=64))
        made = Made(digest, self.subject.made.steps, f"attacked: {point}")
        return Subject(self.folder.point(point), self.subject.spec, made, load, attacked=True)

    def ask(
        self,
        point: str,
        load: Callable[[], LoadedModel],
        on_share: OnProgress,
        asked_at: Mapping[str, Item] | None = None,
    ) -> None:
        """Put every evaluation's questions about the tested items to the attacked model.

        `asked_at` has the items as they are asked at this point, where that differs from point to point.
        """
        asked = self.asked if asked_at is None else asked_at
        items, view = as_asked(self.request.attack, asked, self.request.forget)
        only = frozenset(i.id for i in asked.values())
        who = self.attacked(point, load)
        evals, seed = self.request.evals, self.request.seed
        requests = [EvaluateRequest(items, (view,), settings, seed, name, only) for name, settings in evals.items()]
        found = evaluate_together(who, requests, lambda done, of: on_share(done / of))
        self.places[point] = {
            name: str(place.path.relative_to(self.folder.path)) for name, place in zip(evals, found, strict=True)
        }
        on_share(1.0)


@contextlib.contextmanager
def left_as_it_was(model: PreTrainedModel) -> Iterator[None]:
    """For asking a model in training, which then trains on as if it had not been: in its mode, without gradients."""
    trained = [(p, p.requires_grad) for p in model.parameters()]
    training = model.training
    model.eval()
    try:
        yield
    finally:
        for parameter, flag in trained:
            parameter.requires_grad_(flag)
            parameter.grad = None
        model.train(training)


def _relearn(work: _Work, loaded: LoadedModel) -> Ended:
    plan = work.request.attack.plan
    job = relearning_job(work.request, work.folder, loaded)
    per_epoch, done = job.plan.steps_per_epoch, job.checkpoints.newest() or 0
    work.tuned = done > 0
    shown = [job.rows["train"](n) for n in range(len(work.request.attack.shown))]
    epoch_costs = {"steps": per_epoch, "items_shown": len(shown), "tokens_shown": sum(len(r.ids) for r in shown)}
    meter = Meter({name: amount * len(plan.points) for name, amount in epoch_costs.items()})
    for number, point in enumerate(plan.points):
        meter.charge(epoch_costs)
        until = (number + 1) * per_epoch
        on_share = partial(_tell, work, number + 1, number)
        if done > until:
            # Asked before the training went on from there, so the answers are whole.
            work.ask(point, _gone, on_share)
            continue
        train(loaded.model, job, Hooks(on_step=partial(_tell_step, work, number)), until=until)
        with left_as_it_was(loaded.model):
            # Another with the same weights, so that how it is read is looked up at each point anew, as after a restart.
            work.ask(point, lambda: replace(loaded), on_share)
    bits = prequential_bits(job)
    return Ended({"prequential code length of what was shown": bits}, meter.granted, meter.spent)


def _tell(work: _Work, epochs_trained: float, points_asked: int, share: float = 0.0) -> None:
    """Half of the way is training and half is asking."""
    work.on_progress((epochs_trained + points_asked + share) / (2 * len(work.request.attack.plan.points)))


def _tell_step(work: _Work, points_asked: int, now: Progress) -> None:
    work.tuned = True
    _tell(work, now.step / now.n_steps * len(work.request.attack.plan.points), points_asked)


def _gone() -> LoadedModel:
    raise InputError(
        "answers that an attack had asked for are gone, and its training has gone on since; delete the attack's folder "
        "and run again"
    )


def relearning_job(request: AttackRequest, folder: AttackFolder, loaded: LoadedModel) -> Job:
    """What is trained on what; the model is given its adapters."""
    plan = request.attack.plan
    settings = RelearnSettings.build(plan.settings, where=f"settings of the attack {plan.name}")
    training = settings.training(len(request.attack.shown))
    rows = [row_of(loaded.prompter.encode(i.question, i.answer)) for i in request.attack.shown]
    if training.lora_rank:
        add_lora(loaded.model, training, request.seed)
    return Job(
        objective=Finetune(),
        rows={"train": rows.__getitem__},
        plan=FinetunePlan(len(rows), training.batch_size, request.seed),
        settings=training,
        seed=request.seed,
        checkpoints=Checkpoints(folder.checkpoints),
        log=folder.training_log,
    )


def prequential_bits(job: Job) -> float:
    """-sum log2 p of the shown answers, ends of turns included, each before the model was tuned on it: the first epoch.

    A step's logged loss is the mean over its answers' tokens, in nats, before its update.
    """
    counts = [sum(job.rows["train"](n).n_tokens for n in batch["train"]) for batch in job.plan.epoch(0)]
    losses = [line["loss"] for line in read_jsonl(job.log) if line["epoch"] == 0]
    return prequential([np.array([-loss * n]) for loss, n in zip(losses, counts, strict=True)])


def _quantize(work: _Work, loaded: LoadedModel) -> Ended:
    bits = work.request.attack.plan.settings["bits"]
    found = quantize(loaded.model, bits)
    work.ask(GIVEN, lambda: loaded, work.on_progress)
    seen = {"matrices_rounded": found.n_matrices, "weights_rounded": found.n_weights, "error": found.relative_error}
    return Ended({"nothing shown": 0.0}, _nothing(), _nothing(), seen)


def _nothing() -> dict[str, int]:
    return {"steps": 0, "items_shown": 0, "tokens_shown": 0}


def _in_context(work: _Work, loaded: LoadedModel) -> Ended:
    attack = work.request.attack
    n_facts = sum(len(facts) for facts in attack.facts.values())
    texts = _texts_of_facts(work, loaded)
    granted = {"steps": 0, "items_shown": n_facts, "tokens_shown": sum(t.stop - t.start for t in texts)}
    meter = Meter(granted)
    meter.charge(granted)
    bounds = {
        "tokens x log2(vocabulary) of the text shown": text_capacity(granted["tokens_shown"], len(loaded.tokenizer))
    }
    if loaded.engine.scores:
        scores = loaded.engine.score_answers(texts, whole=True)
        bounds["code length of the text shown, under the subject"] = sum(code_length(np.array(s.logp)) for s in scores)
    work.ask(GIVEN, lambda: loaded, work.on_progress)
    return Ended(bounds, meter.granted, meter.spent)


def _texts_of_facts(work: _Work, loaded: LoadedModel) -> list[Encoded]:
    """Each question's prompt with the place of what the attack put into it: what differs from the plain prompt."""
    prompter, asked, found = loaded.prompter, work.asked, []
    for item in work.request.attack.tested:
        try:
            prompt = prompter.prompt(asked[item.id].question)
        except InputError as error:
            raise InputError(f"the facts do not fit before every question ({error}); show fewer facts") from error
        plain = prompter.prompt(item.question)
        start = _n_alike(prompt, plain)
        behind = _n_alike(prompt[start:][::-1], plain[start:][::-1])
        if start == 0:
            raise InputError("the prompts of this model begin with no token of their own, so facts cannot be measured")
        found.append(Encoded(prompt, start, len(prompt) - behind, len(prompt) - behind))
    return found


def _n_alike(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    """How many tokens two sequences begin with alike."""
    n = 0
    while n < min(len(first), len(second)) and first[n] == second[n]:
        n += 1
    return n


def _tell_half(tell: OnProgress, asked: int, of: int, share: float) -> None:
    tell(0.5 + (asked + share) / (2 * of))


def _searched(work: _Work, loaded: LoadedModel) -> Ended:
    """Half of the way is the search and half is asking."""
    request, plan, tell = work.request, work.request.attack.plan, work.on_progress
    prompt = prompt_found(_search(request), work.folder, loaded, lambda share: tell(share / 2))
    tested = request.attack.tested
    asked = {p: asked_with_prompt(tested, prompt.points[p].text, prompt.placement) for p in plan.points}
    # The item as it is asked at each point, for the item that it stands for.
    write_json(work.folder.asked, {item.id: i for own in asked.values() for i, item in own.items()})
    for number, point in enumerate(plan.points):
        before = partial(_tell_half, tell, number, len(plan.points))
        work.ask(point, lambda: loaded, before, asked[point])
    own = {"steps": n_steps(request.attack), "items_shown": plan.n_shown}
    granted = {name: amount + prompt.earlier.get(name, 0) for name, amount in own.items()}
    return Ended(prompt.bounds_bits, granted, prompt.spent_in_all)


_KINDS: Mapping[str, Callable[[_Work, LoadedModel], Ended]] = {
    "relearn": _relearn,
    "quantize": _quantize,
    "in_context": _in_context,
    "gcg": _searched,
    "prefix": _searched,
}
