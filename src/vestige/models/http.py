"""Requests to an OpenAI-compatible server, many at a time: pooled connections, retries, bounds on time, bytes, amounts.

The key is read from the environment, goes into one header and in no other place. The key is removed from a server's
text, since servers quote keys in their errors. Redirections are not followed, since they would carry the key to another
host. A time limit is for a whole exchange: one that begins anew with every byte would let a server that sends one now
and then hold it for ever.
"""

import asyncio
import base64
import contextlib
import html
import json
import os
import random
import re
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx2

from vestige.core.errors import InputError, MachineError
from vestige.core.text import Fields, one_line
from vestige.models.address import Amount, Limits, NoReply, Server

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
X = TypeVar("X")

_POOLED = 64
"""Connections in one pool: a pool searches all its connections for each request, so that a thousand would dominate the
cost.
"""
_LANE = ContextVar("lane", default=0)
_MOST_BYTES = 64 * 2**20
_MOST_LATE = 2
"""A request that got no whole reply in time is sent once more: a slow server could otherwise hold it six times as
long.
"""
# Shorter values mean "no key" for servers that require one, and occur in any text.
_LEAST_SECRET = 8
_AGAIN = {408, 409, 425}
_ONE_REQUESTS_FAULT = {400, 404, 405, 413, 415, 422, 501}
# Errors of a single prompt, if others of the same form were answered.
_ONE_PROMPTS_FAULT = {400, 413, 422}
# More than any reply has. A server that claims more is not believed.
_MOST_TOKENS = 10**9
# A separate generator, so that waiting changes no other draw.
_SPREAD = random.Random()


class Rejected(InputError):
    """The server does not take this request, and would not if it were sent again."""


class Fault(Exception):
    """Why there is no reply, with the status `code`, if there was one.

    `again`: whether another attempt may bring one, after `wait` seconds at the server's own word.
    """

    def __init__(
        self, failure: NoReply, detail: str, *, again: bool = True, wait: float | None = None, code: int = 0
    ) -> None:
        super().__init__(detail)
        self.failure, self.again, self.wait, self.code = failure, again, wait, code


class Garbled(Fault):
    """A reply that cannot be read. Another attempt may bring a whole one."""

    def __init__(self, detail: str) -> None:
        super().__init__("garbage", f"not a reply: {detail}")


class Ledger:
    """Amounts spent and booked: a request's maximum is booked before it, and settled after it."""

    def __init__(self, limits: Limits, spent: Amount = Amount(0, 0, 0)) -> None:  # noqa: B008
        """Start with the amount `spent` before."""
        limits.check()
        self._limits, self.spent, self.booked = limits, spent, Amount(0, 0, 0)

    def book(self, most: Amount) -> bool:
        """Set `most` aside if it fits."""
        self.booked = self.booked.plus(most)
        if self._fits(self.spent.plus(self.booked)):
            return True
        self.booked = self.booked.minus(most)
        return False

    def settle(self, most: Amount, taken: Amount) -> None:
        """Release the booking, and count the request's use."""
        self.booked, self.spent = self.booked.minus(most), self.spent.plus(taken)

    def _fits(self, amount: Amount) -> bool:
        limits, cost = self._limits, self._limits.cost(amount.prompt_tokens, amount.completion_tokens)
        return (
            (limits.most_requests is None or amount.calls <= limits.most_requests)
            and (limits.most_tokens is None or amount.prompt_tokens + amount.completion_tokens <= limits.most_tokens)
            and (limits.most_cost is None or cost is None or cost <= limits.most_cost)
        )


@dataclass(frozen=True)
class Job(Generic[T_co]):
    """A request, the parser of its reply (Garbled for an invalid reply), and its maximum use.

    `taken` returns the actual use. Without it, the reply's `usage` counts, or `most` for a reply without one.
    """

    path: str
    body: Fields
    read: Callable[[Any], T_co]
    most: Amount = Amount(1, 0, 0)  # noqa: RUF009 it is a tuple
    taken: Callable[[Any], Amount] | None = None


def _spellings(key: str) -> re.Pattern[str]:
    """The ways in which a server may quote a key: in other letters, backwards, or encoded. None of a short key."""
    if len(key) < _LEAST_SECRET:
        return re.compile("(?!)")
    plain = key.encode()
    # Preceding text shifts base64 by one or two bytes. The ends of a shifted code depend on the neighbours.
    shifted = [base64.b64encode(b"\0" * n + plain).decode() for n in (1, 2)]
    coded = [base64.b64encode(plain).decode().rstrip("="), plain.hex(), quote(key, safe="")]
    coded += [code[2 + n : -4] for n, code in enumerate(shifted) if len(code) > _LEAST_SECRET + 6]
    coded += [code.replace("+", "-").replace("/", "_") for code in coded]
    forms = {key, key[::-1], *coded, json.dumps(key)[1:-1], html.escape(key)}
    # The longest form comes first, so that no part of it remains.
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))), re.IGNORECASE)


class Client:
    """A client of one server. Connections are reused between calls, and `ledger` counts the requests."""

    def __init__(self, to: Server, ledger: Ledger) -> None:
        """No connection is opened yet."""
        self.to, self.ledger = to, ledger
        self._key = os.environ.get(to.key_variable, "").strip()
        if not all("!" <= c <= "~" for c in self._key):
            raise InputError(f"the key in {to.key_variable} contains other characters than ASCII. Correct it")
        self._spellings = _spellings(self._key)
        self.answered = False
        self._stop = asyncio.Event()
        self._settled = asyncio.Event()

    def get(self, url: str) -> Any:
        """Return the JSON at `url`, or raise an error."""
        return self.all([Job(url, {}, lambda body: body)])[0]

    def all(self, jobs: Iterable[Job[T]]) -> list[T]:
        """Return the parsed replies, in order. No reply is an error, in one sentence."""
        return self.each(jobs, self._reply_or_error)

    def tell_each(self, jobs: Iterable[Job[T]], take: Callable[[int, T | None], None]) -> None:
        """Give `take` each job's number and parsed reply immediately.

        None where the server refuses that prompt (HTTP 400, 413, 422) or filters its reply. Any other value is an error
        as of `all`, raised after the end of all that is under way.
        """

        async def one(numbered: tuple[int, Job[T]]) -> None:
            n, job = numbered
            try:
                result = await self.reply(job)
            except Fault as fault:
                if fault.failure != "filtered" and fault.code not in _ONE_PROMPTS_FAULT:
                    raise self._error(fault) from fault
                result = None
            take(n, result)

        self.each(enumerate(jobs), one, finish=True)

    def each(self, things: Iterable[X], do: Callable[[X], Awaitable[T]], *, finish: bool = False) -> list[T]:
        """Return the result of `do` for each thing, in order.

        At most `concurrency` are taken out of `things` and under way. The first error ends it, with `finish` after the
        end of all that is under way.
        """
        return _run(self._each(things, do, finish))

    async def _each(self, things: Iterable[X], do: Callable[[X], Awaitable[T]], finish: bool) -> list[T]:
        self._stop.clear()
        results: dict[int, T] = {}
        queue = enumerate(things)

        async def work(lane: int) -> None:
            _LANE.set(lane)
            for n, thing in queue:
                results[n] = await do(thing)
                if self._stop.is_set():
                    return

        # All workers share one iterator, so requests are built when they are sent and memory contains few of them.
        workers = [asyncio.create_task(work(n // _POOLED)) for n in range(self.to.concurrency)]
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._stop.set()
            # Workers that wait for room within the limits are also woken, since no further request is allowed.
            self._settled.set()
            for worker in () if finish else workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        for worker in done:
            worker.result()
        return [results[n] for n in range(len(results))]

    async def reply(self, job: Job[T]) -> T:
        """Return the parsed reply to one request. Raises the last Fault where no attempt brought one."""
        late = 0
        for attempt in range(self.to.attempts):
            try:
                return await self._attempt(job)
            except Fault as fault:
                last = fault
            late += last.failure == "timeout"
            if not last.again or late == _MOST_LATE:
                break
            if attempt + 1 < self.to.attempts:
                await self._pause(attempt, last.wait)
            if self._stop.is_set():
                break
        raise last

    async def _attempt(self, job: Job[T]) -> T:
        while not self.ledger.book(job.most):
            # Without bookings, no running request can free any room.
            if not any(self.ledger.booked) or self._stop.is_set():
                raise Fault("limit", "the limits are used up", again=False)
            # There may be room after other requests are settled.
            self._settled.clear()
            await self._settled.wait()
        # A failed attempt without `taken` counts with its maximum, unless the server refused it.
        taken = Amount(0, 0, 0) if job.taken else job.most
        # The booking is always returned, since others wait for it.
        try:
            body = await self._once(job)
            if job.taken is None:
                sent, received = used_tokens(body)
                # A prompt always has tokens.
                if received is None:
                    received = job.most.completion_tokens
                taken = Amount(1, sent or job.most.prompt_tokens, received)
            value = job.read(body)
            if job.taken is not None:
                taken = job.taken(value)
            self.answered = True
            return value
        except Fault as fault:
            if job.taken is None and fault.code:
                taken = Amount(1, 0, 0)
            raise
        finally:
            self.ledger.settle(job.most, taken)
            self._settled.set()

    async def _pause(self, attempt: int, wait: float | None) -> None:
        """Before the next attempt: the server's word, otherwise doubling, spread so that not all come at once.

        The server's word is a least wait, but a server must not hold a run for a day.
        """
        own = self.to.first_wait_seconds * 2**attempt * _SPREAD.uniform(0.5, 1.0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), min(own if wait is None else wait, self.to.longest_wait_seconds))

    async def _once(self, job: Job[Any]) -> Any:
        try:
            async with asyncio.timeout(self.to.timeout_seconds):
                content = await self._content(job)
        except TimeoutError as error:
            raise Fault("timeout", f"no whole reply within {self.to.timeout_seconds:g} s (timeout_seconds)") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise Fault("connection", self.told(f"{type(error).__name__}: {error}")) from error
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Garbled(self.told(content.decode("utf-8", "replace"))) from error

    async def _content(self, job: Job[Any]) -> bytes:
        """Return the bytes of a complete reply that is not an error."""
        http, get = _pool(os.getpid(), self._key, _LANE.get()), "://" in job.path
        if get:
            url = job.path
        else:
            url = f"{self.to.url}/{job.path}"
        async with http.stream("GET" if get else "POST", url, json=None if get else job.body) as response:
            content = bytearray()
            try:
                async for chunk in response.aiter_raw():
                    content += chunk
                    if len(content) > _MOST_BYTES:
                        raise Fault("too large", f"a reply of more than {_MOST_BYTES:,} bytes", again=False)
            except httpx2.RemoteProtocolError as error:
                raise Garbled("half a reply") from error
        if not response.is_success:
            raise self._refusal(response, content.decode("utf-8", "replace"))
        return bytes(content)

    def _refusal(self, response: httpx2.Response, text: str) -> Fault:
        code, wait = response.status_code, _wait(response.headers.get("Retry-After", ""))
        detail = self.told(f"HTTP {code}: {text}")
        # Servers also use 429 for spent credit, which no waiting restores.
        if code == 429 and "insufficient_quota" not in text:
            return Fault("rate limited", detail, wait=wait, code=code)
        if code in _AGAIN or (code >= 500 and code != 501):
            return Fault("timeout" if code == 408 else "server error", detail, wait=wait, code=code)
        filtered = code == 400 and "content_filter" in text
        return Fault("filtered" if filtered else "rejected", detail, again=False, code=code)

    async def _reply_or_error(self, job: Job[T]) -> T:
        try:
            return await self.reply(job)
        except Fault as fault:
            raise self._error(fault) from fault

    def _error(self, fault: Fault) -> Exception:
        """A fault as the error that ends a command."""
        text, server = self.told(str(fault)), f"{self.to.url}#{self.to.model}"
        advice = "the same command again, which asks for nothing that was kept"
        if fault.failure == "limit":
            return InputError(
                f"{server}: its most_requests, most_tokens or most_cost is used up. Raise it and run {advice}"
            )
        if fault.failure == "filtered":
            return InputError(
                f"the server of {server} filtered a reply, which would pass for something forgotten ({text}). Switch "
                "its filter off"
            )
        if not fault.again and fault.code and fault.code not in _ONE_REQUESTS_FAULT:
            return InputError(
                f"{server} refuses to answer ({text}). Look at the address, the model's name and the key in "
                f"{self.to.key_variable}"
            )
        if not fault.again:
            return Rejected(f"{server} rejects a request ({text})")
        if not self.answered:
            return InputError(f"no model answers at {self.to.url} ({text}). Start the server or correct the address")
        return MachineError(f"{server} gave no reply, at the last attempt: {text}; run {advice}")

    def told(self, text: str) -> str:
        """`text` of the server's as one line, without the key."""
        return one_line(self._spellings.sub("[key]", text), width=300)

    def text(self, value: Any) -> str:
        """Return a server's text without the key and without invalid characters."""
        if value is None:
            return ""
        if not isinstance(value, str):
            raise Garbled(f"a text is a {type(value).__name__}")
        return self._spellings.sub("[key]", value).encode("utf-8", "replace").decode()


def used_tokens(body: Any) -> tuple[int | None, int | None]:
    """Return the tokens sent and received, from a reply's `usage`. An implausible value is None."""
    usage = body.get("usage") if isinstance(body, dict) else None
    counts = [usage.get(name) if isinstance(usage, dict) else None for name in ("prompt_tokens", "completion_tokens")]
    sent, received = (n if type(n) is int and 0 <= n <= _MOST_TOKENS else None for n in counts)
    return sent, received


def numbers(found: Any, n: int) -> list[float]:
    """Return `n` log-probabilities (nats) from a server. Raise Rejected for impossible values."""
    if not isinstance(found, list) or len(found) != n:
        raise Rejected(f"{n} log-probabilities are needed")
    for value in found:
        # Rounding can leave a value slightly above 0, and JSON's NaN and infinities are parsed as numbers.
        if type(value) not in (int, float) or not -1e6 < value < 1e-2:
            raise Rejected(f"{value!r} is no log-probability")
    return [min(0.0, float(value)) for value in found]


def _wait(retry_after: str) -> float | None:
    """Seconds from a Retry-After header: a number, or a date. None for another text."""
    if retry_after.strip().isdecimal():
        return float(retry_after[:12])
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work` on the loop that all clients of this process share, so that connections can be kept."""
    over = threading.Event()

    async def to_the_end() -> T:
        try:
            return await work
        finally:
            over.set()

    future = asyncio.run_coroutine_threadsafe(to_the_end(), _loop(os.getpid()))
    try:
        return future.result()
    except BaseException:
        # An interruption arrives only here, and its handler must find no running request.
        future.cancel()
        over.wait()
        raise


@lru_cache(maxsize=1)
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Return a loop in a separate thread. A forked `process` has no thread, and gets another."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="requests", daemon=True).start()
    return loop


@lru_cache(maxsize=64)
def _pool(process: int, key: str, lane: int) -> httpx2.AsyncClient:
    """Return connections that all clients with one key and lane share."""
    # Replies are read raw, so that a small one cannot unpack to any size. So they must arrive uncompressed.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "vestige"}
    limits = httpx2.Limits(max_connections=_POOLED, max_keepalive_connections=_POOLED)
    if key:
        headers["Authorization"] = f"Bearer {key}"
    # There are no time limits per read. The limit in `_once` is for a whole exchange.
    return httpx2.AsyncClient(headers=headers, limits=limits, timeout=None, follow_redirects=False)
