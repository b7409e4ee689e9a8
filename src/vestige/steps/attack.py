"""An attack as a step: one attack on one subject, and the attacked model's answers at each stage.

The model is attacked in memory and never written. Its answers are stored. The attack goes on where a stopped one ended,
and the answers are the same bytes. Bits and steps are recorded for the budget (`attacks.budget`).
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path

from vestige.artifacts.layout import AttackFolder, EvalFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import Summary, read_records
from vestige.attacks.gcg import PromptSettings, asked_with_prompt
from vestige.attacks.in_context import asked_with_facts
from vestige.attacks.planning import Attack, Ended, Splits, attack_of
from vestige.core.errors import InputError, NotFinite
from vestige.core.files import begun, read_json, refuse_links, write_json, write_jsonl
from vestige.core.ids import content_id
from vestige.core.items import Item, ItemTuple, items_digest, questions_digest
from vestige.core.progress import OnShare
from vestige.core.store import SCHEMA, read_sealed, write_sealed
from vestige.core.text import Fields, NumberByName, TextByName
from vestige.data.dataset import item_row
from vestige.evals.base import View
from vestige.models.load import LoadedModel, finite_logits
from vestige.models.scoring import score_answers
from vestige.steps.evaluate import (
    EvaluateRequest,
    Subject,
    announce,
    check_known,
    evaluate_together,
    loaded_subject,
    summary_of,
)
from vestige.steps.making import Made
from vestige.steps.prompt_attack import AttackRequest as AttackRequest
from vestige.steps.prompt_attack import prompt_found, search_identity
from vestige.steps.stored_answers import entry_key, keep, restore
from vestige.training.checkpoints import Checkpoints

VERSION = 1
"""Raised when the same identity would come out as other answers or other bits."""

_TUNED = "the attack's own training broke it: lower its learning rate (rate)"


def run_attack(subject: Subject, request: AttackRequest, on_progress: OnShare = lambda _: None) -> AttackFolder:
    """The attack's folder with the answers of every point. Does nothing when it is done.

    Two attacks with one identity (`attack_identity`) come out as the same bytes, however often they were stopped.
    """
    plan = request.attack.plan
    identity, kind = attack_identity(subject, request), attack_of(plan)
    folder = subject.folder.attack(plan.name, content_id(identity, length=12))
    announced = [folder.spec.name, folder.shown.name, folder.asked.name]
    refuse_links(subject.folder.path)
    with begun(folder.lock, announced):
        key = ""
        if subject.stored_for and not subject.verify:
            key = entry_key("attack", [plan.name, identity], subject.stored_for)
        if not folder.done.exists() and not (key and restore(folder.path, key)):
            watch = Stopwatch()
            work = _Work(subject, request, folder, content_id(identity, length=64), on_progress)
            write_json(folder.spec, {"schema": SCHEMA, "name": plan.name, **identity})
            write_jsonl(folder.shown, map(item_row, request.attack.shown))
            write_json(folder.asked, {item.id: original for original, item in work.asked.items()})
            loaded = loaded_subject(subject)
            try:
                with finite_logits(loaded, lambda: _TUNED if work.tuned else ""):
                    ended = kind.run(work, loaded)
            except NotFinite:
                if work.tuned:
                    # Training may have come late to what breaks the model as it was given: then no rate is to blame.
                    unattacked = loaded_subject(subject)
                    items = (*request.attack.shown, *work.asked.values())
                    texts = [unattacked.prompter.encode(i.question, i.answer) for i in items]
                    with finite_logits(unattacked):
                        score_answers(unattacked.model, texts)
                raise
            for model in (subject, request.guide):
                if model is not None:
                    announce(model)
            write_provenance(folder.provenance, watch, **loaded.provenance())
            # Not the log, which holds times; of an evaluation the file that has the checksums of its answers.
            sealed = [p for p in (folder.spec, folder.shown, folder.asked, folder.prompt) if p.exists()]
            for places in work.places.values():
                sealed += [EvalFolder(folder.path / path).collected for path in places.values()]
            write_sealed(folder.done, {**asdict(ended), "evaluations": work.places}, sealed)
            if key:
                keep(folder.path, key, _whole(folder))
        else:
            check_known(subject)
        # Also where all was done already: a kill may have come between the seal and this.
        Checkpoints(folder.checkpoints).clear()
    return folder


def _whole(folder: AttackFolder) -> list[Path]:
    """The files that an attack leaves, except for locks and checkpoints."""
    files = (path for path in sorted(folder.path.rglob("*")) if path.is_file())
    whole = [path for path in files if path.name != folder.lock.name and folder.checkpoints not in path.parents]
    return sorted(whole, key=lambda path: path == folder.done)


def attack_identity(subject: Subject, request: AttackRequest) -> Fields:
    """Return everything that can change the attacked model's answers."""
    attack, plan = request.attack, request.attack.plan
    facts = {}
    for item, shown in attack.facts.items():
        facts[item] = [fact.id for fact in shown]
    if not attack.tested:
        raise InputError(f"the attack {plan.name!r} asks nothing. Give it forget items to ask")
    kind = attack_of(plan)
    if kind.beside and "reversed" in request.evals:
        raise InputError(
            f"the attack {plan.name!r} puts a text next to the question, and the evaluation reversed offers questions "
            "as options. Leave reversed out"
        )
    identity = {
        "version": VERSION,
        "kind": plan.kind,
        "material": plan.material,
        "settings": plan.settings,
        "points": list(plan.points),
        "model": subject.made.digest.id,
        "reads": subject.made.digest.reads,
        "dtype": subject.spec.settings.get("dtype", "float32"),
        "shown": items_digest(attack.shown),
        "facts": content_id(facts),
        "tested": questions_digest(attack.tested),
        "drawn_from": content_id({name: questions_digest(items) for name, items in attack.splits.items()}),
        "evals": {n: [s.collect_version, s.identity()] for n, s in request.evals.items()},
        "forget": request.forget,
        "seed": request.seed,
    }
    if kind.version > 1:
        identity["kind_version"] = kind.version
    if isinstance(kind, PromptSettings):
        identity |= search_identity(request, subject)
    return identity


def attack_evaluations(folder: AttackFolder, request: AttackRequest) -> dict[tuple[str, str], EvalFolder]:
    """Return the paths of a finished attack's answers, by stage and evaluation."""
    places = _done(folder)["evaluations"]
    evaluations = {}
    for point, name in product(request.attack.plan.points, request.evals):
        evaluations[point, name] = EvalFolder(folder.path / places[point][name])
    return evaluations


def attack_summaries(
    subject: Subject, folder: AttackFolder, request: AttackRequest
) -> dict[tuple[str, str], tuple[EvalFolder, Summary]]:
    """Return the paths and summaries of a finished attack's answers, by stage and evaluation."""
    originals = read_json(folder.asked)
    summaries = {}
    for (point, name), evaluation in attack_evaluations(folder, request).items():
        asked_id = {originals[r["item"]]: r["item"] for r in read_records(evaluation)}
        splits = {}
        for split, items in _splits(request.attack).items():
            ids = tuple(asked_id[i.id] for i in items if i.id in asked_id)
            if ids:
                splits[split] = ids
        view = View(request.forget, splits, {})
        summaries[point, name] = evaluation, summary_of(evaluation, name, subject.spec, view, request.seed)
    return summaries


def read_spent(folder: AttackFolder) -> dict[str, NumberByName]:
    """`bounds_bits`: upper bounds in bits on the information added, by name. `spent`: steps, items and tokens shown."""
    done = _done(folder)
    return {"bounds_bits": done["bounds_bits"], "spent": done["spent"]}


def _done(folder: AttackFolder) -> Fields:
    if not folder.done.exists():
        raise InputError(f"the attack in {folder.path} is not done. Run the same command again")
    return read_sealed(folder.done, "bounds_bits", "spent", "evaluations")


def asked_by(attack: Attack) -> dict[str, Item]:
    """Return, by the id of each tested item, the item in its attacked form."""
    if attack.facts:
        return asked_with_facts(attack.tested, attack.facts)
    return {i.id: i for i in attack.tested}


def as_asked(attack: Attack, versions: Mapping[str, Item], forget: str) -> tuple[ItemTuple, View]:
    """Return all items of the attack, tested ones in their attacked form, and the forget set's view."""
    by_id: dict[str, Item] = {}
    splits = {}
    for name, items in _splits(attack).items():
        now = {version.id: version for version in (versions.get(item.id, item) for item in items)}
        by_id |= now
        splits[name] = tuple(now)
    return tuple(by_id.values()), View(forget, splits, {})


def _splits(attack: Attack) -> Splits:
    return attack.splits or {"forget": attack.tested}


@dataclass
class _Work:
    """One attack at work. `id` is the content id of its identity. `places` grows with each evaluation.

    `tuned` is whether it has changed the model's weights by training.
    """

    subject: Subject
    request: AttackRequest
    folder: AttackFolder
    id: str
    on_progress: OnShare
    places: dict[str, TextByName] = field(default_factory=dict)
    tuned: bool = False

    @property
    def attack(self) -> Attack:
        """The settings of the attack."""
        return self.request.attack

    @property
    def seed(self) -> int:
        """The seed of its draws."""
        return self.request.seed

    @property
    def asked(self) -> dict[str, Item]:
        """Return, by the id of each tested item, the item in its attacked form."""
        return asked_by(self.request.attack)

    def ask(
        self, point: str, load: Callable[[], LoadedModel], on_share: OnShare, asked_at: Mapping[str, Item] | None = None
    ) -> None:
        """Put every evaluation's questions about the tested items to the attacked model.

        `asked_at` has the attacked items of this stage, if stages differ.
        """
        versions = self.asked if asked_at is None else asked_at
        items, view = as_asked(self.request.attack, versions, self.request.forget)
        only = frozenset(i.id for i in versions.values())
        # Under a digest of its own, so that no answer of it is taken for the subject's.
        digest = replace(self.subject.made.digest, weights=content_id({"attack": self.id, "point": point}, length=64))
        saved = Made(digest, self.subject.made.steps, f"attacked: {point}")
        attacked = Subject(self.folder.point(point), self.subject.spec, saved, load, attacked=True)
        evals, seed = self.request.evals, self.request.seed
        requests = [EvaluateRequest(items, (view,), s, seed, only, summed=False) for s in evals.values()]
        evaluations = evaluate_together(attacked, requests, lambda done, of: on_share(done / of))
        self.places[point] = {
            name: str(folder.path.relative_to(self.folder.path))
            for name, folder in zip(evals, evaluations, strict=True)
        }
        on_share(1.0)

    def searched(self, loaded: LoadedModel, most_steps: int) -> Ended:
        """Search for a prompt, and ask with it at every point. Half of the way is the search and half is asking."""
        attack, tell = self.attack, self.on_progress
        prompt = prompt_found(self.request, self.folder, loaded, lambda share: tell(share / 2))
        points = attack.plan.points
        versions = {p: asked_with_prompt(attack.tested, prompt.points[p].text, prompt.placement) for p in points}
        # The item as it is asked at each point, for the item that it stands for.
        originals: TextByName = {}
        for asked_at in versions.values():
            originals |= {item.id: original for original, item in asked_at.items()}
        write_json(self.folder.asked, originals)
        for number, point in enumerate(points):

            def on_share(share: float, number: int = number) -> None:
                tell(0.5 + (number + share) / (2 * len(points)))

            self.ask(point, lambda: loaded, on_share, versions[point])
        granted = {"steps": most_steps, "items_shown": attack.plan.n_shown}
        return Ended(prompt.bounds_bits, granted, prompt.spent)
