"""The judge as one string, the same in probes, trainings and audits.

    grounded                    the target's own answers (probes)
    local:MODEL                 a chat model on this machine
    http://host:8000/v1#name    a chat model on an OpenAI-compatible server
    NAME                        a judge that another package brings (probes)

Settings follow a question mark: `grounded?own_samples=4`, `http://host/v1?most_requests=5000#name`. The key of a server
is not a setting: it comes from the environment, and so is in no file. No torch is loaded to read a spec.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, urlencode

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, field_serializer, field_validator

from vestige.core.errors import InputError
from vestige.core.settings import Settings
from vestige.core.text import Fields, TextMapping, closest, one_line
from vestige.judges import known_judges
from vestige.models.address import FORM, Limits, Server, is_address, server_at

_FORMS = {"local": "local:MODEL, as in local:builtin:smollm2", "server": f"its address, as in {FORM}"}

BY_MODEL = f"Give {_FORMS['local']}, or {FORM}"
"""The next step if a chat model is missing."""


class GroundedSettings(Settings):
    """The number and the length of the target's own answers. See `grounded.GroundedJudge`."""

    own_tokens: PositiveInt = 128
    """The length of the target's own answers, in tokens."""
    own_samples: PositiveInt = 1
    """Number of its own answers."""


class LocalSettings(Settings):
    """The settings of a judge on this machine."""

    dtype: str = "float32"
    """Number format."""
    chat_template: str = ""
    """Chat template, where the tokeniser has none."""
    trust_remote_code: bool = False
    """Run code that comes with the model."""
    reply_tokens: PositiveInt = 2048
    """Longest reply, in tokens. A longer one counts as cut short, which is a failure and no score."""


class ServerSettings(Server):
    """The server, its model, and the limits on retries.

    `temperature` and `seed` are not sent where they are None.
    """

    key_variable: str = "VESTIGE_JUDGE_KEY"
    """Environment variable with the key."""
    concurrency: PositiveInt = 8
    """Requests at a time."""
    timeout_seconds: PositiveFloat = 120.0
    """Seconds to wait for a reply."""
    temperature: NonNegativeFloat | None = 0.0
    """Temperature, or none to send none."""
    seed: int | None = None
    """Seed to send."""
    tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Name under which the server takes the most tokens of a reply."""
    reasoning_tokens: NonNegativeInt = 0
    """Tokens allowed on top of the reply, for a model that thinks first."""
    readings: PositiveInt = 3
    """The maximum number of replies requested until one contains a verdict."""

    @field_validator("temperature", mode="before")
    @classmethod
    def _none_in_words(cls, value: Any) -> Any:
        if value == "none":
            return None
        return value

    def judge_identity(self) -> Fields:
        """The settings of a served judge that can change its verdicts."""
        return {"judge": "server", **{key: value for key, value in self.identity().items() if key in _CHANGES_VERDICTS}}


_CHANGES_VERDICTS = {"url", "model", "temperature", "seed", "reasoning_tokens", "readings"}


@dataclass(frozen=True)
class JudgeSpec:
    """A kind of judge with its model, if it has one, and settings. A plug-in judge's settings stay unchanged."""

    kind: str
    model: str
    settings: Settings | TextMapping

    @property
    def name(self) -> str:
        """The spec without settings."""
        if isinstance(self.settings, ServerSettings):
            return f"{self.settings.url}#{quote(self.model, safe='/:')}"
        if self.model:
            return f"{self.kind}:{self.model}"
        return self.kind

    @property
    def by_model(self) -> bool:
        """Whether a chat model judges."""
        return self.kind in _FORMS

    @property
    def limits(self) -> Limits:
        """Return the spending limits of a server."""
        if isinstance(self.settings, ServerSettings):
            return self.settings
        return Limits()

    def text(self) -> str:
        """Return the text that identifies a judge, without settings that change no verdict, such as limits."""
        values = self.settings if isinstance(self.settings, Mapping) else self.settings.model_dump(exclude_unset=True)
        if isinstance(self.settings, ServerSettings):
            values = {key: value for key, value in values.items() if key in _CHANGES_VERDICTS - {"url", "model"}}
        query = urlencode({key: "none" if value is None else value for key, value in sorted(values.items())})
        before, mark, after = self.name.partition("#")
        if query:
            return f"{before}?{query}{mark}{after}"
        return self.name


@cache
def judge_spec(text: str) -> JudgeSpec:
    """The judge that a string names. InputError describes the expected form."""
    if is_address(text):
        server = server_at(text, ServerSettings)
        server.check()
        return JudgeSpec("server", server.model, server)
    head, _, query = text.partition("?")
    kind, _, model = head.partition(":")
    values = dict(parse_qsl(query, keep_blank_values=True))
    if kind in _FORMS and not (kind == "local" and model):
        raise InputError(f"judge {one_line(head)!r}: give {_FORMS[kind]}")
    classes: dict[str, type[Settings]] = {"grounded": GroundedSettings, "local": LocalSettings}
    if kind in classes and bool(model) == (kind == "local"):
        return JudgeSpec(kind, model, classes[kind].build(values, where=f"judge {one_line(head)}"))
    # The package checks its settings when the judge is made.
    if head in known_judges():
        return JudgeSpec(head, "", values)
    # `local` and `server` alone are not names.
    names = [name for name in known_judges() if name not in _FORMS]
    raise InputError(f"no judge {one_line(head)!r}. {closest(head, names)}, or give {', or '.join(_FORMS.values())}")


class LeakJudgeSettings(Settings):
    """The leak judge in addition to words. The judge's error is measured on labelled replies."""

    judge: str = ""
    """judge: The leak judge in addition to words: local:MODEL or http://host/v1#name."""
    judge_examples: str = ""
    """JSONL file of labelled replies on which the judge's error is measured. By default Vestige's own."""

    @field_validator("judge")
    @classmethod
    def _tells_leaks(cls, value: str) -> str:
        spec = judge_spec(value) if value else None
        if spec is not None and not spec.by_model:
            raise InputError(f"judge {spec.name} does not detect leaks. {BY_MODEL}")
        return value

    @field_serializer("judge")
    def _what_changes_verdicts(self, value: str) -> str:
        if value:
            return judge_spec(value).text()
        return value
