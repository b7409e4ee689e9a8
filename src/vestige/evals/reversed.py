"""`reversed`: given an answer, does the subject pick the question that it belongs to?

The options are the item's question and questions of the same attribute elsewhere with other answers. Formats are the
`choices` formats by letter, with the prefix `reversed_`. There is no reading of the options' texts: a model that was
never taught a question finds it unlikely, whatever it knows of the answer, so that one which never saw falls below
chance.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from vestige.core.items import Item
from vestige.data.mcq import MOST_OPTIONS, Choice, TooFew, Unasked, reversed_choices
from vestige.evals.base import Evaluation, InAudit, Record, View
from vestige.evals.choices import ChoicesSettings, Orders
from vestige.models.load import LoadedModel

PREFIX = "reversed_"


class ReversedSettings(Evaluation):
    """As the settings of `choices`. Texts and replies are off."""

    name: ClassVar[str] = "reversed"
    collect_version: ClassVar[int] = ChoicesSettings.collect_version
    summary_version: ClassVar[int] = ChoicesSettings.summary_version
    audit: ClassVar[InAudit] = InAudit(needs="scores", label="reversed questions", with_texts=False)

    options: int = Field(4, ge=2, le=MOST_OPTIONS)
    """Options of a question."""
    too_few: TooFew = "refuse"
    """What to do with an item that has too few wrong options."""
    orders: Orders = "one"
    """Ask the question's own order, its k rotations, or all k! orders."""
    rendering: Literal["chat", "plain"] = "chat"
    """Prompts in the chat template, or plain."""
    topic: str = ""
    """Topic named above lettered options."""
    seed: int = 0
    """Seed of the drawing."""

    def _forward(self) -> ChoicesSettings:
        """The settings of `choices` that ask the same."""
        return ChoicesSettings(**self.model_dump(), texts=False, replies=False)

    def build_questions(self, items: Sequence[Item], views: Sequence[View]) -> dict[str, Choice | Unasked]:
        """A question with questions as options about each item."""
        return reversed_choices(items, self._forward().drawing())

    @staticmethod
    def digest(questions: Mapping[str, Choice | Unasked]) -> str:
        """That of the same questions in `choices`."""
        return ChoicesSettings.digest(questions)

    def collect(self, subject: LoadedModel, questions: Sequence[Choice | Unasked]) -> list[dict[str, Any]]:
        """One record a question. Skipped items get a reason."""
        return self._forward().collect(subject, questions)

    @staticmethod
    def score(record: Record) -> dict[str, float]:
        """The values of one record, by `format/metric`."""
        return {f"{PREFIX}{key}": value for key, value in ChoicesSettings.score(record).items()}
