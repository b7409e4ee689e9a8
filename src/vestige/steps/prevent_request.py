"""What a trial of prevention is asked for: the unlearning, the items, the arms, the settings, and their identity."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import Field, PositiveInt, field_validator

from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.settings import Settings
from vestige.data.dataset import Dataset
from vestige.data.validation import balanced_draw
from vestige.evals import qa
from vestige.methods import build_method
from vestige.models.embedder import Embedder
from vestige.models.load import ModelSettings
from vestige.probes.risk import COMBINED
from vestige.probes.risk import VERSION as RISK_VERSION
from vestige.steps.finetune import items_digest
from vestige.steps.trajectory import AnswerScores, TrajectoryRequest, ValidationSettings
from vestige.steps.unlearn import UnlearnRequest, unlearn_spec
from vestige.training.schedules import total_steps
from vestige.training.stopping import parse_condition
from vestige.training.trajectory import TrajectorySettings, parse_every

VERSION = 1
"""Part of every identity; raised when the same request would find something else."""
WATCHED = 16
"""So many retained items are scored beside the forget set while training; a rule from above keeps a point by them."""
LEAST_CANDIDATES = 16
"""Of fewer no two would be evaluated and count as at risk."""


class PreventSettings(Settings):
    """How protection is tried.

    `add` items go from the pool into the retain set. `retain_share` of the benign items are the retain set where no
    file says which; half of the others are the pool. Training ends at the first point, looked at each `every`, that
    meets `stop_when` (by `forget`, the `metric` of greedy answers to the forget set, or `forget_nll`, nats a token);
    "" trains to the end. `risk_by` is the score that the arm `predicted` goes by. With `probe_k` every arm's first
    model is asked so many questions near each forget item, which no data asks.
    """

    add: PositiveInt = 20
    seeds: int = Field(default=3, ge=3)
    retain_share: float = Field(default=0.25, gt=0, lt=1)
    every: str = "1 epoch"
    stop_when: str = "forget<=0.5*target"
    metric: Literal["rouge1_recall", "rougeL_recall", "exact_match", "probability"] = "rougeL_recall"
    max_new_tokens: PositiveInt = qa.QASettings().max_new_tokens
    risk_by: Literal["gradient_cosine", "first_order", "first_order_adam", "embedding", "graph", "combined"] = COMBINED
    probe_k: int = Field(default=0, ge=0)

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
    forgotten. `embeds` loads the sentence embedder, with its digest. `retrained` is a model that never
    saw the forget set, with its digest, for rules that speak of one.
    """

    unlearning: UnlearnRequest
    candidates: tuple[Item, ...]
    dataset: Dataset | None
    embeds: Callable[[], tuple[Embedder, str]]
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
