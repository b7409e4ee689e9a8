"""The scores of an unlearning trajectory: greedy answers to validation questions, or a user's function.

Scores are means over items: `forget` and `retain` in the metric asked for (shares), `forget_nll` and `retain_nll` the
negative log-probability of the true answers' tokens, in nats a token. With a judge also `harm`, the share of replies to
forget questions that it finds harmful, among those it could judge (the harmscore of 2511.00030, which trains until it
is 0), and `harm_not_judged`, the number of others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import PositiveInt

from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import ItemTuple
from vestige.core.settings import Settings
from vestige.core.text import Fields, NumberByName, NumberMapping, Record
from vestige.data.corpus import CHOSEN_ON, NamedSplits, held_apart
from vestige.evals.qa import QASettings
from vestige.judges.base import Judge, Request, refuse_limit
from vestige.judges.tasks import TASKS
from vestige.training.stopping import Condition, TrajectorySettings, parse_choice, parse_condition

if TYPE_CHECKING:
    from vestige.models.load import LoadedModel, ModelSettings

ScoreModel: TypeAlias = "Callable[[LoadedModel], Mapping[str, float]]"
"""Returns a model's scores, by name. It must follow from the weights alone, or a resumed run ends elsewhere."""


MOST_UNJUDGED = 0.1
"""The largest share of replies that a rule on `harm` can do without: it rests on the others alone."""


class ValidationSettings(Settings):
    """The questions and the metric of the scores during training."""

    items: PositiveInt = 64
    """At most this many items, and at most half, of the forget and of the retain set are scored."""
    metric: Literal["rouge1_recall", "rougeL_recall", "exact_match", "probability"] = "rouge1_recall"
    """Metric of the scores."""
    max_new_tokens: PositiveInt = QASettings().max_new_tokens
    """Longest reply, in tokens."""


@dataclass(frozen=True)
class TrajectoryRequest:
    """The schedule, the scores and the rules of a trajectory.

    `identity` has, as JSON values, everything except the weights that `score` depends on. `retrained` is a retrained
    control for the rules, with the digest of its weights.
    """

    settings: TrajectorySettings
    score: ScoreModel
    identity: Record
    retrained: "tuple[ModelSettings, str] | None" = None

    def __post_init__(self) -> None:
        """Reject rules about a missing model."""
        for rule in _rules(self.settings):
            if rule.of == "retrained" and self.retrained is None:
                raise InputError(f"the rule {rule} needs a retrained model. Name it with --retrained")

    def whole_identity(self) -> Fields:
        """Return everything that can change the rules' view, for the subject's identity."""
        return {
            **{f"trajectory.{k}": v for k, v in self.settings.identity().items()},
            "trajectory.score": content_id(dict(self.identity), length=32),
            **({"trajectory.retrained": self.retrained[1]} if self.retrained else {}),
        }

    def controls(self) -> dict[str, Callable[[], NumberMapping]]:
        """Return the function that scores the other models in the rules. It refuses one that was changed."""
        if self.retrained is None:
            return {}
        from vestige.steps.subjects import load_checked

        model, weights = self.retrained
        return {"retrained": lambda: self.score(load_checked(model, weights, "the retrained model"))}


def _rules(settings: TrajectorySettings) -> list[Condition]:
    """Return the stopping rules, and the choosing rule if there is one."""
    rules = (*map(parse_condition, settings.stop_when), parse_choice(settings.choose))
    return [rule for rule in rules if rule]


@dataclass(frozen=True)
class AnswerScores:
    """Asks a model the validation questions of a forget set."""

    splits: Mapping[str, ItemTuple]
    metric: str
    questions: QASettings

    def __call__(self, model: "LoadedModel") -> NumberByName:
        """The scores of the model, which is left in evaluation mode."""
        from vestige.steps.evaluate import CHUNK

        # Dropout would make the scores depend on the time of the evaluation.
        model.model.eval()
        scores: NumberByName = {}
        for name, items in self.splits.items():
            # Portions have similar lengths, as in an evaluation.
            chunks = self.questions.chunks(model, items, size=CHUNK)
            nats: list[float] = []
            values: list[float] = []
            for chunk in chunks:
                for record in self.questions.collect(model, [items[i] for i in chunk]):
                    nats += [-value for value in record["logp"]]
                    score = QASettings.score(record)
                    if self.metric in score:
                        values.append(score[self.metric])
            # Sorting makes the floating-point sum independent of the portions.
            nats.sort()
            values.sort()
            if not values:
                raise InputError(
                    f"no validation item of the {name} set has the metric {self.metric!r}, which sees the "
                    "letters a to z and digits only. Choose exact_match"
                )
            scores |= {name: sum(values) / len(values), f"{name}_nll": sum(nats) / len(nats)}
        return scores


@dataclass(frozen=True)
class HarmScores:
    """The scores by answers, and `harm`: what of the replies that could be judged a language model finds harmful.

    `decides` states that a rule rests on it.
    """

    answers: AnswerScores
    judge: Judge
    decides: bool

    def __call__(self, model: "LoadedModel") -> NumberByName:
        """The scores of the model.

        Raises InputError if no reply was judged, or so few that a rule would rest on a part, or the judge's limits are
        used up.
        """
        answers, items, prompter = self.answers(model), self.answers.splits["forget"], model.prompter
        replies = model.engine.generate(
            [prompter.prompt(item.question) for item in items],
            end_ids=prompter.end_ids,
            max_new_tokens=self.answers.questions.max_new_tokens,
            context=prompter.max_tokens,
        )
        pairs = zip(items, replies, strict=True)
        judged = self.judge.judge([Request("harm", item.question, prompter.decode(reply.ids)) for item, reply in pairs])
        refuse_limit(f"the judge {self.judge.name}", judged)
        scores = [judgement.score for judgement in judged if judgement.score is not None]
        failures = [judgement.failure for judgement in judged if judgement.score is None]
        if not scores:
            raise InputError(f"the judge {self.judge.name} judged none of {len(items)} replies ({failures[0]})")
        if self.decides and len(failures) > MOST_UNJUDGED * len(items):
            raise InputError(
                f"the judge {self.judge.name} judged only {len(scores)} of {len(items)} replies ({failures[0]}), and a "
                f"rule on harm needs {1 - MOST_UNJUDGED:.0%}. Take another judge, or leave the rule out"
            )
        return answers | {"harm": sum(scores) / len(scores), "harm_not_judged": float(len(failures))}


def answered_trajectory(
    settings: TrajectorySettings,
    validation: ValidationSettings,
    splits: NamedSplits,
    *,
    seed: int,
    retrained: "tuple[ModelSettings, str] | None" = None,
    harm: tuple[Judge, Record] | None = None,
) -> TrajectoryRequest:
    """A trajectory that is scored by answers to validation items, which `data.corpus` holds apart.

    The other items, on which the model is to be reported, are never asked. `retrained` is a model that never saw the
    forget set, with its digest. `harm` who judges harm, with all that can change a verdict.
    """
    chosen = held_apart(splits, most=validation.items, seed=seed).validation.splits
    items = {name: tuple(chosen[name]) for name in CHOSEN_ON}
    identity: Fields = {**validation.identity(), "version": QASettings.collect_version}
    for name, of_split in items.items():
        identity[name] = [i.id for i in of_split]
    answers = AnswerScores(items, validation.metric, QASettings(max_new_tokens=validation.max_new_tokens))
    if harm is None:
        return TrajectoryRequest(settings, answers, identity, retrained)
    judge, notes = harm
    decides = any(rule.score == "harm" for rule in _rules(settings))
    identity["harm"] = [dict(notes), TASKS["harm"].version]
    return TrajectoryRequest(settings, HarmScores(answers, judge, decides), identity, retrained)
