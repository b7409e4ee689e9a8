"""A judge's input and output: a score, or the name of a failure.

Tokens and calls are counts. Costs are in the currency of the configured prices. A failure is never a low score: it is
left out of every mean and counted.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from vestige.core.errors import InputError
from vestige.core.settings import Settings
from vestige.models.address import NoReply

Failure: TypeAlias = (
    NoReply | Literal["", "unreadable", "out of range", "ambiguous", "empty", "cut short", "too long", "not judged"]
)
"""The reason for a missing score, or "".

Failures of the reply: "unreadable" (no verdict in it), "out of range", "ambiguous" (two verdicts that differ), "empty",
"cut short" (by the limit of tokens), "filtered" (by the server). Failures of the exchange: "garbage" (no chat
completion, or half of one), "rejected" (the server refuses the request), "too long" (the request exceeds the model's
limit or ours), "too large" (a reply of megabytes), "rate limited", "server error", "timeout", "connection". Other
failures: "limit" (tokens or money are used up), "not judged" (a judge that lacks the task's input).
"""


@dataclass(frozen=True)
class Request:
    """One request: the task's name in `tasks.TASKS`, and the texts that the task needs.

    `reference` is an answer to compare with: the target's own, say. `truth` is the known true answer, in the words of
    the data. `sample` is one text of the forget set. Fields that the task does not ask for are ignored.
    """

    task: str
    question: str
    answer: str = ""
    reference: str = ""
    truth: str = ""
    sample: str = ""


@dataclass(frozen=True)
class Judgement:
    """A score on the task's scale with its parts in `values`, or a failure, and the judge's exact words."""

    score: float | None
    values: Mapping[str, float] = field(default_factory=dict)
    failure: Failure = ""
    text: str = ""

    def __post_init__(self) -> None:
        """Either a score or a failure."""
        if (self.score is None) == (self.failure == ""):
            raise ValueError(f"a judgement has a score or a failure: {self.score!r} and {self.failure!r}")


@runtime_checkable
class Judge(Protocol):
    """A judge of requests."""

    @property
    def name(self) -> str:
        """The name in tables."""

    def judge(self, requests: Sequence[Request]) -> list[Judgement]:
        """One judgement each, in order."""


class JudgeSettings(Settings):
    """A `Judge` that its own settings make, for other packages."""

    version: ClassVar[int] = 1
    """Raised when the same settings would judge otherwise."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in tables."""

    @abstractmethod
    def judge(self, requests: Sequence[Request]) -> list[Judgement]:
        """One judgement each, in order."""


@dataclass(frozen=True)
class WriterPrompt:
    """The input of a language model: a system message, a user message, and a test of the answer.

    `accepts` tests each reply. A rejected reply is requested again, within the writer's patience.
    """

    system: str
    user: str
    max_tokens: int
    accepts: Callable[[str], bool] = field(default=bool, compare=False, repr=False)


@dataclass(frozen=True)
class Written:
    """A language model's text. With a `failure`, `text` is the last text, if any."""

    text: str
    failure: Failure = ""


def refuse_limit(name: str, replies: Iterable[Judgement | Written], *, at: str = "") -> None:
    """Raise InputError if a limit kept `name` from replying. A later run can still get the reply."""
    if any(reply.failure == "limit" for reply in replies):
        raise InputError(
            f"the limits of {name} are used up{at}. Raise them and run the same command again, which pays for nothing "
            "twice"
        )


@runtime_checkable
class Writer(Protocol):
    """A language model that answers prompts: a server or a local model."""

    @property
    def name(self) -> str:
        """The name in tables."""

    @property
    def reserved(self) -> tuple[str, ...]:
        """Strings that the model takes for control signs. Text that is judged must not hold them."""

    def write(self, prompts: Sequence[WriterPrompt]) -> list[Written]:
        """Return one reply each, in order."""


@dataclass(frozen=True)
class Grader:
    """A judge, everything that can change its verdict, and its language model, if any."""

    judge: Judge
    identity: Mapping[str, Any]
    writer: Writer | None = None
