"""Convert a question and its answer to token ids, with the answer's position.

The rendered whole (prompt, answer, end of turn) is tokenised once, and the answer's tokens are found by their character
offsets. So the tokens are those that the model meets in use. A tokeniser that runs prompt and answer together in one
token is refused, since then no token is the answer's first.

Chat templates: their choice and their rendering, as in transformers, under bounds.

Template and tokeniser come with the model, and a question that they drop or rewrite was never asked. Every question
must replace a question of random words in its rendering, with the same text around it. Its tokens must decode to its
text, and case, Unicode form and white space must change in the same way in all questions (`Prompter.check_questions`).
A tokeniser may lack a token for a sign. The report names such questions (`Prompter.unknown`).
"""

import contextlib
import datetime
import json
import secrets
import string
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, NoReturn

from jinja2 import Template
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.utils import Namespace
from transformers import PreTrainedTokenizerBase

from vestige.core.errors import InputError
from vestige.core.files import read_text
from vestige.core.ids import content_id
from vestige.core.sandbox import BoundedEnvironment, work_bounded
from vestige.core.text import TextMapping, TextTuple, closest, one_line, system_of
from vestige.models.folders import tokenizer_digest

# A template that prints today's date would give another prompt every day.
PINNED_DATE = "01 Jan 2026"
_PINNED = datetime.datetime(2026, 1, 1)
PLAIN = "plain"
PLAIN_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}Question: {{ m.content }}\nAnswer:"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
"""For tokenisers without a chat template."""
_MOST_CHARACTERS = 1_000_000
_MOST_WORK, _WORK_A_CHARACTER = 500_000, 100
"""The limits of a rendering (`core.sandbox`): templates of large models take some ten thousands for a short chat."""


def own_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the template of a tokeniser: its own, the default one among several, or the plain one."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        if "default" not in template:
            raise InputError(
                f"the tokeniser brings the chat templates {', '.join(map(one_line, sorted(template)))} and no default. "
                "Name one with --chat-template"
            )
        template = template["default"]
    if template is not None and not isinstance(template, str):
        raise InputError(
            f"the chat template of the tokeniser is not text but a {type(template).__name__}. Set --chat-template"
        )
    if template is None:
        return PLAIN_TEMPLATE
    return template


def use_template(tokenizer: PreTrainedTokenizerBase, choice: str) -> str:
    """Set the tokeniser's only template, and return the template's name for the provenance.

    `wanted` is the name of one of its templates, `plain`, or a file. Without one, it is the model's own.
    """
    stored = tokenizer.chat_template
    if isinstance(stored, dict):
        by_name = stored
    elif stored is None:
        by_name = {}
    else:
        by_name = {"default": stored}
    if not choice:
        text = own_template(tokenizer)
        if stored is not None:
            tokenizer.chat_template = text
        if stored is None:
            return PLAIN
        if isinstance(stored, dict):
            return "own: default"
        return "own"
    if choice in by_name:
        tokenizer.chat_template = by_name[choice]
        tokenizer.chat_template = own_template(tokenizer)
        return f"own: {choice}"
    if choice == PLAIN:
        tokenizer.chat_template = PLAIN_TEMPLATE
        return PLAIN
    path = Path(choice).expanduser()
    if not path.is_file():
        raise InputError(
            f"no chat template {one_line(choice)!r}: neither a file nor a template of the model. "
            f"{closest(choice, [*map(one_line, by_name), PLAIN])}"
        )
    tokenizer.chat_template = read_text(path)
    return f"file {path.name}"


def rendered(
    tokenizer: PreTrainedTokenizerBase, template: str, messages: Sequence[TextMapping], *, answered: bool
) -> str:
    """Return the text of a chat. Without `answered` it ends before the model's answer. Raises if the template fails."""
    if len(template) > _MOST_CHARACTERS:
        raise InputError(f"the chat template is {len(template)} characters long. Set a shorter --chat-template")
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    try:
        with work_bounded(_MOST_WORK + _WORK_A_CHARACTER * sum(len(m["content"]) for m in messages)):
            return _compiled(template).render(
                **special,
                messages=[dict(m) for m in messages],
                tools=None,
                documents=None,
                add_generation_prompt=not answered,
                date_string=PINNED_DATE,
            )
    except Exception as error:  # A template is foreign code and can raise anything.
        reason = one_line(str(error), width=200) or type(error).__name__
        kind = "cannot be rendered"
        if isinstance(error, SecurityError):
            kind = "is refused by the sandbox"
        line = ""
        if number := getattr(error, "lineno", None):
            line = f" in line {number}"
        raise InputError(
            f"the chat template of the model {kind}{line} ({reason}). Give another with --chat-template, or plain"
        ) from error


class _Generation(Extension):
    """`{% generation %}` marks the model's own text in training. Here it is plain text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(str(message))


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(form: str) -> str:
    return _PINNED.strftime(form)


@lru_cache(maxsize=1)
def _environment() -> BoundedEnvironment:
    environment = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.add_filter("tojson", _tojson)
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now, "namespace": Namespace}
    return environment


@lru_cache(maxsize=64)
def _compiled(template: str) -> Template:
    return _environment().from_string(template)


def _plain(text: str) -> str:
    """The text without what tokenisers change and leave readable: white space, case, marks, forms of one sign."""
    signs = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in signs if not c.isspace() and c != "\u2581" and unicodedata.category(c)[0] not in "CM")


_Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
_Change = Callable[[str], str]
"""A change that a tokeniser may make of every text."""


def _mapping(form: _Form | None, marks: bool, lower: bool, clean: bool) -> _Change:
    """Return one way in which a tokeniser may change the letters of every text."""

    def change(text: str) -> str:
        if form:
            text = unicodedata.normalize(form, text)
        if not (marks or text.isascii()):
            text = "".join(c for c in text if unicodedata.category(c) != "Mn")
        if clean and not text.isprintable():
            text = "".join(c for c in text if unicodedata.category(c)[0] != "C")
        if lower:
            return text.lower()
        return text

    return change


def _letter_mappings() -> list[_Change]:
    mappings = []
    forms: tuple[_Form | None, ...] = (None, "NFC", "NFD", "NFKC", "NFKD")
    for form in forms:
        # Marks can be omitted only if they are separate characters.
        for marks in (True, False) if form in ("NFD", "NFKD") else (True,):
            for lower in (False, True):
                mappings += [_mapping(form, marks, lower, clean) for clean in (False, True)]
    return mappings


_LETTERS = tuple(_letter_mappings())
# With about 40 tokens each they take 10 MB.
_MOST_TEXTS = 8192
_ACCEPTED: dict[str, list[frozenset[str]]] = {}
"""The questions that a prompter accepts together, by its digest."""
_CASED = frozenset(("Ll", "Lu", "Lt", "Nd"))


def _squashed(text: str) -> str:
    return "".join(text.replace("\u2581", " ").split())


def _between_letters(text: str) -> str:
    """The text with the spaces between letters of scripts that have case, and no others."""
    words = " ".join(text.split())
    kept = []
    for at, sign in enumerate(words):
        if sign != " " or {unicodedata.category(words[at - 1]), unicodedata.category(words[at + 1])} <= _CASED:
            kept.append(sign)
    return "".join(kept)


_SPACES: tuple[_Change, ...] = (
    lambda text: text.strip(),
    lambda text: " ".join(text.split()),
    _between_letters,
    _squashed,
)
"""The treatment of white space by a tokeniser, from full to none."""


def check_decoder(tokenizer: PreTrainedTokenizerBase) -> None:
    """Reject a tokeniser whose decoder replaces letters: its text would differ from the model's output."""
    decoder = tokenizer.backend_tokenizer.decoder
    if decoder is None:
        return
    steps = [json.loads(decoder.__getstate__())]
    for step in steps:
        steps += step.get("decoders", [])
        texts = [step.get(name) for name in ("content", "prefix", "suffix")]
        texts += step["pattern"].values() if isinstance(step.get("pattern"), dict) else []
        for text in texts:
            if isinstance(text, str) and text != "</w>" and any(c.isalnum() for c in text):
                raise InputError(
                    f"the decoder of the tokeniser replaces {one_line(text, width=60)!r}, so its text differs from the "
                    "model's output. Take the tokeniser of the model that this one was made from."
                )


def _random_words() -> str:
    letters = [secrets.choice(string.ascii_letters) for _ in range(24)]
    return " ".join("".join(letters[n : n + 6]) for n in range(0, 24, 6)) + "?"


def _stripped(text: str) -> set[str]:
    """Return the possible treatments of the white space around a text by a template."""
    return {text, text.strip(), text.lstrip(), text.rstrip()}


@dataclass(frozen=True)
class Encoded:
    """Token ids of a rendered question with its answer: `ids[start:stop]` is the answer, `ids[end]` ends the turn.

    Between the two a template may put something of its own, such as a space. `ids[:start]` is the prompt, token for
    token, after which the model answers.
    """

    ids: tuple[int, ...]
    start: int
    stop: int
    end: int

    @property
    def answer_ids(self) -> tuple[int, ...]:
        """The answer's tokens, without the one that ends the turn."""
        return self.ids[self.start : self.stop]


@dataclass(frozen=True, eq=False)
class Prompter:
    """Renders and tokenises in the one form that training, scoring and generation share.

    The model reads `max_tokens` and has `rows` embeddings. A text with a token beyond them is refused. Prompters of
    equal content are equal: in one process many models have the same tokeniser, and each text is read once.
    """

    tokenizer: PreTrainedTokenizerBase
    max_tokens: int
    rows: int = sys.maxsize

    @cached_property
    def template(self) -> str:
        """The tokeniser's own chat template, or the plain one."""
        return own_template(self.tokenizer)

    @cached_property
    def template_digest(self) -> str:
        """Return the content id of a question's rendering: the template, its date, and a rendered probe."""
        probe = self._render("What is asked?", "What is answered.")
        return content_id([self.template, PINNED_DATE, probe], length=32)

    @cached_property
    def digest(self) -> str:
        """Content id of what decides a prompt's tokens: the tokeniser and how a question is put."""
        return content_id([tokenizer_digest(self.tokenizer), self.template_digest], length=32)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prompter) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @cached_property
    def _content(self) -> tuple[object, ...]:
        # A tokeniser class from a model may behave differently from its file.
        return type(self.tokenizer), self.digest, self.max_tokens, self.rows

    def _render(self, question: str, answer: str | None) -> str:
        system, asked = self._turns(question)
        messages = [{"role": "user", "content": asked}]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        if answer is not None:
            messages.append({"role": "assistant", "content": answer})
        return self.chat(messages, answered=answer is not None)

    def _turns(self, question: str) -> tuple[str, str]:
        """The system turn, "" without one, and the user's turn. Without a system role both are the user's."""
        system, asked = system_of(question)
        if system and self._under_system is None:
            return "", f"{system}\n\n{asked}"
        return system, asked

    def chat(self, messages: Sequence[TextMapping], *, answered: bool) -> str:
        """Return the text of several turns. Without `answered` it ends before the model's answer."""
        return rendered(self.tokenizer, self.template, messages, answered=answered)

    def rendered(self, question: str) -> str:
        """The text after which the model answers."""
        return self._render(question, None)

    def prompt(self, question: str) -> tuple[int, ...]:
        """Token ids after which the model answers. Rejects token ids that do not match the question."""
        ids = self._prompted(question)[1]
        if len(ids) >= self.max_tokens:
            raise InputError(
                f"the question {one_line(question, width=60)!r} takes {len(ids)} tokens and the model reads "
                f"{self.max_tokens}. Shorten it or take a model with a longer context"
            )
        self._check_rows(ids)
        return ids

    def check(self) -> None:
        """Reject a template that fails, and one that drops or rewrites every question."""
        assert self.digest
        check_decoder(self.tokenizer)
        self.read(self._put(self._canary[0]), "a question of random words")

    def check_questions(self, questions: Iterable[str]) -> None:
        """Reject a tokeniser or template that changes some questions differently from the rest.

        Args:
            questions: All questions of the evaluation.

        Raises:
            InputError: A question is dropped or rewritten, or no single mapping of case, Unicode form and white space
                explains the tokens of all questions.
        """
        different = frozenset(questions)
        # Many models in one process share a tokeniser.
        accepted = _ACCEPTED.setdefault(self.digest, [])
        if any(different <= earlier for earlier in accepted):
            return
        around = self._canary[1]
        decoded = self._decoded(self._tokens(around))
        letters = self._explaining(_LETTERS, around, decoded, _squashed)
        # A tokeniser that keeps white space in random words must keep it in every question.
        spaces = [keep for keep in _SPACES if self._keeps(keep, letters, around, decoded)]
        if len(spaces) > 1:
            spaces.remove(_squashed)
        for question in sorted(different):
            where = f"the question {one_line(question, width=60)!r}"
            text = self._put(question)
            ids = self.read(text, where)
            if self._unknown_id in ids:
                continue
            decoded = self._decoded(ids)
            letters = self._explaining(letters, text, decoded, _squashed)
            spaces = [keep for keep in spaces if self._keeps(keep, letters, text, decoded)]
            if not letters or not spaces:
                raise InputError(
                    f"the tokeniser of the model does not change {where} as it changes others: its tokens say "
                    f"{one_line(decoded, width=200)!r}. Take the tokeniser of the model that this one was made from."
                )
        accepted.append(different)

    @staticmethod
    def _explaining(mappings: Sequence[_Change], text: str, decoded: str, keep: _Change) -> list[_Change]:
        """The mappings that make of the text what its tokens say."""
        said = keep(decoded)
        return [change for change in mappings if keep(change(text)) == said]

    def _keeps(self, keep: _Change, letters: Sequence[_Change], text: str, decoded: str) -> bool:
        """Return whether one of the mappings explains the tokens with this treatment of white space."""
        whole, said = (part.replace("\u2581", " ") for part in (text, decoded))
        said = keep(said)
        return any(keep(change(whole)) == said for change in letters)

    def _decoded(self, ids: Sequence[int]) -> str:
        text = self.tokenizer.backend_tokenizer.decode(list(ids), skip_special_tokens=False)
        assert isinstance(text, str)
        return text

    @lru_cache(_MOST_TEXTS)  # noqa: B019, bounded, and held by prompters that are equal
    def _prompted(self, question: str) -> tuple[str, tuple[int, ...]]:
        text = self._put(question)
        return text, self.read(text, f"the question {one_line(question, width=60)!r}")

    def _put(self, question: str) -> str:
        """The text after which the model answers, if the question is in it as any other would."""
        words, around = self._canary
        text = self._render(question, None)
        system, asked = self._turns(question)
        expected = {around}
        if system and self._under_system is not None:
            system_words, around = self._under_system
            expected = {around.replace(system_words, form) for form in _stripped(system)}
        if text not in {whole.replace(words, form) for whole, form in product(expected, _stripped(asked))}:
            raise InputError(
                f"the chat template of the model renders the question {one_line(question, width=60)!r} unlike "
                f"others, as {one_line(text, width=200)!r}. Give "
                "another with --chat-template, or plain"
            )
        return text

    @cached_property
    def _under_system(self) -> tuple[str, str] | None:
        """A system turn of random words, and the text that it and the canary's question are put in.

        None for a template without a system role, which refuses or drops such a turn, or takes it for the model's.
        """
        system, asked = _random_words(), {"role": "user", "content": self._canary[0]}
        if self.template == PLAIN_TEMPLATE:
            return None
        try:
            text = self.chat([{"role": "system", "content": system}, asked], answered=False)
        except InputError:
            return None
        with contextlib.suppress(InputError):
            if text == self.chat([{"role": "assistant", "content": system}, asked], answered=False):
                return None
        if system not in text or self._canary[0] not in text:
            return None
        return system, text

    @cached_property
    def _canary(self) -> tuple[str, str]:
        """A question of words that no template has seen, and the text that it is put in."""
        words = _random_words()
        around = self._render(words, None)
        if words not in around:
            raise InputError(
                "the chat template of the model drops or rewrites the question. "
                "Give another with --chat-template, or plain"
            )
        return words, around

    def read(self, text: str, role: str) -> tuple[int, ...]:
        """Return the tokens of a text, if they decode to it."""
        ids = self._tokens(text)
        self._check_says(ids, text, role)
        return ids

    def _check_says(self, ids: Sequence[int], text: str, role: str) -> None:
        """Reject tokens that do not decode to their text, apart from white space, case, marks and unknown signs."""
        decoded = self._decoded(ids)
        if "".join(decoded.split()) == "".join(text.split()) or _plain(decoded) == _plain(text):
            return
        if self._unknown_id in ids and self._says_but_for_unknown(ids, _plain(text)):
            return
        raise InputError(
            f"the tokeniser of the model rewrites {role}: its tokens decode to {one_line(decoded, width=200)!r}, so "
            "the model would read another text. Give its own tokeniser (--tokenizer)"
        )

    def _says_but_for_unknown(self, ids: Sequence[int], plain: str) -> bool:
        """Whether the tokens decode to a text in which anything represents each that the tokeniser does not know."""
        runs: list[list[int]] = [[]]
        for i in ids:
            if i == self._unknown_id:
                runs.append([])
            else:
                runs[-1].append(i)
        decode = self.tokenizer.backend_tokenizer.decode
        first, *middle, last = (_plain(decode(run, skip_special_tokens=False)) for run in runs)
        at, end = len(first), len(plain) - len(last)
        for part in middle:
            begins = plain.find(part, at, end)
            if begins < 0:
                return False
            at = begins + len(part)
        return plain.startswith(first) and plain.endswith(last) and at <= end

    @cached_property
    def _unknown_id(self) -> int | None:
        """Return the token for unknown characters, or None."""
        unknown: int | None = self.tokenizer.unk_token_id
        if unknown in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id):
            return None
        return unknown

    def unknown(self, text: str) -> bool:
        """Whether the tokeniser has no token for a part of the text, which the model then cannot read."""
        return self._unknown_id is not None and self._unknown_id in self._tokens(text)

    def question_span(self, question: str) -> tuple[int, int]:
        """Return the first and one past the last of the question's own tokens in `prompt`, without the template's."""
        text, whole = self._turns(question)[1].strip(), self._put(question)
        first = whole.rfind(text)
        encoding = self.tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        ids, offsets = encoding["input_ids"], encoding["offset_mapping"]
        span = [i for i, (a, b) in enumerate(offsets) if first < b and a < first + len(text) and a < b]
        if not text or first < 0 or not span:
            raise InputError(f"the rendered chat lacks {one_line(question, width=60)!r}. Change --chat-template")
        self._check_says(ids[span[0] : span[-1] + 1], text, f"the question {one_line(question, width=60)!r}")
        return span[0], span[-1] + 1

    @lru_cache(_MOST_TEXTS)  # noqa: B019, bounded, and held by prompters that are equal
    def encode(self, question: str, answer: str) -> Encoded:
        """Token ids of the whole, with the answer's span.

        Refused, with the question: an answer without tokens, an answer that shares a token with the prompt, and more
        tokens than the model reads.
        """
        where = f"the question {one_line(question, width=60)!r}"
        text = answer.strip()
        prompt, prompt_ids = self._prompted(question)
        whole = self._render(question, answer)
        # The template's suffix is excluded: "im" also occurs in <|im_end|>.
        first = whole.rfind(text, 0, len(whole) - len(self._tail) if whole.endswith(self._tail) else len(whole))
        if not text:
            raise InputError(f"{where} has an empty answer. Give one")
        if first < 0:
            raise InputError(f"{where}: the rendered chat lacks {one_line(answer, width=40)!r}. Change --chat-template")
        if not whole.startswith(prompt) or whole[len(prompt) : first].strip():
            # Some templates put different text before a given answer and before a requested one, such as an empty block
            # of thought. The requested form counts.
            whole, first = prompt + whole[first:], len(prompt)
        last = first + len(text)
        encoding = self.tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        ids, offsets = tuple(encoding["input_ids"]), encoding["offset_mapping"]
        start = len(prompt_ids)
        # The start of a token decides: some tokenisers remove white space from a token's offsets, and a token of only
        # white space has empty ones.
        stop = next((i for i in range(start, len(ids)) if offsets[i][0] >= last), len(ids))
        if stop == start:
            raise InputError(f"{where}: its answer {one_line(answer, width=40)!r} has no tokens. Correct it")
        if ids[:start] != prompt_ids or whole[last : offsets[stop - 1][1]].strip():
            raise InputError(
                f"{where}: the tokeniser joins its answer {one_line(answer, width=40)!r} with the text next to it, "
                "so the answer has no first or last token. Let the template end the prompt with a line break or a sign "
                "of its own"
            )
        self._check_says(ids[start:stop], text, f"{where}: its answer {one_line(answer, width=40)!r}")
        end = next((i for i in range(stop, len(ids)) if ids[i] in self.end_ids), None)
        # If a template does not end the turn, the EOS token does, at which generation stops.
        ids, end = ((*ids[:stop], self.end_ids[0]), stop) if end is None else (ids[: end + 1], end)
        if len(ids) > self.max_tokens:
            raise InputError(
                f"{where} takes {len(ids)} tokens with its answer and the model reads {self.max_tokens}. Shorten it "
                "or take a model with a longer context"
            )
        self._check_rows(ids)
        return Encoded(ids, start, stop, end)

    def _check_rows(self, ids: Sequence[int]) -> None:
        if ids and max(ids) >= self.rows:
            token = self.tokenizer.convert_ids_to_tokens(max(ids))
            raise InputError(f"the model has no embedding for the token {token!r} ({self.rows} rows). Leave it out")

    def ids_of(self, text: str) -> tuple[int, ...]:
        """Return the token ids of a text that is put into a reply, without special tokens. Raises without a row."""
        ids = self._tokens(text)
        self._check_rows(ids)
        return ids

    def _tokens(self, text: str) -> tuple[int, ...]:
        # verbose is off: a text that is too long raises an error here, without the tokeniser's warning.
        return tuple(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    @cached_property
    def _tail(self) -> str:
        """Return the template's text behind an answer."""
        whole = self._render("What is asked?", "What is answered.")
        return whole[whole.rfind("What is answered.") + len("What is answered.") :]

    @cached_property
    def end_ids(self) -> tuple[int, ...]:
        """Tokens that end a reply: the first special one that the template puts behind an answer, and the EOS token."""
        special = set(self.tokenizer.all_special_ids)
        ends = [i for i in self._tokens(self._tail) if i in special][:1]
        if self.tokenizer.eos_token_id is not None and self.tokenizer.eos_token_id not in ends:
            ends.append(self.tokenizer.eos_token_id)
        if not ends:
            raise InputError("the tokeniser has no EOS token and no template that ends a turn. Set --chat-template")
        return tuple(ends)

    @cached_property
    def control_marks(self) -> TextTuple:
        """Return the texts of the special tokens. A question with such a text would be read as several turns."""
        tokens = self.tokenizer.added_tokens_decoder.values()
        return tuple(sorted({t.content for t in tokens if t.special} | set(self.tokenizer.all_special_tokens)))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a reply's tokens, special ones left out."""
        text = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        assert isinstance(text, str)
        return text.strip()
