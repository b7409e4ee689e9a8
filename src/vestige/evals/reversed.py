"""`reversed`: given an answer, does the subject pick the question that it belongs to?

The options are the item's question and questions of the same attribute elsewhere with other answers; formats are those
of `choices` by letter, with `reversed_` before them. There is no reading of the options' texts: a model that was never
taught a question finds it unlikely, whatever it knows of the answer, so that one which never knew falls below chance.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from vestige.artifacts.records import Result
from vestige.core.items import Item
from vestige.core.settings import Settings
from vestige.data.mcq import MOST_OPTIONS, Choice, TooFew, Unasked, reversed_choices
from vestige.evals import choices
from vestige.evals.base import InAudit, Record, View
from vestige.models.load import LoadedModel

NAME = "reversed"
COLLECT_VERSION = choices.COLLECT_VERSION
SUMMARY_VERSION = choices.SUMMARY_VERSION
PREFIX = "reversed_"

Questions = Sequence[Choice | Unasked]


class ReversedSettings(Settings):
    """As the settings of `choices`; neither texts nor replies are asked for."""

    options: int = Field(4, ge=2, le=MOST_OPTIONS)
    """Options of a question."""
    too_few: TooFew = "refuse"
    """What to do with an item that has too few wrong options."""
    orders: choices.Orders = "one"
    """Ask the question's own order, its k rotations, or all k! orders."""
    rendering: Literal["chat", "plain"] = "chat"
    """Prompts in the chat template, or plain."""
    topic: str = ""
    """Topic named above lettered options."""
    seed: int = 0
    """Seed of the drawing."""

    def forward(self) -> choices.ChoicesSettings:
        """The settings of `choices` that ask the same."""
        return choices.ChoicesSettings(**self.model_dump(), texts=False, replies=False)


SETTINGS = ReversedSettings
AUDIT = InAudit(needs="scores", label="reversed questions", with_texts=False)
digest = choices.digest
chunks = choices.chunks


def asked(items: Sequence[Item], views: Sequence[View], settings: ReversedSettings) -> dict[str, Choice | Unasked]:
    """A question with questions as options about each item."""
    return reversed_choices(items, settings.forward().drawing())


def collect(subject: LoadedModel, questions: Questions, settings: ReversedSettings) -> list[dict[str, Any]]:
    """One record a question; of an item that could not be asked, why."""
    return choices.collect(subject, questions, settings.forward())


def score(record: Record) -> dict[str, float]:
    """The values of one record, by `format/metric`."""
    return {f"{PREFIX}{key}": value for key, value in choices.score(record).items()}


def summarize(
    records: Sequence[Record], scores: Sequence[Mapping[str, float]], view: View, *, seed: int
) -> tuple[Result, ...]:
    """The estimates of every split and scope of `view` and of every edge, over the items that could be asked."""
    return choices.summarize(records, scores, view, seed=seed)
