"""The contents of another tool's log: scores by split and measurement, question by question, in the file's order."""

import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple, get_args
from unicodedata import normalize

import numpy as np
from jaxtyping import Float
from pydantic_core import from_json

from vestige.artifacts.scores import Measurement, ScoreType, Split
from vestige.core.errors import InputError
from vestige.core.files import MOST_READ, open_input, read_bytes, read_json
from vestige.core.store import typed
from vestige.core.text import Fields, Record, TextTuple, one_line
from vestige.data.tables import as_utf8

Scores = Float[np.ndarray, " N"]


NOTE = "vestige"
"""The key of an export's note on a question, for values without a field in the tool's format."""


TASKS = " / "
"""Between the names of a task within a task."""


class Noted(NamedTuple):
    """A Vestige export's note on one question, in addition to the tool's own fields."""

    fact: str = ""
    group: str = ""
    chance: float | None = None
    scope: str = ""
    drawn_from: int = 0


class LogPart(NamedTuple):
    """One score on every question of a split. Texts and ids are empty if the log lacks them.

    `scores` has NaN for a missing score, and `reasons` gives the reason by position. `ids` are the tool's own sample
    ids, `prompts` the full prompts without the words of a chat template, and `questions` the texts to show. `task` is
    the tool's name for the questions if it does not show whether they are of the forget set. `otherwise` has the scores
    by another definition of the metric if the log fits two. `notes` come from an export.
    """

    split: str
    measurement: Measurement
    scores: Scores
    ids: TextTuple = ()
    prompts: TextTuple = ()
    questions: TextTuple = ()
    answers: TextTuple = ()
    replies: TextTuple = ()
    reasons: Mapping[int, str] = {}
    chance: float | None = None
    task: str = ""
    otherwise: Scores | None = None
    notes: tuple[Noted, ...] = ()

    @property
    def name(self) -> str:
        """The name of the measurement."""
        return self.measurement.name

    def only(self, places: Sequence[int]) -> "LogPart":
        """The part with the questions at these places alone, in this order."""
        kept: Fields = {"scores": self.scores[list(places)]}
        if self.otherwise is not None:
            kept["otherwise"] = self.otherwise[list(places)]
        for name in ("ids", "prompts", "questions", "answers", "replies", "notes"):
            column = getattr(self, name)
            if column:
                kept[name] = tuple(column[place] for place in places)
        kept["reasons"] = {n: self.reasons[place] for n, place in enumerate(places) if place in self.reasons}
        return self._replace(**kept)


class Log(NamedTuple):
    """The contents of a log about one model. `unread` lists in clauses the contents that cannot be judged.

    `prompt` is the text around the questions, and `settings` has it with other facts about the prompts.
    """

    parts: tuple[LogPart, ...]
    prompt: str = ""
    settings: Mapping[str, str] = {}
    unread: TextTuple = ()


class GivenLog(NamedTuple):
    """One log and its model, before or after an `attack`. `role` is a role in a table of scores.

    `laboratory` belongs to a control from the bank (`vestige.logs.bank`). `key` names the model inside a file that
    holds several. `base` is the base model of one that only predicts controls.
    """

    role: str
    name: str
    path: Path
    attack: str = ""
    laboratory: str = ""
    key: str = ""
    base: str = ""

    @property
    def model(self) -> tuple[str, str]:
        """The model and the attack on it."""
        return self.name, self.attack

    @property
    def is_target(self) -> bool:
        """Whether the model is the unchanged target."""
        return self.role == "target" and not self.attack

    @property
    def is_control(self) -> bool:
        """Whether the model is an unchanged control."""
        return self.role == "retrained" and not self.attack

    @property
    def who(self) -> str:
        """The model and the file, for a message."""
        return f"{one_line(self.name, width=60)} ({one_line(str(self.path), width=200)})"


class Scale(NamedTuple):
    """The range of a score that is not in [0, 1], and its direction, as the user states them.

    With `nats` the score is a loss or a log-probability, and becomes a probability. It is the mean over the answer's
    tokens, or their sum if `tokens` names the column with their number.
    """

    low: float = 0.0
    high: float = 1.0
    direction: int = 1
    nats: bool = False
    tokens: str = ""


class How(NamedTuple):
    """The user's statements on logs: the scale of a score, and the columns of rows, by name.

    With `any_direction`, scores that are lower for who knows more are read as they are.
    """

    scales: Mapping[str, Scale] = {}
    columns: Mapping[str, str] = {}
    key: str = ""
    any_direction: bool = False


@dataclass(frozen=True)
class Beginning:
    """The first bytes of a file, by which a reader recognises it."""

    path: Path
    head: bytes
    whole: bool

    @property
    def value(self) -> Any:
        """Return the JSON value at the beginning of the file, as far as the bytes go. None if it is not JSON."""
        return _begun(self.head, self.whole)

    @property
    def first_row(self) -> Record:
        """Return the object in the first line of a JSON Lines file, or the first of a list. Empty if there is none."""
        match self.value:
            case [dict(row), *_] | dict(row):
                return row
        return {}


_HEAD = 2**16
"""The number of bytes that identify the kind of file."""


@lru_cache(maxsize=2)
def _begun(head: bytes, whole: bool) -> Any:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] not in (b"{", b"["):
        return None
    line, ended, _ = text.partition(b"\n")
    # The text is one value that is cut off, or JSON Lines, of which the first may be cut off.
    for part, partial in ((text, not whole), (line, not (ended or whole)), (text, True)):
        try:
            return from_json(part, allow_partial=partial)
        except ValueError as error:
            damaged = str(error)
    # A damaged log is still a log, and its reader rejects it.
    place = re.search(r"line (\d+) column (\d+)", damaged)
    if place is None:
        return None
    lines = text.split(b"\n")[: int(place[1])]
    lines[-1] = lines[-1][: max(0, int(place[2]) - 1)]
    try:
        return from_json(b"\n".join(lines), allow_partial=True)
    except ValueError:
        return None


def beginning(path: Path) -> Beginning:
    """The beginning of a file."""
    with open_input(path) as file:
        head = as_utf8(file.read(_HEAD))
        return Beginning(path, head, not file.read(1))


def read_value(path: Path) -> Any:
    """The JSON value of a file. A damaged file is refused with line and column."""
    content = as_utf8(read_bytes(path))
    try:
        return from_json(content, cache_strings="keys")
    except ValueError:
        # The slower reader accepts a byte order mark and reports the position of damage.
        return read_json(path)


_LOWER = "brier_score brier ter wer cer edit_distance levenshtein bits_per_byte refusal refused refusal_rate refusals"
"""Scores that are lower for a model with more knowledge. For other names, the target's position relative to its
controls decides.
"""
_NATS = re.compile(
    r"(?<![a-z])(?:loss(?:es)?|nll|cross_?entropy|log_?(?:p|probs?|probability|likelihoods?|liks?)|perplexity|ppl)(?![a-z])"
)
_MEAN = re.compile(r"(?<![a-z])(?:mean|avg|average|per_token)(?![a-z])")
FROM_NATS = "probability by "
"""Before the name of a loss, the name of the probability that follows from it."""


def is_loss(name: str) -> bool:
    """Whether a score is a loss, a log-probability or a perplexity by its name: without an end, so without a range.

    Example:
        >>> [is_loss(name) for name in ("avg_gt_loss", "raw_logprobs", "glossary")]
        [True, True, False]
    """
    return not name.startswith(FROM_NATS) and bool(_NATS.search(plain(name)))


def plain(name: str) -> str:
    """The name of a column or score in lower case, with underscores."""
    return re.sub(r"[\s-]+", "_", name.strip().casefold())


_DECODING = (
    "temperature do_sample top_p top_k min_p repetition_penalty num_beams max_gen_toks max_new_tokens max_tokens until "
    "stopwords system_message"
)
"""The settings of replies, which must be equal in two compared logs."""


class LogReading:
    """A log during reading: `add` takes the scores one by one, and notes those that cannot be used."""

    def __init__(self, path: Path, how: How) -> None:
        self.path = path
        self.scales = how.scales
        self.lower: frozenset[str] = frozenset() if how.any_direction else frozenset(_LOWER.split())
        self.parts: list[LogPart] = []
        self.unread: list[str] = []
        self.frames: set[str] = set()
        self.settings: dict[str, dict[str, None]] = defaultdict(dict)
        self.task = ""
        self.divided: set[str] = set()
        """Sums over tokens that were divided by the number of tokens."""

    def add(
        self,
        split: str,
        measurement: Measurement,
        scores: Iterable[Any],
        *,
        ids: Iterable[Any] = (),
        prompts: Iterable[Any] = (),
        answers: Iterable[Any] = (),
        replies: Iterable[Any] = (),
        reasons: Mapping[int, str] | None = None,
        chance: float | None = None,
        otherwise: Iterable[float] | None = None,
        notes: Sequence[Any] = (),
    ) -> None:
        """Take the scores of one measurement in the order of their questions.

        Args:
            split: The split of the questions.
            measurement: The prompts and scores.
            scores: A number for each question. None or NaN is a missing score.
            ids: The tool's own ids of the questions.
            prompts: The prompts as the log has them.
            answers: The true answers.
            replies: The model's replies.
            reasons: Why scores are missing, by position.
            chance: What guessing scores.
            otherwise: The scores by the other definition, where the log fits two.
            notes: A Vestige export's note on each question. If all have one, they state the split, the measurement and
                the chance.
        """
        if notes and all(isinstance(note, dict) and note for note in notes):
            texts_of = {"ids": ids, "prompts": prompts, "answers": answers, "replies": replies}
            self._add_noted(list(scores), {name: list(texts) for name, texts in texts_of.items()}, notes)
            return
        scores = list(scores)
        label = f"{split}, {measurement.name}"
        numbers = [number_of(score) for score in scores]
        values = np.array(numbers, dtype=float)
        most = STRAY * len(scores)
        strays: dict[int, str] = {}
        for place, (score, number) in enumerate(zip(scores, numbers, strict=True), 1):
            if number is None and isinstance(score, str) and not is_empty(score):
                strays[place - 1] = f"{one_line(score, width=40)!r} in row {place} is no number"
        if len(strays) > most:
            self.unread.append(f"{label}: {next(iter(strays.values()))}")
            return
        if str in map(type, scores) and per_cent_and_shares(scores):
            self.unread.append(f"{label}: some scores have a per cent sign and others have none; write all alike")
            return
        infinite = np.flatnonzero(np.isinf(values)).tolist()
        strays |= dict.fromkeys(infinite, "the score is infinite")
        values[infinite] = np.nan
        if np.isnan(values).all():
            first = one_line(repr(scores[:1]), width=40)
            self.unread.append(f"{label}: the score is missing on all {len(values)} questions (such as {first})")
            return
        scale = self.scales.get(measurement.name)
        # A loss in another unit is rejected below.
        in_nats = (scale and scale.nats) or ((scale or self.lower) and is_loss(measurement.name))
        if measurement.score_type in ("hit", "overlap") and in_nats:
            problem = self._nats_problem(measurement.name, values)
            if problem:
                self.unread.append(f"{label}: {problem}")
                return
            # The geometric mean of the probabilities of the answer's tokens.
            values = np.exp(-np.abs(values))
            name = f"{FROM_NATS}{measurement.name}"
            measurement = Measurement(name, "forced answer", "probability", metric="geometric mean over tokens")
            scale = None
        lower = plain(measurement.name.partition(",")[0]) in self.lower
        if lower and scale is None and measurement.score_type != "order":
            self.unread.append(
                f"{label}: a lower value means more knowledge. State its range, as in --logs "
                f"score:{one_line(measurement.name, width=60)}=0..1,lower"
            )
            return
        low, high = measurement.ends
        if scale is not None:
            low, high = scale.low, scale.high
        outside = np.flatnonzero((values < low) | (values > high))
        if outside.size > most:
            self.unread.append(f"{label}: {_outside(measurement.name, values, low, high)}")
            return
        strays |= {n: f"the score is {values[n]:g}, outside {low:g} to {high:g}" for n in outside.tolist()}
        values[outside] = np.nan
        if scale is not None:
            values = (values - scale.low) / (scale.high - scale.low)
            if scale.direction < 0:
                values = 1 - values
            if not np.isin(values[~np.isnan(values)], (0.0, 1.0)).all() and measurement.score_type == "hit":
                measurement = Measurement(measurement.name, measurement.question_type, "overlap")
        texts = [read_prompt(prompt) for prompt in map(str, prompts)]
        self.frames |= {text.frame for text in texts}
        part = LogPart(
            split,
            measurement,
            values,
            ids=_shared(tuple(map(str, ids))),
            prompts=_shared(tuple(text.identity for text in texts)),
            questions=_shared(tuple(text.question for text in texts)),
            answers=_shared(tuple(map(str, answers))),
            replies=tuple(map(str, replies)),
            reasons=strays | dict(reasons or {}),
            chance=chance,
            task=self.task,
            otherwise=None if otherwise is None else np.array(list(otherwise)),
        )
        columns = (part.ids, part.prompts, part.answers, part.replies)
        if any(len(column) not in (0, len(values)) for column in columns):
            raise InputError(f"{self.path}: {label} has different numbers of texts and scores. Create the log again.")
        self.parts.append(part)

    def decoded_with(self, stated: Any, of: str = "") -> None:
        """Take the stated settings of the replies. `of` names the metric."""
        for name in _DECODING.split() if isinstance(stated, dict) else ():
            if stated.get(name) is not None:
                self.settings[f"{of}{name}"][str(stated[name])] = None

    def _nats_problem(self, name: str, values: Scores) -> str:
        """Why a loss cannot be read as a probability, "" if it can."""
        scale, scores, label = self.scales.get(name), values[~np.isnan(values)], one_line(name, width=60)
        if re.search("perplexity|ppl", plain(name)):
            return "a perplexity is the exponential of a loss; give the loss, its logarithm"
        if not (scale.nats if scale else _MEAN.search(plain(name))):
            return (
                "a loss has no range, and is judged as a probability a token. State it: --logs "
                f"score:{label}=nats for the mean over the tokens, score:{label}=nats/COLUMN for their sum"
            )
        if scale and scale.tokens and name not in self.divided:
            return (
                f"only rows of your own have a column {one_line(scale.tokens, width=40)}; give the mean over the tokens"
            )
        if scores.min() < 0 < scores.max():
            return "it is below 0 for some questions and above 0 for others"
        return ""

    def _add_noted(self, scores: list[Any], columns: Mapping[str, list[Any]], notes: Sequence[Record]) -> None:
        """Take the scores of one measurement of an export, split by split."""
        by_split: dict[str, list[int]] = {}
        for place, note in enumerate(notes):
            # The others have no question that this measurement scores.
            if "measurement" in note:
                by_split.setdefault(str(note.get("split")), []).append(place)
        if not by_split:
            return
        first = next(iter(by_split.values()))[0]
        measurement = typed(self.path, Measurement, notes[first]["measurement"])
        for split, places in by_split.items():
            if split not in get_args(Split):
                raise InputError(f"{self.path}: {one_line(split, width=40)!r} is not a split. The export was changed.")
            known = [_noted(self.path, notes[n]) for n in places]
            values = [number_of(scores[n]) for n in places]
            if measurement.direction < 0:
                # For judging, a higher score means more knowledge.
                turn = measurement.high or 0.0
                values = [None if value is None else turn - value for value in values]
                known = [note._replace(chance=None if note.chance is None else turn - note.chance) for note in known]
            reasons = {at: str(notes[n]["reason"]) for at, n in enumerate(places) if notes[n].get("reason")}
            of_split: Fields = {}
            for name, column in columns.items():
                if column:
                    of_split[name] = [column[n] for n in places]
            task, self.task = self.task, ""
            before = len(self.parts)
            self.add(split, replace(measurement, direction=1), values, reasons=reasons, **of_split)
            self.task = task
            self.parts[before:] = [part._replace(notes=tuple(known)) for part in self.parts[before:]]

    def log(self) -> Log:
        """Return everything read from the log. A log without any score is refused."""
        if not self.parts:
            why = one_line("; ".join(dict.fromkeys(self.unread)), width=400) or "none of its scores is known"
            raise InputError(f"{self.path}: holds no scores by question that can be judged: {why}")
        # With several frames, none represents the log, and logs cannot be compared by it.
        prompt = next(iter(self.frames)) if len(self.frames) == 1 else ""
        settings = {name: " / ".join(sorted(values)) for name, values in self.settings.items()}
        if prompt:
            settings["words around the question"] = prompt
        return Log(tuple(self.parts), prompt, settings, tuple(dict.fromkeys(self.unread)))


def _noted(path: Path, note: Record) -> Noted:
    stated = {key: note[key] for key in Noted._fields if note.get(key) is not None}
    noted = typed(path, Noted, stated, remedy="The export was changed.")
    if not math.isfinite(noted.chance or 0.0):
        raise InputError(f"{path}: the chance {noted.chance} is not a number. The export was changed.")
    return noted


def note_on(note: Any, measurement: str) -> Fields | None:
    """Return the note of a Vestige export on a question, for one of several measurements. None in other logs."""
    measured = note.get("measured") if isinstance(note, dict) else None
    if isinstance(measured, dict):
        return {**note, **measured.get(measurement, {})}
    return None


def hits_or_graded(scores: Iterable[float]) -> ScoreType:
    """Return the type of unknown scores: hits if all are 0 or 1. Zeros may be left out."""
    if {score for score in scores if math.isfinite(score)} <= {0.0, 1.0}:
        return "hit"
    return "overlap"


_RIGHT = "true yes y pass passed correct c wahr vrai verdadero vero verdadeiro waar sant prawda"
_WRONG = "false no fail failed incorrect i n falsch faux falso onwaar falskt fałsz"
_WORDS = {
    **dict.fromkeys(_RIGHT.split(), 1.0),
    **dict.fromkeys(("partial", "p"), 0.5),
    **dict.fromkeys(_WRONG.split(), 0.0),
}
"""Scores that tools write as words. Inspect's C, P, I and N are correct, partial, incorrect and no answer. Excel
localises truth values.
"""


def number_of(score: Any) -> float | None:
    """Return a score as a number, from a number of any type, a truth value or a text with a number. None for others.

    Example:
        >>> [number_of(score) for score in (1, True, "0,25", "25 %", "C", "no idea")]
        [1.0, 1.0, 0.25, 0.25, 1.0, None]
    """
    scale = 1.0
    if isinstance(score, str):
        word = score.strip().lower()
        if word in _WORDS:
            return _WORDS[word]
        if word.endswith("%"):
            word, scale = word[:-1], 100.0
        # A decimal comma.
        if word.count(",") == 1 and "." not in word:
            word = word.replace(",", ".")
        score = word
    try:
        return float(score) / scale
    except (TypeError, ValueError, OverflowError):
        return None


_EMPTY = ("", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", ".", "-")


def is_empty(score: str) -> bool:
    """Whether a text is how R, pandas or a spreadsheet writes a missing number."""
    return score.strip().lower() in _EMPTY


def per_cent_and_shares(scores: Iterable[Any]) -> bool:
    """Whether some scores have a per cent sign and other numbers have none, so that 55 of either may be meant."""
    signs = {str(score).strip().endswith("%") for score in scores if number_of(score) not in (None, 0.0, 1.0)}
    return len(signs) > 1


STRAY = 0.05
"""The largest share of questions whose score may be no number or out of range. It is missing for them. A larger share
shows that the score has another range.
"""


def _outside(name: str, values: Scores, low: float, high: float) -> str:
    """Why scores outside of a range cannot be used, and the option with which they can."""
    known = values[~np.isnan(values)]
    beyond = int(((values < low) | (values > high)).sum())
    levels, stated = np.unique(known), f"score:{one_line(name, width=60)}"
    kind = "share in [0, 1]" if (low, high) == (0.0, 1.0) else f"number in [{low:g}, {high:g}]"
    ends = f"{known.min():g} and {known.max():g}"
    said = f"the score is no {kind} on {beyond} of {len(values)} questions (they lie between {ends})"
    if levels.size <= 11 and np.array_equal(levels, np.round(levels)):
        said += f"; for a rating scale state its range, as in --logs {quote(f'{stated}=1..5')}"
    elif known.min() >= 0 and known.max() <= 100:
        said += f"; for per cent state the range, as in --logs {quote(f'{stated}=0..100')}"
    elif known.max() <= 0:
        said += f"; for log-probabilities give --logs {quote(f'{stated}=nats')}"
    return said


@cache
def _shared(column: TextTuple) -> TextTuple:
    """Return the same tuple for equal texts: a thousand logs of one data set store its questions once."""
    return column


class Prompt(NamedTuple):
    """A prompt as logs are matched by it.

    `identity` is the whole user's turn without the template's words, `question` the last question in it, and `frame`
    the text around that question.
    """

    identity: str
    question: str
    frame: str


_TURNS = (
    ("[INST]", "[/INST]"),
    ("<|start_header_id|>user<|end_header_id|>", "<|eot_id|>"),
    ("<|im_start|>user", "<|im_end|>"),
    ("<start_of_turn>user", "<end_of_turn>"),
    ("<|user|>", "<|"),
    ("user\n", "assistant\n"),
)
"""The marks before and after the user's turn in the chat templates that logs have."""
_PLAIN = (("Question:", "Answer:"), ("Q:", "A:"))
"""The words before and after the question in the plain form."""


@cache
def read_prompt(prompt: str) -> Prompt:
    """Parse a log's prompt.

    Example:
        >>> read_prompt("[INST] Ships lie in bays. Question: Where? Answer: [/INST]").identity
        'Ships lie in bays. Where?'
    """
    prompt = normalize("NFC", _rendered(prompt))
    start, end = _span(prompt, _TURNS)
    turn = prompt[start:end]
    begin, close = _span(turn, _PLAIN)
    # The examples before the question have the same words, which do not identify the question.
    identity = re.sub(r"(?:Question|Answer|Q|A):", " ", turn)
    around = f"{prompt[:start]}{turn[:begin]} QUESTION {turn[close:]}{prompt[end:]}"
    # Dates change daily.
    frame = re.sub(r"\d{1,2} \w{3,9} \d{4}", "DATE", around)
    texts = (" ".join(text.split()) for text in (identity, turn[begin:close], frame))
    return Prompt(*(sys.intern(text) for text in texts))


def _rendered(prompt: str) -> str:
    """A chat in JSON, which lm-eval logs of models behind an address, with the marks of a template. Else unchanged."""
    if not prompt.lstrip().startswith('[{"'):
        return prompt
    try:
        turns = from_json(prompt)
        texts = [(str(turn["role"]), message_text(turn["content"])) for turn in turns]
    except (ValueError, TypeError, LookupError):
        return prompt
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in texts)


def message_text(content: Any) -> str:
    """The text of a message, whose content may be a list of parts."""
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _span(prompt: str, marks: Sequence[tuple[str, str]]) -> tuple[int, int]:
    """Return the position of the last turn or question, since examples may precede it."""
    for begin, close in marks:
        at = prompt.rfind(begin)
        if at >= 0:
            start = at + len(begin)
            end = prompt.find(close, start)
            return start, end if end >= 0 else len(prompt)
    return 0, len(prompt)


@lru_cache(maxsize=64)
def _names(n: int) -> list[str]:
    return [str(number) for number in range(n)]


def indexed(values: Any) -> tuple[list[str], list[Any]]:
    """The keys and values of a list, or of an object whose keys number them."""
    if isinstance(values, list):
        return [str(n) for n in range(len(values))], values
    if not isinstance(values, dict):
        return [], []
    keys = list(values)
    if keys == _names(len(keys)):
        return keys, list(values.values())
    # Keys are numbers as texts, of which "10" would sort before "2".
    ordered = sorted(keys, key=lambda key: (len(key), key))
    return ordered, [values[key] for key in ordered]


def in_order(values: Any) -> list[Any]:
    """The values of a list, or of an object whose keys number them."""
    return indexed(values)[1]


def json_lines(path: Path) -> Iterator[Any]:
    """The JSON value of each line that is not empty."""
    with open_input(path, most=MOST_READ) as file:
        # Reading a file in pieces does not find the lines of UTF-16.
        lines = file if as_utf8(file.peek()[:2]) else as_utf8(file.read()).splitlines()
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield from_json(line, cache_strings="keys")
            except ValueError:
                yield _slowly(path, number, line)


def _slowly(path: Path, number: int, line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}, line {number}: is not JSON ({one_line(str(error))}). The log is damaged.") from error


def listed(where: Path, value: Any, keys: Sequence[str]) -> list[Record]:
    """A list of objects that all have `keys`, or an InputError."""
    if not isinstance(value, list) or not all(isinstance(row, dict) and all(k in row for k in keys) for row in value):
        raise InputError(
            f"{where}: is not a list of objects with {', '.join(keys)}. The log is damaged or another tool's"
        )
    return value


def refuse_repeated(where: Path, of: str, documents: Sequence[Any]) -> None:
    """Reject a log with repeated questions: each would count several times."""
    document, times = Counter(documents).most_common(1)[0]
    if times > 1:
        raise InputError(
            f"{where}: document {one_line(str(document), width=60)} appears {times} times "
            f"({one_line(of, width=60)}), although it is one question. Keep one line"
        )
