"""The address of a model behind an OpenAI-compatible server: `http://host:port/v1#name`, with settings as its query.

`http://host:8000/v1?tokenizer=FOLDER&concurrency=64#name`. It may stand wherever a model is named.
"""

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from vestige.core.errors import InputError
from vestige.core.settings import Settings
from vestige.core.text import one_line

FORM = "http://localhost:8000/v1#name"


def is_address(model: str) -> bool:
    """Whether a model's name is an address and neither a folder nor a hub id."""
    return model.startswith(("http://", "https://"))


class Address(Settings):
    """Where a model is served, and how it is asked there.

    `url` is the part before /completions. With a `tokenizer` (a folder or a hub id: that of the served model) Vestige
    renders prompts itself, as for a model in memory, and sends tokens; without one it sends chat messages, which the
    server renders, and answers cannot be scored. `scores` "no" leaves scores out of a server that has them. `context`
    is the number of tokens that the model reads, if the server does not say. The key is read from the environment's
    `key_variable`. At most `concurrency` requests are under way at once, each within `timeout_seconds` in all, and is
    tried `attempts` times, with waits that double from `first_wait_seconds` on. `most_requests` and `most_tokens`
    bound what one process sends and receives.
    """

    url: str
    model: str
    tokenizer: str = ""
    scores: bool = True
    context: PositiveInt | None = None
    key_variable: str = "VESTIGE_ENDPOINT_KEY"
    concurrency: PositiveInt = 32
    attempts: PositiveInt = 6
    timeout_seconds: PositiveFloat = 300.0
    first_wait_seconds: NonNegativeFloat = 1.0
    most_requests: PositiveInt | None = None
    most_tokens: PositiveInt | None = None

    @property
    def shown(self) -> str:
        """Address and name, without settings."""
        return f"{self.url}#{self.model}"

    @property
    def identity_of_asking(self) -> dict[str, Any]:
        """What of it can change an answer."""
        told = {"url", "model", "tokenizer", "scores", "context"}
        return {key: value for key, value in self.identity().items() if key in told}


def address(model: str) -> Address:
    """The address that a model's name is; refused in one sentence where it cannot be read."""
    try:
        parts = urlsplit(model)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise InputError(f"the model's address cannot be read ({error}); give it like {FORM}") from error
    if "@" in parts.netloc:
        # Not shown: it may hold a password.
        raise InputError(f"the model's address holds a user; give it like {FORM}, and the key in the environment")
    if not host or port == 0 or not all("!" <= c <= "~" for c in parts.netloc + parts.path):
        raise InputError(f"{one_line(model)!r} is no model's address; give it like {FORM}")
    if not parts.fragment:
        raise InputError(f"{one_line(model)!r} does not name a model of that server; give it like {FORM}")
    names = [name for name, _ in query]
    own = {"url", "model"} & set(names)
    if own or len(set(names)) < len(names):
        raise InputError(
            f"{one_line(model)!r}: each setting of an address is given once, and url and model are not any"
        )
    path = parts.path.rstrip("/").removesuffix("/chat/completions").removesuffix("/completions")
    settings: dict[str, Any] = {"url": f"{parts.scheme}://{parts.netloc}{path}", "model": unquote(parts.fragment)}
    return Address.build({**settings, **dict(query)}, where=f"the address {one_line(model)}")


def shown_address(model: str) -> str:
    """A model's name, of an address without its settings."""
    return address(model).shown if is_address(model) else model
