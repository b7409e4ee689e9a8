"""What a log of another tool says, question by question: scores by split and format, in the order of the file."""

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vestige.core.errors import InputError
from vestige.core.text import one_line


class LogPart(NamedTuple):
    """One score on every question of a split. Texts are empty where the log does not have them.

    `unit` and `chance` are those of a table of scores (`auditing.table`). `task` is what the tool calls the questions,
    where it does not say itself whether they are of the forget set.
    """

    split: str
    format: str
    scores: tuple[float, ...]
    questions: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    replies: tuple[str, ...] = ()
    unit: str = "share"
    chance: float | None = None
    task: str = ""

    def last(self, n: int) -> "LogPart":
        """The part with its last n questions."""
        columns = ("scores", "questions", "answers", "replies")
        return self._replace(**{name: getattr(self, name)[-n:] for name in columns})


class Log(NamedTuple):
    """All that a log says of one model. `unread` tells in clauses what it holds that cannot be judged.

    `prompt` is what stood around the questions, and `settings` what else the log says of how they were asked.
    """

    parts: tuple[LogPart, ...]
    prompt: str = ""
    settings: Mapping[str, str] = {}
    unread: tuple[str, ...] = ()


class GivenLog(NamedTuple):
    """One log, and whose it is: of the model as it is, or after an `attack`. `role` is one of a table of scores.

    `laboratory` is that of a control from the bank (`vestige.logs.bank`).
    """

    role: str
    name: str
    path: Path
    attack: str = ""
    laboratory: str = ""


class LogReading:
    """A log while it is read: `add` takes the scores one by one, and tells of those that are none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts: list[LogPart] = []
        self.unread: list[str] = []
        self.prompts: list[str] = []
        self.settings: dict[str, str] = {}
        self.task = ""

    def add(
        self,
        split: str,
        name: str,
        scores: Iterable[Any],
        *,
        prompts: Iterable[Any] = (),
        answers: Iterable[Any] = (),
        replies: Iterable[Any] = (),
        unit: str = "share",
        chance: float | None = None,
    ) -> None:
        """The scores of one format in the order of their questions, which are taken from the prompts."""
        values = tuple(float(s) if isinstance(s, bool | int | float) else math.nan for s in scores)
        least, most = (0.0, 1.0) if unit == "share" else (-math.inf, math.inf)
        wrong = sum(not (math.isfinite(value) and least <= value <= most) for value in values)
        if wrong or not values:
            kind = "no share in [0, 1]" if unit == "share" else "not a number"
            problem = f"is {kind} on {wrong} of {len(values)} questions" if values else "has no questions"
            self.unread.append(f"{split}, {name}: the score {problem}")
            return
        prompt_texts = tuple(map(str, prompts))
        self.prompts += prompt_texts
        # Logs of one data set hold the same questions and answers: each text is in memory once.
        questions = tuple(sys.intern(question_in(prompt)) for prompt in prompt_texts)
        texts = tuple(sys.intern(str(answer)) for answer in answers), tuple(map(str, replies))
        if any(len(column) not in (0, len(values)) for column in (questions, *texts)):
            raise InputError(
                f"{self.path}: {split}, {name}: as many scores as questions are needed; the log is damaged"
            )
        self.parts.append(LogPart(split, name, values, questions, *texts, unit, chance, self.task))

    def log(self) -> Log:
        """What was read; a log without any score is refused."""
        if not self.parts:
            why = one_line("; ".join(self.unread), width=300) or "it has none that is known"
            raise InputError(f"{self.path}: holds no scores by question that can be judged: {why}")
        # Of several frames none is that of the log, and logs cannot be compared by it.
        frames = {around(prompt) for prompt in self.prompts}
        prompt = frames.pop() if len(frames) == 1 else ""
        return Log(tuple(self.parts), prompt, dict(self.settings), tuple(self.unread))


_LONGEST = 2**26
"""Bytes of a first line that are read to tell what a file is."""
_TURNS = (
    ("[INST]", "[/INST]"),
    ("<|start_header_id|>user<|end_header_id|>", "<|eot_id|>"),
    ("<|im_start|>user", "<|im_end|>"),
    ("<|user|>", "<|"),
    ("user\n", "assistant\n"),
    ("Question:", "Answer:"),
)
"""Between what the question of a prompt stands, in the chat templates and in the plain form that logs have."""


def question_in(prompt: str) -> str:
    """The last question of a prompt, without what stands around it, by which logs of one question are matched."""
    start, end = _span(prompt)
    return " ".join(prompt[start:end].split())


def around(prompt: str) -> str:
    """What stands around the question of a prompt, on one line; of dates, which change by the day, nothing."""
    start, end = _span(prompt)
    whole = f"{prompt[:start]} QUESTION {prompt[end:]}"
    return " ".join(re.sub(r"\d{1,2} \w{3,9} \d{4}", "DATE", whole).split())


def _span(prompt: str) -> tuple[int, int]:
    for begin, close in _TURNS:
        # The last turn: examples may stand before the question.
        at = prompt.rfind(begin)
        if at >= 0:
            start = at + len(begin)
            end = prompt.find(close, start)
            return start, end if end >= 0 else len(prompt)
    return 0, len(prompt)


def in_order(values: Any) -> list[Any]:
    """The values of a list, or of an object whose keys number them."""
    if not isinstance(values, dict):
        return list(values) if isinstance(values, list) else []
    # Keys are numbers as texts, of which "10" would stand before "2".
    return [value for _, value in sorted(values.items(), key=lambda pair: (len(pair[0]), pair[0]))]


def first_line(path: Path) -> Mapping[str, Any]:
    """The object in the first line of a file, empty where there is none."""
    with path.open("rb") as file:
        try:
            row = json.loads(file.readline(_LONGEST))
        except (ValueError, RecursionError):
            return {}
    return row if isinstance(row, dict) else {}


def listed(where: Path, value: Any, keys: Sequence[str]) -> list[Mapping[str, Any]]:
    """A list of objects that all have `keys`, or an InputError."""
    if not isinstance(value, list) or not all(isinstance(row, dict) and all(k in row for k in keys) for row in value):
        raise InputError(f"{where}: is no list of objects with {', '.join(keys)}; the log is damaged or another tool's")
    return value


def refuse_repeated(where: Path, of: str, documents: Sequence[Any]) -> None:
    """Refuse a log in which a question stands more than once: it would count as several."""
    document, times = Counter(documents).most_common(1)[0]
    if times > 1:
        raise InputError(
            f"{where}: document {one_line(str(document), width=60)} stands there {times} times "
            f"({one_line(of, width=60)}), and it is one question; leave one line of each"
        )
