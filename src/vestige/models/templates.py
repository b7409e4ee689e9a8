"""Chat templates: which one a model is asked in, and how it is rendered: as transformers does, under bounds."""

import datetime
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.utils import Namespace
from transformers import PreTrainedTokenizerBase

from vestige.core.errors import InputError
from vestige.core.sandbox import BoundedEnvironment, work_bounded
from vestige.core.settings import closest
from vestige.core.text import one_line

# Templates that print today's date would make another prompt of the same question every day.
PINNED_DATE = "01 Jan 2026"
_PINNED = datetime.datetime(2026, 1, 1)
PLAIN = "plain"
PLAIN_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}Question: {{ m.content }}\nAnswer:"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
"""For tokenisers that bring no chat template of their own."""
_MOST_CHARACTERS = 1_000_000


def own_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """The template that a tokeniser's questions are put in: its own, of several the default one, or the plain one."""
    own = tokenizer.chat_template
    if isinstance(own, dict):
        if "default" not in own:
            raise InputError(
                f"the tokeniser brings the chat templates {', '.join(map(one_line, sorted(own)))} and no default; name "
                "one with --chat-template"
            )
        own = own["default"]
    if own is not None and not isinstance(own, str):
        raise InputError(f"the chat template of the tokeniser is no text but a {type(own).__name__}")
    return PLAIN_TEMPLATE if own is None else own


def use_template(tokenizer: PreTrainedTokenizerBase, wanted: str) -> str:
    """Give the tokeniser the template it is to be asked in, and only that; how the template is called in provenance.

    `wanted` is the name of one of its templates, `plain`, or a file; without one it is its own.
    """
    own = tokenizer.chat_template
    named = own if isinstance(own, dict) else {} if own is None else {"default": own}
    if not wanted:
        text = own_template(tokenizer)
        if own is not None:
            tokenizer.chat_template = text
        return PLAIN if own is None else "own: default" if isinstance(own, dict) else "own"
    if wanted in named:
        tokenizer.chat_template = named[wanted]
        tokenizer.chat_template = own_template(tokenizer)
        return f"own: {wanted}"
    if wanted == PLAIN:
        tokenizer.chat_template = PLAIN_TEMPLATE
        return PLAIN
    path = Path(wanted).expanduser()
    if not path.is_file():
        raise InputError(
            f"no chat template {one_line(wanted)!r}: neither a file nor one of the model's; "
            f"{closest(wanted, [*map(one_line, named), PLAIN])}"
        )
    try:
        tokenizer.chat_template = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}), so no chat template") from error
    return f"file {path.name}"


def rendered(
    tokenizer: PreTrainedTokenizerBase, template: str, messages: Sequence[Mapping[str, str]], *, answered: bool
) -> str:
    """The text of a chat; without `answered` it ends where the model answers. Refused where the template fails."""
    if len(template) > _MOST_CHARACTERS:
        raise InputError(f"the chat template is {len(template)} characters long; no template needs {_MOST_CHARACTERS}")
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    try:
        with work_bounded():
            return _compiled(template).render(
                **special,
                messages=[dict(m) for m in messages],
                tools=None,
                documents=None,
                add_generation_prompt=not answered,
                date_string=PINNED_DATE,
            )
    except Exception as error:  # A template is foreign code: it can raise anything.
        said = one_line(str(error), width=200) or type(error).__name__
        kind = "is refused by the sandbox" if isinstance(error, SecurityError) else "cannot be rendered"
        line = f" in line {number}" if (number := getattr(error, "lineno", None)) else ""
        raise InputError(
            f"the chat template of the model {kind}{line} ({said}); give another with --chat-template, or plain"
        ) from error


class _Generation(Extension):
    """`{% generation %}` marks what the model says, for those who train on it; here it is plain text."""

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
    made = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.add_filter("tojson", _tojson)
    made.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now, "namespace": Namespace}
    return made


@lru_cache(maxsize=64)
def _compiled(template: str) -> Template:
    return _environment().from_string(template)
