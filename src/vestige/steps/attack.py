"""An attack as a step: one attack on one subject, and the attacked model's answers at each stage.

The model is attacked in memory and never written. Its answers are stored. The attack goes on where a stopped one ended,
and the answers are the same bytes. Bits and steps are recorded for the budget (`attacks.budget`).

A searched prompt in an attack's step: the resumable search, the verified replies, bits and costs.

The search works on tokens and reports its success. That is not believed: the prompt's text is put into the questions it
was searched on as it is deployed, the chat is rendered and read anew, and the model replies from a fresh cache.

Lengths in bits are under the attacked model, of the prompt's tokens straight after the head of the chat.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vestige.artifacts.layout import AttackFolder, EvalFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import (
    CODE_BOUND,
    SEEN_BOUND,
    TOKENS_BOUND,
    KeptPrompt,
    PromptPart,
    SampleReply,
    Summary,
    read_prompt,
    read_records,
)
from vestige.attacks.enhanced import find_prefix, samples_of
from vestige.attacks.gcg import FoundPrompt, SearchState, around, find_prompt, inner_texts, target_of
from vestige.attacks.in_context import asked_with_facts
from vestige.attacks.planning import Attack, Ended, Splits, attack_of
from vestige.attacks.prompts import (
    EnhancedSettings,
    GcgSettings,
    Placement,
    PromptSettings,
    asked_with_prompt,
    deployed,
    tokens_at,
)
from vestige.core.errors import InputError, NotFinite
from vestige.core.files import begun, read_json, refuse_links, write_json, write_jsonl
from vestige.core.ids import content_id
from vestige.core.items import Item, ItemTuple, items_digest, questions_digest
from vestige.core.progress import OnShare
from vestige.core.store import SCHEMA, read_sealed, save, write_sealed
from vestige.core.store import load as load_record
from vestige.core.text import Fields, NumberByName, TextByName
from vestige.data.dataset import item_row
from vestige.evals.base import Evaluation, View
from vestige.metrics.gains import code_length
from vestige.models.generation import generate
from vestige.models.load import LoadedModel, finite_logits
from vestige.models.prompts import Encoded
from vestige.models.scoring import logits_budget, score_answers
from vestige.steps.evaluate import (
    EvaluateRequest,
    Subject,
    announce,
    check_known,
    entry_key,
    evaluate_together,
    keep,
    loaded_subject,
    restore,
    summary_of,
)
from vestige.steps.making import Made
from vestige.training.checkpoints import Checkpoints

SEARCH_VERSION = 4
"""The version of searches. It increases if the same search would give another prompt or other bits. Since 4, a bfloat16
screen can choose.
"""


@dataclass(frozen=True)
class AttackRequest:
    """One attack, its evaluations, the forget set's selector, the seed.

    A search for a prefix has a `guide`, the target, whose words it is to bring.
    """

    attack: Attack
    evals: Mapping[str, Evaluation]
    forget: str
    seed: int
    guide: Subject | None = None


class _Wanted(NamedTuple):
    """The tokens that the prompt is to bring after a question."""

    question: str
    ids: tuple[int, ...]


def search_identity(search: AttackRequest, subject: Subject) -> dict[str, Any]:
    """Return everything except the attack's plan and the subject that decides the found prompt."""
    plan, guide = search.attack.plan, search.guide
    if attack_of(plan).guided != (guide is not None):
        raise InputError(
            f"the attack {plan.name!r} makes the model reply like the target and needs it. Name it with --target"
            if guide is None
            else f"the attack {plan.name!r} brings the answers in the data and has no use for a target. Leave it out"
        )
    if guide is not None and guide.made.digest.reads != subject.made.digest.reads:
        raise InputError(
            f"{guide.spec.name} and {subject.spec.name} have different tokenisers or chat templates, so no prompt is "
            "the same for both. Take a target of the same family"
        )
    guide_id = None if guide is None else [guide.made.digest.id, guide.spec.settings.get("dtype", "float32")]
    return {"search": {"version": SEARCH_VERSION, "guide": guide_id}}


def prompt_found(search: AttackRequest, folder: AttackFolder, loaded: LoadedModel, on_share: OnShare) -> KeptPrompt:
    """Return the prompt in the folder, or search it now. A stopped search continues."""
    if not folder.prompt.exists():
        save(folder.prompt, _measured(search, loaded, _find(search, folder, loaded, on_share)))
    folder.search.unlink(missing_ok=True)
    on_share(1.0)
    return read_prompt(folder)


@dataclass(frozen=True)
class _Result:
    placement: Placement
    targets: tuple[_Wanted, ...]
    prompt: FoundPrompt


def _find(search: AttackRequest, folder: AttackFolder, loaded: LoadedModel, on_share: OnShare) -> _Result:
    plan, keeper = search.attack.plan, KeptSearch(folder.search)
    where = f"settings of the attack {plan.name}"

    def tell(done: int, of: int) -> None:
        on_share(done / of)

    if search.guide is None:
        gcg = GcgSettings.build(plan.settings, where=where)
        items, placement = search.attack.shown, gcg.placement
        answers = [(i.question, target_of(loaded.prompter, i.question, i.answer, placement)) for i in items]
        targets = tuple(_Wanted(question, ids) for question, ids in answers)
        texts = [around(loaded.prompter, w.question, w.ids, gcg.placement) for w in targets]
        prompt = find_prompt(loaded, texts, gcg, seed=search.seed, keeper=keeper, on_step=tell)
        return _Result(placement, targets, prompt)
    prefix = EnhancedSettings.build(plan.settings, where=where)
    # If the target is attacked, the two are one model in memory.
    same = loaded.digest() == search.guide.made.digest
    if same:
        guide = loaded
    else:
        guide = loaded_subject(search.guide)
    samples = samples_of(guide, [i.question for i in search.attack.shown], prefix)
    prompt = find_prefix(loaded, guide, samples, prefix, seed=search.seed, keeper=keeper, on_step=tell)
    targets = tuple(_Wanted(s.question, s.forced) for s in samples)
    return _Result("prefix", targets, prompt)


@dataclass(frozen=True)
class KeptSearch:
    """A search's state in a file, whole or absent. `prompt_search.search` continues from its `state`."""

    path: Path

    def load(self) -> SearchState | None:
        """Return the state after the last finished step, or None."""
        if self.path.exists():
            return load_record(self.path, SearchState)
        return None

    def save(self, state: SearchState) -> None:
        """Put the state after a step in the place of the one before it."""
        save(self.path, state)


def _measured(search: AttackRequest, loaded: LoadedModel, result: _Result) -> KeptPrompt:
    prompt = result.prompt
    first = result.targets[0]
    head = _head(loaded, first.question)
    stands = around(loaded.prompter, first.question, first.ids, result.placement)
    cut = {point: tokens_at(prompt.ids, point, seed=search.seed) for point in search.attack.plan.points}
    texts = inner_texts(loaded.tokenizer, list(cut.values()), spaced=stands.spaced)
    bits = _code_lengths(loaded, [(head, ids) for ids in (prompt.ids, *cut.values())])
    answer_bits = _seen_bits(search.attack, loaded, result)
    bounds = {TOKENS_BOUND: len(prompt.ids) * prompt.admissible_bits, CODE_BOUND: bits[0]}
    bounds |= {} if answer_bits is None else {SEEN_BOUND: answer_bits}
    samples = _replies(loaded, result)
    return KeptPrompt(
        text=prompt.text,
        ids=prompt.ids,
        placement=result.placement,
        loss=prompt.loss,
        claimed=prompt.reached,
        verified=all(s.verified for s in samples),
        ended=prompt.ended,
        steps=prompt.steps,
        admissible_bits=prompt.admissible_bits,
        spent={**prompt.spent, "items_shown": len(search.attack.shown)},
        seen_bits=answer_bits,
        bounds_bits=bounds,
        samples=samples,
        points={
            point: PromptPart(text, ids, length)
            for (point, ids), text, length in zip(cut.items(), texts, bits[1:], strict=True)
        },
    )


def prompt_bits(loaded: LoadedModel, prompt: KeptPrompt) -> dict[str, float]:
    """Return the code length of a prompt at each stage, under a model that may differ from its own."""
    head = _head(loaded, prompt.samples[0].question)
    lengths = _code_lengths(loaded, [(head, part.ids) for part in prompt.points.values()])
    return dict(zip(prompt.points, lengths, strict=True))


def _head(loaded: LoadedModel, question: str) -> tuple[int, ...]:
    """Return the chat's header before a prompt in first position."""
    # The following target does not change the tokens before it.
    head = around(loaded.prompter, question, (0,), "prefix").before
    if not head:
        raise InputError("the prompts of this model begin with no token of their own, so prompts cannot be measured")
    return head


def _code_lengths(loaded: LoadedModel, texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
    """Return the bits of each text after its context. Nothing takes no bits."""
    # A text has no end token, so its last token takes that place.
    rows = [
        Encoded((*before, *ids), len(before), stop, stop - 1)
        for before, ids in texts
        if ids and (stop := len(before) + len(ids))
    ]
    scores = iter(score_answers(loaded.model, rows, token_budget=logits_budget(loaded.model)))
    return [code_length(np.array(next(scores).logp)) if ids else 0.0 for _, ids in texts]


def _seen_bits(attack: Attack, loaded: LoadedModel, result: _Result) -> float | None:
    """Return the bits of the answers that a text search saw. None if it saw more."""
    settings = attack_of(attack.plan)
    if isinstance(settings, EnhancedSettings) and settings.distance > 0:
        return None
    texts = [(loaded.prompter.prompt(w.question), w.ids) for w in result.targets]
    return sum(_code_lengths(loaded, texts))


def _replies(loaded: LoadedModel, result: _Result) -> tuple[SampleReply, ...]:
    """Return the model's replies to the search's questions with the prompt's text and without, and the goals."""
    prompter, searched = loaded.prompter, result.prompt
    questions = [target.question for target in result.targets]
    prompts = [prompter.prompt(deployed(question, searched.text, result.placement)) for question in questions]
    plain = [prompter.prompt(deployed(question, "", result.placement)) for question in questions]
    replies = generate(
        loaded.model,
        prompts + plain,
        end_ids=prompter.end_ids,
        max_new_tokens=max(len(w.ids) for w in result.targets),
        context=prompter.max_tokens,
    )
    samples = []
    for n, (target, prompt) in enumerate(zip(result.targets, prompts, strict=True)):
        scored = around(prompter, target.question, target.ids, result.placement)
        reply_ids, unprompted = (
            # The first tokens of a reply, including the one that ended it.
            (*reply.ids, *(prompter.end_ids[:1] if reply.finish == "stop" else ()))[: len(target.ids)]
            for reply in (replies[n], replies[len(prompts) + n])
        )
        samples.append(
            SampleReply(
                question=target.question,
                wanted=prompter.decode(target.ids),
                replied=prompter.decode(reply_ids),
                verified=reply_ids == target.ids,
                same_tokens=prompt == (*scored.before, *searched.ids, *scored.after),
                plain=prompter.decode(unprompted),
                plain_right=unprompted == target.ids,
            )
        )
    return tuple(samples)


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
                    # Even without training, the given model may be broken: then no learning rate is the cause.
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
            # The log is not sealed because it contains times. For an evaluation, the file with the checksums is sealed.
            sealed = [p for p in (folder.spec, folder.shown, folder.asked, folder.prompt) if p.exists()]
            for places in work.places.values():
                sealed += [EvalFolder(folder.path / path).collected for path in places.values()]
            write_sealed(folder.done, {**asdict(ended), "evaluations": work.places}, sealed)
            if key:
                keep(folder.path, key, _whole(folder))
        else:
            check_known(subject)
        # This runs even if the attack was finished: a kill may have come between the seal and this.
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
    """One running attack. `id` is the content id of its identity. `places` grows with each evaluation.

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
        # A separate digest keeps its answers apart from the subject's.
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
        # The item of each point, by the item that it replaces.
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
