"""Prevention: risk under the target, models unlearned with and without protection, and what each lost.

Every model is made by the ordinary unlearning, in a folder of its own, and asked by the ordinary evaluation; the same
request goes on where a stopped one ended. All arms have the same method, settings and order of forget items, and end at
the first scored point that meets one rule on the forget set, so that they are compared at like forgetting.

Fresh probes ask each arm's first model questions near the forget set that no data asks, and say which are holes. They
are made from templates, also where the data has a graph, whose own questions an arm may have been given to keep. The
judge is the one that is grounded in the target.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import Field, PositiveInt, field_validator

from vestige.artifacts.holes import HoleTable
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import read_scored_records
from vestige.core.errors import InputError
from vestige.core.files import locked, write_jsonl
from vestige.core.ids import content_id
from vestige.core.items import Item, items_digest
from vestige.core.settings import Settings
from vestige.core.store import claim, read_rows
from vestige.data.corpus import NamedSplits, balanced_draw
from vestige.data.dataset import Dataset
from vestige.evals import qa
from vestige.methods import build_method
from vestige.models.embedder import Embedder
from vestige.models.load import ModelSettings
from vestige.probes.adjacent import AdjacentRequest, NeighbourSettings, make_adjacent
from vestige.probes.answering import AnswerSettings, Participants, grounded_grader
from vestige.probes.filters import FilterSettings
from vestige.probes.holes import FilterRequest, filter_holes
from vestige.probes.prevention_table import (
    ADJACENT,
    MEASURES,
    NONE,
    ORACLE,
    PREDICTED,
    RANDOM,
    ArmRow,
    HarmRow,
    PreventionFolder,
    PreventionTable,
    RiskRow,
    Trial,
    arm_rows,
    drawn,
    evaluated_half,
    most_harmed,
    n_at_risk,
    nearest_first,
    predictions,
    read_table,
    write_table,
)
from vestige.probes.questions import AdjacentSettings
from vestige.probes.risk import COMBINED, order_of, risk_scores
from vestige.probes.risk import VERSION as RISK_VERSION
from vestige.steps.evaluate import EvaluateRequest, Subject, evaluate, finished_subject
from vestige.steps.making import read_done
from vestige.steps.subjects import any_subject, asked_model
from vestige.steps.trajectory import AnswerScores, TrajectoryRequest, ValidationSettings
from vestige.steps.unlearn import UnlearnRequest, unlearn, unlearn_spec
from vestige.training.loop import parse_condition, total_steps
from vestige.training.trajectory import TrajectorySettings, parse_every

VERSION = 1
"""Part of every identity; raised when the same request would find something else."""
WATCHED = 16
"""So many retained items are scored beside the forget set while training; a rule from above keeps a point by them."""
LEAST_CANDIDATES = 16
"""Of fewer no two would be evaluated and count as at risk."""


class PreventSettings(Settings):
    """How protection is tried.

    The pool is half of the benign items that are not retained. The stop is decided by `forget`, the `metric` of greedy
    answers to the forget set, or `forget_nll`, nats a token.
    """

    add: PositiveInt = 20
    """Items that each arm adds to the retain set."""
    seeds: int = Field(default=3, ge=3)
    """Trainings of each arm, at least 3."""
    retain_share: float = Field(default=0.25, gt=0, lt=1)
    """Share of the benign items in the retain set, where --retain does not say which."""
    every: str = "1 epoch"
    """How often stop_when is checked: '1 epoch' or '5 steps'."""
    stop_when: str = "forget<=0.5*target"
    """End each training at the first point that meets this, as 'forget<=0.5*target'; '' trains to the end."""
    metric: Literal["rouge1_recall", "rougeL_recall", "exact_match", "probability"] = "rougeL_recall"
    """Metric of the score forget."""
    max_new_tokens: PositiveInt = qa.QASettings().max_new_tokens
    """Longest reply, in tokens."""
    risk_by: Literal["gradient_cosine", "first_order", "first_order_adam", "embedding", "graph", "combined"] = COMBINED
    """Score that the arm `predicted` uses."""
    probe_k: int = Field(default=0, ge=0)
    """Ask each arm's first model this many new questions near each forget item."""

    @field_validator("every")
    @classmethod
    def _a_pace(cls, value: str) -> str:
        return str(parse_every(value))

    @field_validator("stop_when")
    @classmethod
    def _a_condition(cls, value: str) -> str:
        if not value:
            return value
        rule = parse_condition(value)
        if rule.score not in ("forget", "forget_nll"):
            raise ValueError(f"must be about forget or forget_nll, not {rule.score}")
        return str(rule)


@dataclass(frozen=True)
class PreventRequest:
    """Which unlearning is to be made safer for which benign items, and by which arms.

    The `retain_items` of `unlearning` are what every arm keeps; `candidates` are benign items that are neither kept nor
    forgotten. `embeds` loads the sentence embedder. `retrained` is a model that never
    saw the forget set, with its digest, for rules that speak of one.
    """

    unlearning: UnlearnRequest
    candidates: tuple[Item, ...]
    dataset: Dataset | None
    embeds: Callable[[], Embedder]
    arms: tuple[str, ...]
    settings: PreventSettings
    retrained: tuple[ModelSettings, str] | None = None
    on_stage: Callable[[float, str], None] = field(default=lambda share, note: None)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the trainings."""
        first = self.unlearning.seed
        return tuple(range(first, first + self.settings.seeds))

    @property
    def edges(self) -> tuple[str, ...]:
        """The forgotten edges."""
        return tuple(dict.fromkeys(i.edge for i in self.unlearning.forget_items if i.edge is not None))


def kept_and_candidates(
    benign: Sequence[Item], given: Sequence[Item] | None, settings: PreventSettings, *, seed: int
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """The retain set of every arm, given or drawn alike from all edges, and the benign items beside it."""
    kept = tuple(given or ())
    if given is None:
        kept = balanced_draw(benign, round(settings.retain_share * len(benign)), lambda i: "", seed=seed)
    known = {i.question for i in kept}
    return kept, tuple(i for i in benign if i.question not in known)


def check_request(request: PreventRequest) -> None:
    """Refuse what cannot be tried, before anything is loaded."""
    asked, n = request.unlearning, len(request.candidates)
    if "retain" not in build_method(asked.method, asked.method_settings).needs.splits:
        raise InputError(
            f"method {asked.method!r} reads no retain set, so that nothing which is added to it can help; take one "
            "that does, such as gd or npo_gd"
        )
    if not asked.retain_items:
        raise InputError("there is nothing to retain; give more data, or a larger prevent.retain_share")
    if len(asked.forget_items) < 2:
        raise InputError("the forget set is one question, of which no interval can be told; give two or more")
    if n < LEAST_CANDIDATES:
        raise InputError(
            f"{n} benign items are neither forgotten nor retained, and a trial needs {LEAST_CANDIDATES}, to add some "
            "and ask about others; give more data, or retain less"
        )
    if n // 2 < request.settings.add:
        raise InputError(
            f"of {n} benign items that are neither forgotten nor retained half may be added, so --add "
            f"{request.settings.add} is too many; ask for {n // 2} or fewer, or retain less"
        )
    if request.settings.risk_by == "graph" and request.dataset is None:
        raise InputError("prevent.risk_by=graph needs data with a graph; take another score, such as combined")
    # A rule that speaks of a model which nobody named is refused where the rule is made.
    watched_for(request)


def foreseen(request: PreventRequest) -> dict[str, int]:
    """What a trial takes at most, in counts by what is counted."""
    asked, n = request.unlearning, len(request.candidates)
    n_forget = len(asked.forget_items)
    steps = total_steps(asked.training, steps_per_epoch=-(-n_forget // asked.training.batch_size))
    n_bare, n_evaluated = len(request.seeds), n // 2
    n_models = len(request.arms) * n_bare
    benign = (1 + n_bare) * n + (n_models - n_bare) * n_evaluated
    return {
        "gradient passes": n_forget + n,
        "models trained": n_models,
        "steps of each": steps,
        "questions asked after training": benign + (1 + n_models) * n_forget,
        "items added by an arm": request.settings.add,
        "items retained by every arm": len(asked.retain_items),
    }


def request_identity(request: PreventRequest, embedder_digest: str) -> dict[str, Any]:
    """Everything that can change what is found, but for the arms and fresh probes, of which more can be made later."""
    asked = request.unlearning
    return {
        "version": VERSION,
        "risk": RISK_VERSION,
        "questions": qa.COLLECT_VERSION,
        "unlearning": content_id(asdict(unlearn_spec(asked)), length=32),
        "method": asked.method,
        "forget": items_digest(asked.forget_items),
        "retain": items_digest(asked.retain_items),
        "candidates": items_digest(request.candidates),
        "graph": request.dataset.graph.digest if request.dataset else "",
        "embedder": embedder_digest,
        "retrained": request.retrained[1] if request.retrained else "",
        **{name: value for name, value in request.settings.identity().items() if name != "probe_k"},
    }


def watched_for(request: PreventRequest) -> TrajectoryRequest | None:
    """The rule by which training ends, scored on the whole forget set, since nothing is reported of it but how much."""
    settings, asked = request.settings, request.unlearning
    if not settings.stop_when:
        return None
    kept = balanced_draw(asked.retain_items, min(WATCHED, len(asked.retain_items)), lambda i: "", seed=asked.seed)
    items = {"forget": asked.forget_items, "retain": kept}
    validation = ValidationSettings(metric=settings.metric, max_new_tokens=settings.max_new_tokens)
    identity = {
        **validation.identity(),
        "version": qa.COLLECT_VERSION,
        **{name: [i.id for i in own] for name, own in items.items()},
    }
    stop = (*TrajectorySettings().stop_when, settings.stop_when)
    pace = TrajectorySettings(every=settings.every, stop_when=stop, choose=settings.stop_when)
    controls, weights = {}, {}
    if request.retrained:
        controls, weights = {"retrained": request.retrained[0]}, {"retrained": request.retrained[1]}
    return TrajectoryRequest(pace, AnswerScores(items, validation), identity, controls, weights)


def prevent(folder: PreventionFolder, request: PreventRequest) -> PreventionTable:
    """The table of the trial in `folder`; made unless it is there. Of other arms the missing ones are made."""
    check_request(request)
    with locked(folder.lock):
        embedder = request.embeds()
        claim(folder.asked, request_identity(request, embedder.digest), "trial of prevention")
        if folder.table.exists():
            table = read_table(folder)
            if set(table.steps) == set(request.arms) and table.probe_k == request.settings.probe_k:
                return table
        watch = Stopwatch()
        trial = _Work(folder, request, _risks(folder, request, embedder)).trial()
        table = _table(folder, request, trial, probed_arms(folder, request, embedder))
        write_provenance(folder.provenance, watch, device=str(embedder.model.device))
        write_jsonl(folder.harms, map(asdict, _harm_rows(trial)))
        write_table(folder, table)
    return table


def _risks(folder: PreventionFolder, request: PreventRequest, embedder: Embedder) -> list[RiskRow]:
    """The risk of every candidate, and which may be added; computed unless it is there."""
    if folder.risk.exists():
        return list(read_rows(folder.risk, RiskRow))
    request.on_stage(0.0, "risk under the target")
    scores = risk_scores(request.unlearning, request.candidates, embedder, request.dataset, request.edges)
    ids = [i.id for i in request.candidates]
    evaluated = evaluated_half(scores[COMBINED], ids, seed=request.unlearning.seed)
    rows = [
        RiskRow(
            item=item.id,
            question=item.question,
            edge=item.edge,
            part="evaluated" if evaluated[n] else "pool",
            scores={name: float(values[n]) for name, values in scores.items()},
        )
        for n, item in enumerate(request.candidates)
    ]
    write_jsonl(folder.risk, map(asdict, rows))
    return rows


@dataclass
class _Work:
    """A trial while it is being made: harms so far, by arm and seed, of benign and of forget items."""

    folder: PreventionFolder
    request: PreventRequest
    risks: Sequence[RiskRow]
    harms: dict[tuple[str, int], dict[str, dict[str, float]]] = field(default_factory=dict)

    def trial(self) -> Trial:
        """Make and ask every model. Those without protection come first, since the oracle reads what they lost."""
        request = self.request
        target = any_subject(request.unlearning.target, str(self.folder.target), role="target")
        pairs = [(arm, seed) for arm in request.arms for seed in request.seeds]
        n = len(pairs) + 1
        request.on_stage(0.0, "the target's answers")
        before = self._scores(target, request.candidates)
        for done, (arm, seed) in enumerate(pairs, start=1):
            request.on_stage(done / n, f"{arm}, seed {seed}")
            subject = self._made(arm, seed)
            asked = request.candidates if arm == NONE else self._part("evaluated")
            after = self._scores(subject, asked)
            self.harms[arm, seed] = {
                measure: {item: values[item] - left for item, left in after[measure].items()}
                for measure, values in before.items()
            }
        return self._seen()

    def _made(self, arm: str, seed: int) -> Subject:
        """The finished model of one arm at one seed."""
        request, place = self.request, self.folder.arm(arm, seed)
        added = self._added(arm, seed)
        write_jsonl(self.folder.added(arm, seed), ({"item": i.id, "question": i.question} for i in added))
        asked = request.unlearning
        kept = replace(asked, retain_items=(*asked.retain_items, *added), seed=seed, trajectory=watched_for(request))
        unlearn(place, kept)
        return finished_subject(place, device=asked.target.device, trust_remote_code=asked.target.trust_remote_code)

    def _added(self, arm: str, seed: int) -> list[Item]:
        """What the arm adds, from the pool."""
        pool, n, settings = self._part("pool"), self.request.settings.add, self.request.settings
        ids = [i.id for i in pool]
        own = [row for row in self.risks if row.part == "pool"]
        risks = {name: np.array([row.scores[name] for row in own]) for name in own[0].scores}
        if arm == NONE:
            return []
        places = {
            RANDOM: lambda: drawn(len(pool), n, seed=seed),
            ADJACENT: lambda: nearest_first(risks, ids)[:n],
            PREDICTED: lambda: order_of(risks[settings.risk_by], ids)[:n],
            ORACLE: lambda: most_harmed(self._seen().harm_elsewhere(seed, ids), ids, n),
        }[arm]()
        return [pool[place] for place in sorted(places.tolist())]

    def _part(self, part: str) -> tuple[Item, ...]:
        names = {row.item for row in self.risks if row.part == part}
        return tuple(i for i in self.request.candidates if i.id in names)

    def _scores(self, subject: Subject, benign: Sequence[Item]) -> dict[str, dict[str, float]]:
        """By measure and item, the scores of benign and of forget items; what not all items have is left out."""
        items = (*benign, *self.request.unlearning.forget_items)
        questions = qa.QASettings(max_new_tokens=self.request.settings.max_new_tokens)
        place = evaluate(subject, EvaluateRequest(items, (), questions, self.request.unlearning.seed))
        records = read_scored_records(place)
        found = {
            "logp": {r["item"]: sum(r["logp"]) / len(r["logp"]) for r in records},
            "rougeL": {r["item"]: r["rougeL_recall"] for r in records if "rougeL_recall" in r},
        }
        return {measure: found[measure] for measure in MEASURES if len(found[measure]) == len(records)}

    def _seen(self) -> Trial:
        """All that was measured so far."""
        request, rows = self.request, self.risks
        return Trial(
            arms=request.arms,
            seeds=request.seeds,
            ids=tuple(row.item for row in rows),
            clusters=tuple(row.edge or row.item for row in rows),
            evaluated=np.array([row.part == "evaluated" for row in rows]),
            risks={name: np.array([row.scores[name] for row in rows]) for name in rows[0].scores},
            forget={i.id: i.edge or i.id for i in request.unlearning.forget_items},
            harms=self.harms,
        )


def _harm_rows(trial: Trial) -> list[HarmRow]:
    return [
        HarmRow(arm, seed, item, {measure: values[item] for measure, values in found.items()})
        for (arm, seed), found in trial.harms.items()
        for item in found[MEASURES[0]]
    ]


def _table(
    folder: PreventionFolder, request: PreventRequest, trial: Trial, probed: Sequence[ArmRow]
) -> PreventionTable:
    asked, settings = request.unlearning, request.settings
    made = {(arm, seed): read_done(folder.arm(arm, seed)) for arm in request.arms for seed in request.seeds}
    kept: Mapping[tuple[str, int], Any] = {pair: m.chosen for pair, m in made.items() if m}
    steps = {pair: (m.chosen.step if m.chosen else m.steps) for pair, m in made.items() if m}
    return PreventionTable(
        method=asked.method,
        forget=asked.forget,
        seeds=request.seeds,
        n_forget=len(asked.forget_items),
        n_retain=len(asked.retain_items),
        n_added=settings.add,
        n_pool=len(trial.pool_ids),
        n_evaluated=len(trial.evaluated_ids),
        n_at_risk=n_at_risk(len(trial.evaluated_ids)),
        rule=settings.stop_when,
        risk_by=settings.risk_by,
        probe_k=settings.probe_k,
        steps={arm: tuple(steps[arm, s] for s in request.seeds) for arm in request.arms},
        reached={arm: sum(bool(kept[arm, s] and kept[arm, s].met) for s in request.seeds) for arm in request.arms},
        arms=(*arm_rows(trial), *probed),
        predictions=predictions(trial, seed=asked.seed),
    )


HOLES, CHANGE = "holes", "probes"
QUALITY = "quality"


def probed_arms(folder: PreventionFolder, request: PreventRequest, embedder: Embedder) -> tuple[ArmRow, ...]:
    """The share of holes among the fresh probes of each arm's first model, and by how much answers became worse.

    Quality goes from 1 to 10. Intervals are over the probes; one seed shows nothing of seeds, and it says so.
    """
    settings, asked, seed = request.settings, request.unlearning, request.seeds[0]
    if not settings.probe_k:
        return ()
    splits = NamedSplits(asked.forget, {"forget": asked.forget_items, "retain": asked.retain_items}, {})
    near = AdjacentSettings(k=settings.probe_k)
    questions = AdjacentRequest(splits, None, "offline", near, NeighbourSettings(), asked.seed)
    target = asked_model(asked.target)
    grader = grounded_grader(target, embedder)
    answers = AnswerSettings(max_tokens=settings.max_new_tokens)
    found: list[ArmRow] = []
    for arm in request.arms:
        request.on_stage(1.0, f"fresh probes of {arm}")
        place = folder.probe(arm, seed)
        make_adjacent(place, questions)
        made = asked.target.model_copy(update={"model": str(folder.arm(arm, seed).path), "chat_template": ""})
        who = Participants(
            lambda: target, partial(asked_model, made), lambda _: grader, lambda: embedder, answers, asked.seed
        )
        tested = FilterRequest(who, asked.forget_items, FilterSettings(), asked.retain_items)
        found += _probe_rows(arm, filter_holes(place, tested))
    return tuple(found)


def _probe_rows(arm: str, table: HoleTable) -> list[ArmRow]:
    return [
        one
        for row in table.rows
        for one in (ArmRow(arm, HOLES, QUALITY, "", row.holes), ArmRow(arm, CHANGE, QUALITY, "", row.change))
    ]
