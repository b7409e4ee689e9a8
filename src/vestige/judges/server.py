"""A writer that is any OpenAI-compatible server: several requests at a time, retried, limited, kept on the disk.

A reply that came is never paid for twice: it is on the disk before it is used. Of a killed run only the requests that
were under way, at most `concurrency`, are asked again, since nobody has seen their replies; they are counted
(`spending.UnderWay`), and at their most against the limits.
"""

import logging
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from vestige.core.errors import InputError
from vestige.core.files import locked
from vestige.core.settings import Settings
from vestige.judges.base import Prompt, Spend, Written
from vestige.judges.exchange import Endpoint, Fault, Reply, ask, endpoint
from vestige.judges.spending import (
    Amount,
    Forecast,
    Kept,
    Ledger,
    Limits,
    Register,
    Shelf,
    UnderWay,
    estimated_tokens,
    forecast,
    most_of,
)

_FILTERED = "content_filter"
# OpenAI's word, and that of servers which speak like Anthropic's.
_CUT = {"length", "max_tokens"}
_LOG = logging.getLogger(__name__)


class ServerSettings(Settings):
    """Which server and model, and how patiently it is asked.

    Where `key_variable` is not set, no key is sent; `temperature` and `seed` are not sent where they are None. Waits
    double from `first_wait_seconds` on, unless the server names another.
    """

    url: str
    """URL before /chat/completions."""
    model: str
    """The model's name on the server."""
    key_variable: str = "VESTIGE_JUDGE_KEY"
    """Environment variable with the key."""
    temperature: NonNegativeFloat | None = 0.0
    """Temperature, or none to send none."""
    seed: int | None = None
    """Seed to send."""
    tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Name under which the server takes the most tokens of a reply."""
    reasoning_tokens: NonNegativeInt = 0
    """Tokens allowed on top of the reply, for a model that thinks first."""
    concurrency: PositiveInt = 8
    """Requests at a time."""
    attempts: PositiveInt = 6
    """Attempts for a reply."""
    readings: PositiveInt = 3
    """Replies asked for until one holds a verdict."""
    timeout_seconds: PositiveFloat = 120.0
    """Seconds to wait for a reply."""
    first_wait_seconds: NonNegativeFloat = 1.0
    """Seconds before the second attempt."""
    longest_wait_seconds: NonNegativeFloat = 60.0
    """Longest wait between attempts, in seconds."""

    @field_validator("temperature", mode="before")
    @classmethod
    def _none_in_words(cls, value: Any) -> Any:
        return None if value == "none" else value

    def judge_identity(self) -> dict[str, Any]:
        """What of a judge on a server can change its verdicts."""
        told = {"url", "model", "temperature", "seed", "reasoning_tokens", "readings"}
        return {"judge": "server", **{key: value for key, value in self.identity().items() if key in told}}


class Asked(NamedTuple):
    """One request to the server, by the name that its content gives it."""

    name: str
    body: dict[str, Any]
    prompt: Prompt


@dataclass(frozen=True)
class ServerWriter:
    """The server as a writer. Replies lie in `folder`; one command at a time may work there.

    Writers that share a folder in turn may share what was `read` of its replies.
    """

    settings: ServerSettings
    folder: Path
    limits: Limits = field(default_factory=Limits)
    on_reply: Callable[[int, int], None] = field(default=lambda done, of: None, compare=False, repr=False)
    read: Register | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The model's."""
        return self.settings.model

    @property
    def reserved(self) -> tuple[str, ...]:
        """Not known of a server; what the common templates use is made harmless everywhere (`texts`)."""
        return ()

    def estimate(self, prompts: Sequence[Prompt]) -> Forecast:
        """What `write` would take. Nothing is sent."""
        self.limits.check()
        to, shelf = self._endpoint(), Shelf(self.folder)
        asked = _asked(self.settings, to, shelf, prompts)
        left = {a.name: a.prompt for a in asked if self._final(a, shelf.read(a.name), Spend()) is None}
        return forecast(
            list(left.values()), self.settings.reasoning_tokens, n_requests=len(prompts), limits=self.limits
        )

    def write(self, prompts: Sequence[Prompt]) -> list[Written]:
        """One reply each, in order; equal prompts are asked once. What no request can mend is an InputError."""
        to, shelf, ledger = self._endpoint(), Shelf(self.folder), Ledger(self.limits)
        asked = _asked(self.settings, to, shelf, prompts)
        with locked(self.folder / ".lock", patience_seconds=0.0):
            before = {a.name: shelf.read(a.name) for a in asked}
            UnderWay(self.folder).settle()
            self._register.read()
            ledger.add(self._register.taken)
            if self.limits.bind:
                ledger.add(UnderWay(self.folder).lost())
            desk = Desk(self.settings, to, shelf, ledger)
            found = {a.name: self._final(a, before[a.name], _cached(before[a.name])) for a in asked}
            left = list({a.name: a for a in asked if found[a.name] is None}.values())
            found |= _at_once(desk, left, before, self.settings.concurrency, self.on_reply)
            self._register.read()
        written = [done for a in asked if (done := found[a.name]) is not None]
        if written and all(w.failure == "rejected" for w in written):
            said = f"{desk.last_rejection}{_hint(desk.last_rejection)}"
            raise InputError(f"the judge's server at {to.url} rejects every request: {said}")
        self._tell(asked, written)
        return _once(asked, written)

    @cached_property
    def _register(self) -> Register:
        return self.read or Register(self.folder)

    def _tell(self, asked: Sequence[Asked], written: Sequence[Written]) -> None:
        """Say once what a person should know at once, not only at the end."""
        notes = list(self._register.other_models())
        pairs = zip(asked, written, strict=True)
        n_cut = sum(w.failure == "cut short" and not a.prompt.accepts(w.text) for a, w in pairs)
        if n_cut:
            notes.append(
                f"{n_cut} of {len(asked)} replies of {self.settings.model!r} ended at their limit of tokens without a "
                "verdict and are not counted; a model that thinks before it answers needs more tokens: "
                "--set judge.reasoning_tokens=8192"
            )
        for note in notes:
            # Their counts grow, and are no news.
            if (news := re.sub(r"\(?[\d,]+ ", "", note)) not in self._register.told:
                self._register.told.add(news)
                _LOG.warning("%s", note)

    def _endpoint(self) -> Endpoint:
        return endpoint(self.settings.url, self.settings.key_variable)

    def _final(self, asked: Asked, replies: list[Kept], spend: Spend) -> Written | None:
        """What the replies so far come to; None where another is to be asked for."""
        return _come_to(asked.prompt, replies, spend, self.settings.readings)


class Desk:
    """Where the threads of one `write` work: what they share, and how one request is seen through."""

    def __init__(self, settings: ServerSettings, to: Endpoint, shelf: Shelf, ledger: Ledger) -> None:
        """Begin with nothing answered."""
        self._settings, self._to, self._shelf, self._ledger = settings, to, shelf, ledger
        self._under_way = UnderWay(shelf.folder)
        self.stop = threading.Event()
        self.last_rejection = ""
        self._answered = False

    def see_through(self, asked: Asked, replies: list[Kept]) -> Written:
        """Ask until a reply is taken, the readings are used up, or no reply can be had; an error stops all threads."""
        try:
            return self._seen_through(asked, list(replies), _cached(replies))
        except BaseException:
            self.stop.set()
            raise

    def _seen_through(self, asked: Asked, replies: list[Kept], spend: Spend) -> Written:
        while (done := _come_to(asked.prompt, replies, spend, self._settings.readings)) is None:
            got, faults = self._reply(asked, len(replies))
            spend += Spend(faults=faults)
            if isinstance(got, Fault):
                return Written(replies[-1].text if replies else "", got.failure, spend)
            replies.append(got)
            self._shelf.write(asked.name, self._to.url, asked.body, replies)
            self._under_way.end(asked.name)
            spend += Spend(1, got.prompt_tokens, got.completion_tokens, estimated_calls=int(got.estimated))
        return done

    def _reply(self, asked: Asked, n_kept: int) -> tuple[Kept | Fault, int]:
        """One reply, still noted as under way, or the fault that was the last; and how many faults there were."""
        fault = Fault("connection", "stopped")
        for attempt in range(self._settings.attempts):
            most = most_of(asked.prompt, self._settings.reasoning_tokens)
            if not self._ledger.book(most):
                return Fault("limit", "tokens, calls or money are used up"), attempt
            taken = Amount(0, 0, 0)
            # What was booked is put back whatever happens: others wait for it.
            try:
                if self.stop.is_set():
                    return fault, attempt
                self._under_way.begin(asked.name, n_kept, most)
                got = ask(self._to, asked.body, timeout_seconds=self._settings.timeout_seconds)
                if isinstance(got, Reply):
                    kept = _kept(got, asked.prompt)
                    taken, self._answered = _amount([kept]), True
                    return kept, attempt
            finally:
                self._ledger.settle(most, taken)
            fault = got
            self._under_way.end(asked.name)
            self._note(fault)
            if not fault.again:
                return fault, attempt + 1
            if attempt + 1 < self._settings.attempts:
                self.stop.wait(self._pause(asked, attempt, fault))
        if fault.failure == "connection" and not self._answered:
            raise InputError(f"no judge answers at {self._to.url} ({fault.detail}); start the server or mend the URL")
        return fault, self._settings.attempts

    def _note(self, fault: Fault) -> None:
        if fault.hopeless:
            raise InputError(
                f"the judge's server at {self._to.url} refuses the model {self._settings.model!r} ({fault.detail}); "
                f"look at the URL, the model's name and the key in {self._settings.key_variable}"
            )
        if fault.failure == "rejected":
            self.last_rejection = fault.detail

    def _pause(self, asked: Asked, attempt: int, fault: Fault) -> float:
        """Seconds before the next attempt: the server's word, else doubling, spread so that not all come at once."""
        spread = 0.5 + int(asked.name[:4], 16) / 2**17
        own = min(self._settings.first_wait_seconds * 2**attempt, self._settings.longest_wait_seconds) * spread
        # The server's word is a least wait, but a server must not hold a run for a day.
        return own if fault.wait_seconds is None else min(fault.wait_seconds, self._settings.longest_wait_seconds)


def _at_once(
    desk: Desk,
    left: Sequence[Asked],
    before: dict[str, list[Kept]],
    concurrency: int,
    on_reply: Callable[[int, int], None],
) -> dict[str, Written | None]:
    """See all requests through, some at a time; the first error ends them all, after what is under way is kept."""
    running: dict[str, Future[Written]] = {}
    with ThreadPoolExecutor(concurrency, thread_name_prefix="judge") as pool:
        try:
            running = {a.name: pool.submit(desk.see_through, a, before[a.name]) for a in left}
            under_way: set[Future[Written]] = set(running.values())
            while under_way:
                done, under_way = wait(under_way, return_when=FIRST_EXCEPTION, timeout=1.0)
                for future in done:
                    future.result()
                if done:
                    on_reply(len(left) - len(under_way), len(left))
        finally:
            desk.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
    return {name: future.result() for name, future in running.items()}


def _asked(settings: ServerSettings, to: Endpoint, shelf: Shelf, prompts: Sequence[Prompt]) -> list[Asked]:
    bodies = [_body(settings, prompt) for prompt in prompts]
    return [Asked(shelf.name(to.url, body), body, prompt) for body, prompt in zip(bodies, prompts, strict=True)]


def _body(settings: ServerSettings, prompt: Prompt) -> dict[str, Any]:
    # Without a system message a model is asked as it stands, under its template's own one.
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    body: dict[str, Any] = {
        "model": settings.model,
        "messages": [*system, {"role": "user", "content": prompt.user}],
        settings.tokens_field: prompt.max_tokens + settings.reasoning_tokens,
    }
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.seed is not None:
        body["seed"] = settings.seed
    return body


def _kept(reply: Reply, prompt: Prompt) -> Kept:
    told = reply.prompt_tokens is not None and reply.completion_tokens is not None
    asked = estimated_tokens(prompt.system + prompt.user) if reply.prompt_tokens is None else reply.prompt_tokens
    wrote = estimated_tokens(reply.text) if reply.completion_tokens is None else reply.completion_tokens
    return Kept(reply.text, reply.finish, asked, wrote, not told, reply.model)


def _come_to(prompt: Prompt, replies: Sequence[Kept], spend: Spend, readings: int) -> Written | None:
    if not replies:
        return None
    last = replies[-1]
    if last.finish == _FILTERED:
        return Written(last.text, "filtered", spend)
    if prompt.accepts(last.text) or len(replies) >= readings:
        return Written(last.text, "cut short" if last.finish in _CUT else "", spend)
    return None


def _hint(rejection: str) -> str:
    """What a server's refusal of a setting asks for, as reasoning models refuse some."""
    if "max_completion_tokens" in rejection:
        return "; try --set judge.tokens_field=max_completion_tokens"
    return "; try --set judge.temperature=none" if "temperature" in rejection else ""


def _amount(replies: Sequence[Kept]) -> Amount:
    return Amount(len(replies), sum(r.prompt_tokens for r in replies), sum(r.completion_tokens for r in replies))


def _cached(replies: Sequence[Kept]) -> Spend:
    amount = _amount(replies)
    return Spend(*amount, cached_calls=len(replies), estimated_calls=sum(r.estimated for r in replies))


def _once(asked: Sequence[Asked], written: Sequence[Written]) -> list[Written]:
    """Each reply with its spend, which of equal requests only the first bears."""
    seen: set[str] = set()
    counted = []
    for a, w in zip(asked, written, strict=True):
        counted.append(w if a.name not in seen else Written(w.text, w.failure))
        seen.add(a.name)
    return counted
