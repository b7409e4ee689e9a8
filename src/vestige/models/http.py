"""Requests to an OpenAI-compatible server, many at a time: pooled connections, retries, bounds on time, bytes, amounts.

The key is read from the environment, goes into one header and nowhere else; what a server says is cleared of it.
Redirections are not followed, since they would carry the key to another host. A time limit is for a whole exchange: one
that begins anew with every byte would let a server that sends one now and then hold it for ever.
"""

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar

import httpx2

from vestige.core.errors import InputError, MachineError
from vestige.core.text import one_line
from vestige.models.address import Address

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_MOST_BYTES = 64 * 2**20
_LONGEST_WAIT = 60.0
# Shorter values stand for "no key" with servers that want one to be sent, and occur in any text.
_LEAST_SECRET = 8
_AGAIN = {408, 409, 425, 429}
_ONE_REQUESTS_FAULT = {400, 404, 405, 413, 415, 422, 501}


class Rejected(InputError):
    """The server does not take this request, and would not if it were sent again."""


class Garbled(Exception):
    """A reply that cannot be read; another attempt may bring a whole one."""


class _Again(Exception):
    """No reply; another attempt may bring one, after so many seconds at the server's word."""

    def __init__(self, detail: str, wait: float | None = None) -> None:
        super().__init__(detail)
        self.wait = wait


@dataclass(frozen=True)
class Job(Generic[T_co]):
    """A request, what is made of its reply (Garbled where that is none), and the most tokens it can take."""

    path: str
    body: dict[str, Any]
    read: Callable[[Any], T_co]
    tokens: int


class Client:
    """One server. Its connections are kept from call to call, and so is the count of what was sent."""

    def __init__(self, to: Address) -> None:
        """No connection is opened yet."""
        self.to = to
        self.key = os.environ.get(to.key_variable, "").strip()
        if not all("!" <= c <= "~" for c in self.key):
            raise InputError(f"the key in the environment variable {to.key_variable} holds more than plain ASCII")
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "vestige"}
        limits = httpx2.Limits(max_connections=to.concurrency, max_keepalive_connections=to.concurrency)
        self._http = httpx2.AsyncClient(
            headers=headers | ({"Authorization": f"Bearer {self.key}"} if self.key else {}),
            timeout=httpx2.Timeout(to.timeout_seconds),
            limits=limits,
            follow_redirects=False,
        )
        self._requests = self._tokens = 0
        self._answered = False

    def post(self, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T:
        """What is made of one reply."""
        return self.all([Job(path, body, read, 0)])[0]

    def get(self, url: str) -> Any:
        """The JSON at `url`. Rejected where there is none."""
        return _run(self._through(Job(url, {}, lambda found: found, 0), "GET"))

    def all(self, jobs: Iterable[Job[T]]) -> list[T]:
        """What is made of each reply, in order; at most `concurrency` are under way, and no more replies are held."""
        return _run(self._all(jobs))

    async def _all(self, jobs: Iterable[Job[T]]) -> list[T]:
        found: dict[int, T] = {}
        left = enumerate(jobs)

        async def work() -> None:
            for n, job in left:
                found[n] = await self._through(job)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.to.concurrency):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [found[n] for n in range(len(found))]

    async def _through(self, job: Job[T], method: str = "POST") -> T:
        for attempt in range(self.to.attempts):
            self._count(job)
            try:
                async with asyncio.timeout(self.to.timeout_seconds):
                    made = job.read(await self._once(job, method))
                self._answered = True
                return made
            except _Again as fault:
                said, wait = str(fault), fault.wait
            except Garbled as fault:
                said, wait = f"not a reply: {fault}", None
            except TimeoutError:
                said, wait = f"no whole reply within {self.to.timeout_seconds:g} s", None
            except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
                said, wait = f"{type(error).__name__}: {error}", None
            if attempt + 1 < self.to.attempts:
                own = min(self.to.first_wait_seconds * 2**attempt, _LONGEST_WAIT)
                await asyncio.sleep(own if wait is None else min(wait, _LONGEST_WAIT))
        told = one_line(self._clean(said), width=300)
        if not self._answered:
            raise InputError(f"no model answers at {self.to.url} ({told}); start the server or mend the address")
        raise MachineError(
            f"{self.to.shown} gave no reply in {self.to.attempts} attempts, the last: {told}; run the same command "
            "again, which asks for nothing that was kept"
        )

    def _count(self, job: Job[Any]) -> None:
        self._requests, self._tokens = self._requests + 1, self._tokens + job.tokens
        for name, most, sent in (
            ("requests", self.to.most_requests, self._requests),
            ("tokens", self.to.most_tokens, self._tokens),
        ):
            if most is not None and sent > most:
                raise InputError(
                    f"{self.to.shown}: the limit of {most:,} {name} (most_{name}) is used up; raise it and run the "
                    "same command again, which asks for nothing that was kept"
                )

    async def _once(self, job: Job[Any], method: str) -> Any:
        url = job.path if method == "GET" else f"{self.to.url}/{job.path}"
        body = None if method == "GET" else job.body
        async with self._http.stream(method, url, json=body) as response:
            content = bytearray()
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > _MOST_BYTES:
                    raise Rejected(f"{self.to.shown} sends a reply of more than {_MOST_BYTES:,} bytes")
        self._refuse(response, bytes(content))
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Garbled(content[:300].decode("utf-8", "replace")) from error

    def _refuse(self, response: httpx2.Response, content: bytes) -> None:
        code = response.status_code
        if 200 <= code < 300:
            return
        said = content[:2000].decode("utf-8", "replace")
        detail = one_line(self._clean(f"HTTP {code}: {said}"), width=300)
        if (code in _AGAIN and "insufficient_quota" not in said) or (code >= 500 and code != 501):
            raise _Again(detail, _wait(response.headers.get("Retry-After")))
        if code in _ONE_REQUESTS_FAULT:
            raise Rejected(f"{self.to.shown} rejects a request ({detail})")
        raise InputError(
            f"{self.to.shown} refuses to answer ({detail}); look at the address, the model's name and the key in "
            f"{self.to.key_variable}"
        )

    def _clean(self, text: str) -> str:
        """`text` without the key."""
        return text.replace(self.key, "[key]") if len(self.key) >= _LEAST_SECRET else text

    def text(self, found: Any) -> str:
        """A text that the server sent, without the key and without what no file could hold."""
        if found is None:
            return ""
        if not isinstance(found, str):
            raise Garbled(f"a text is a {type(found).__name__}")
        return self._clean(found).encode("utf-8", "replace").decode()


def numbers(found: Any, n: int) -> list[float]:
    """`n` log-probabilities (nats) that a server sent; Rejected where they cannot be such."""
    if not isinstance(found, list) or len(found) != n:
        raise Rejected(f"{n} log-probabilities are needed")
    for value in found:
        # Rounding can leave one a digit above 0, and JSON's NaN and infinities are read as numbers.
        if not isinstance(value, int | float) or isinstance(value, bool) or not -1e6 < value < 1e-2:
            raise Rejected(f"{value!r} is no log-probability")
    return [min(0.0, float(value)) for value in found]


def _wait(retry_after: str | None) -> float | None:
    """Seconds from a Retry-After header: a number, or a date."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return min(float(retry_after[:12]), _LONGEST_WAIT)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work` on the loop that all clients of this process share, so that connections can be kept."""
    future = asyncio.run_coroutine_threadsafe(work, _loop(os.getpid()))
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


@lru_cache(maxsize=1)
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """A loop in a thread of its own; a forked `process` has no thread, and gets another."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="requests", daemon=True).start()
    return loop
