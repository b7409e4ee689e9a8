"""The address of a model behind an OpenAI-compatible server: `http://host:port/v1#name`, with settings as its query.

`http://host:8000/v1?tokenizer=FOLDER&concurrency=64#name`. Commands accept it wherever they accept a model.
"""

from typing import Literal, NamedTuple, TypeAlias, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from vestige.core.errors import InputError
from vestige.core.settings import Settings
from vestige.core.text import Fields, one_line

FORM = "http://localhost:8000/v1#name"

NoReply: TypeAlias = Literal[
    "garbage", "rejected", "filtered", "too large", "rate limited", "server error", "timeout", "connection", "limit"
]
"""Why no reply came: see `judges.base.Failure`."""


ENGINES = dict.fromkeys(("http", "https"), "vestige.models.endpoint:open_endpoint")
"""The function that opens a model (as `module:function`) by the scheme of its address. It returns a `LoadedModel` whose
engine answers.

Its `provenance` has the server's own description and a fingerprint of its replies.
"""


def is_address(model: str) -> bool:
    """Whether a model's name is an address and neither a folder nor a hub id."""
    scheme, separator, _ = model.partition("://")
    return bool(separator) and scheme in ENGINES


class Limits(Settings):
    """The limits of spending, and the prices per million tokens in one currency. None is no limit.

    There are no default prices, because a wrong price is worse than none. For a judge, all spending in the folder of
    its replies counts, including earlier and killed commands. For an evaluated model, the tokens of one process count.
    """

    most_requests: NonNegativeInt | None = None
    """Most requests."""
    most_tokens: NonNegativeInt | None = None
    """Most tokens, sent and received."""
    most_cost: NonNegativeFloat | None = None
    """Most money, in the unit of the prices."""
    price_per_million_prompt_tokens: NonNegativeFloat | None = None
    """Price of a million tokens sent."""
    price_per_million_completion_tokens: NonNegativeFloat | None = None
    """Price of a million tokens received."""

    @property
    def bind(self) -> bool:
        """Whether there is any limit."""
        return not (self.most_requests is None and self.most_tokens is None and self.most_cost is None)

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return the cost. None without prices."""
        per_prompt, per_completion = self.price_per_million_prompt_tokens, self.price_per_million_completion_tokens
        if per_prompt is None or per_completion is None:
            return None
        return (prompt_tokens * per_prompt + completion_tokens * per_completion) / 1e6

    def check(self) -> None:
        """Reject a limit of cost without prices."""
        if self.most_cost is not None and self.cost(0, 0) is None:
            raise InputError(
                "most_cost is set and prices are not. Set price_per_million_prompt_tokens and "
                "price_per_million_completion_tokens too"
            )


class Server(Limits):
    """An OpenAI-compatible server, its model, and the limits on retries.

    If `key_variable` is not set, no key is sent. Waits double from `first_wait_seconds` on, unless the server names
    another.
    """

    url: str
    """URL before /chat/completions."""
    model: str
    """The model's name on the server."""
    key_variable: str = "VESTIGE_ENDPOINT_KEY"
    """Environment variable with the key."""
    concurrency: PositiveInt = 32
    """Requests at a time."""
    attempts: PositiveInt = 6
    """Attempts for a reply."""
    timeout_seconds: PositiveFloat = 300.0
    """Seconds to wait for a whole reply. After two late ones there is no further attempt."""
    first_wait_seconds: NonNegativeFloat = 1.0
    """Seconds before the second attempt."""
    longest_wait_seconds: NonNegativeFloat = 60.0
    """Longest wait between attempts, in seconds."""


class Address(Server):
    """A served model's location and request settings.

    With a `tokenizer` (the served model's, as a folder or a hub id) Vestige renders prompts itself, as for a model in
    memory, and sends tokens. Without one it sends chat messages, which the server renders, and answers cannot be
    scored. `scores` "no" leaves scores out of a server that has them. `context` is the number of tokens that the model
    reads, if the server does not say. `silent` admits a model with empty replies to plain questions if its scores
    cannot distinguish it from a broken server.
    """

    tokenizer: str = ""
    scores: bool = True
    silent: bool = False
    context: PositiveInt | None = None

    @property
    def shown(self) -> str:
        """Address and name, without settings."""
        return f"{self.url}#{self.model}"

    @property
    def identity_of_asking(self) -> Fields:
        """Return the parts that can change an answer."""
        fields = {"url", "model", "tokenizer", "scores", "context"}
        return {key: value for key, value in self.identity().items() if key in fields}


class Amount(NamedTuple):
    """Calls and their tokens."""

    calls: int
    prompt_tokens: int
    completion_tokens: int

    def plus(self, amount: "Amount") -> "Amount":
        """The sum, amount by amount."""
        return Amount(*(a + b for a, b in zip(self, amount, strict=True)))

    def minus(self, amount: "Amount") -> "Amount":
        """The difference, amount by amount."""
        return Amount(*(a - b for a, b in zip(self, amount, strict=True)))


def server_parts(text: str) -> SplitResult:
    """The parts of a server's URL. One that cannot be read, or holds a user, is refused in one sentence."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError as error:
        raise InputError(f"the model's address cannot be read ({error}). Give it like {FORM}") from error
    if "@" in parts.netloc:
        # The address is not shown: it may contain a password.
        raise InputError(f"the model's address holds a user. Give it like {FORM}, and the key in the environment")
    plain = all("!" <= c <= "~" for c in parts.netloc + parts.path)
    if parts.scheme not in ENGINES or not host or port == 0 or not plain:
        raise InputError(f"{one_line(text)!r} is not a model's address. Give it like {FORM}")
    return parts


S = TypeVar("S", bound=Server)


def address(model: str) -> Address:
    """Return the address in a model's name. Reject an unreadable one in one sentence."""
    return server_at(model, Address)


def server_at(model: str, kind: type[S]) -> S:
    """The server and the model there that an address names, with the settings of its query.

    The query is not repeated in messages: somebody may have put a key into it.
    """
    parts = server_parts(model)
    try:
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise InputError(f"the model's address cannot be read ({error}). Give it like {FORM}") from error
    shown = one_line(f"{parts.scheme}://{parts.netloc}{parts.path}#{parts.fragment}")
    if not parts.fragment:
        raise InputError(f"{shown!r} does not name a model of that server. Give it like {FORM}")
    names = [name for name, _ in query]
    if {"url", "model"} & set(names) or len(set(names)) < len(names):
        raise InputError(
            f"{shown!r}: an address repeats a setting, or has url or model as a setting. Write each setting once"
        )
    path = parts.path.rstrip("/").removesuffix("/chat/completions").removesuffix("/completions")
    settings: Fields = {"url": f"{parts.scheme}://{parts.netloc}{path}", "model": unquote(parts.fragment)}
    return kind.build({**settings, **dict(query)}, where=f"the address {shown}")


def shown_address(model: str) -> str:
    """A model's name, of an address without its settings."""
    if is_address(model):
        return address(model).shown
    return model
