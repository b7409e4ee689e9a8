"""The queries to a model in memory or on a server: replies, scores of texts, next tokens.

In memory, or behind an address. What asks through an `Engine` works with both. Code that needs `LoadedModel.model`
needs weights, and rejects a served model.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from vestige.models.generation import Reply, Sampling
from vestige.models.options import LetterPrompt, LetterScore
from vestige.models.prompts import Encoded
from vestige.models.reading import Asking, Prompted, Reading
from vestige.models.scoring import AnswerScore


class Engine(Protocol):
    """Who answers. Without `scores` it only replies: whatever needs log-probabilities is refused in one sentence."""

    @property
    def scores(self) -> bool:
        """Return whether given answers can be scored."""

    @property
    def prefills(self) -> bool:
        """Whether it goes on with the beginning of a reply."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        end_ids: Sequence[int],
        max_new_tokens: int,
        context: int | None = None,
        sampling: Sampling | None = None,
    ) -> list[Reply]:
        """Replies to `prompts`, in the order given. Greedy without `sampling`."""

    def score_answers(self, encoded: Sequence[Encoded], *, whole: bool = False) -> list[AnswerScore]:
        """Scores of the answers, in the order given. `whole` where an answer is most of its row."""

    def read(self, prompted: Sequence[Prompted], asking: Asking) -> list[Reading]:
        """Return the requested values of each prompt, in order."""

    def score_letters(self, prompts: Sequence[LetterPrompt]) -> list[LetterScore]:
        """Return the next letters after each prompt, in order."""


@runtime_checkable
class PaidEngine(Protocol):
    """An engine whose replies are paid for one by one, so that each may be kept as soon as it is there."""

    def generate_each(
        self,
        prompts: Sequence[Sequence[int]],
        take: Callable[[int, Reply | None], None],
        *,
        end_ids: Sequence[int],
        max_new_tokens: int,
        context: int | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        """As `Engine.generate`. Each prompt's number and reply go to `take`, None where that prompt gets none."""
