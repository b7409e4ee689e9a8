"""One question to an OpenAI-compatible server over HTTP, and what came of it. No retries, no files, no limits.

The key is read from the environment, goes into one header and nowhere else; what the server says is cleared of it,
since servers quote keys in their errors. Redirections are not followed: they would carry the key to another host.
"""

import contextlib
import http.client
import json
import os
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from vestige.core.errors import InputError
from vestige.core.text import one_line
from vestige.judges.base import Failure

_MOST_BYTES = 8 * 2**20
# More than a reply can take; a server that claims more is not believed.
_MOST_TOKENS = 10**9
_READ_AT_ONCE = 2**16
# Shorter values stand for "no key" with servers that want one to be sent, and occur in any text.
_LEAST_SECRET = 8
_SCRUBBED = "[key]"


@dataclass(frozen=True)
class Endpoint:
    """Where a server is, and the key that it is given; no representation of it shows the key."""

    url: str
    key: str = field(default="", repr=False)

    def scrubbed(self, text: str) -> str:
        """`text` without the key."""
        return text.replace(self.key, _SCRUBBED) if len(self.key) >= _LEAST_SECRET else text


class Reply(NamedTuple):
    """What the model wrote and why it ended; the tokens are None where the server does not say."""

    text: str
    finish: str
    prompt_tokens: int | None
    completion_tokens: int | None
    model: str


class Fault(NamedTuple):
    """Why there is no reply; whether asking again may help, and after how many seconds at the server's own word."""

    failure: Failure
    detail: str
    again: bool = True
    wait_seconds: float | None = None
    hopeless: bool = False
    """Whether no request at all can succeed."""


_LATE = Fault("timeout", "no whole reply in time")


def endpoint(url: str, key_variable: str) -> Endpoint:
    """The server at `url`, the part before /chat/completions; the key is the environment's `key_variable`, if set."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError as error:
        raise InputError(f"the server's URL cannot be read ({error}); give it like http://localhost:8000/v1") from error
    if "@" in parts.netloc or parts.query or parts.fragment:
        # Not shown: it may hold a password.
        raise InputError(
            "the server's URL holds a user, a query or a fragment; give it without, and the key in the environment "
            f"variable {key_variable}"
        )
    plain = all("!" <= c <= "~" for c in url)
    if parts.scheme not in {"http", "https"} or not host or port == 0 or not plain:
        raise InputError(f"{one_line(url)!r} is no server's URL; give it like http://localhost:8000/v1")
    key = os.environ.get(key_variable, "").strip()
    if not all("!" <= c <= "~" for c in key):
        raise InputError(f"the key in the environment variable {key_variable} holds more than plain ASCII; set it anew")
    return Endpoint(url.rstrip("/").removesuffix("/chat/completions"), key)


def ask(to: Endpoint, body: Mapping[str, Any], *, timeout_seconds: float) -> Reply | Fault:
    """Send one chat completion and read its reply, within `timeout_seconds` in all."""
    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "vestige"}
    if to.key:
        headers["Authorization"] = f"Bearer {to.key}"
    request = urllib.request.Request(
        f"{to.url}/chat/completions", data=json.dumps(body).encode(), headers=headers, method="POST"
    )
    deadline = _Deadline(timeout_seconds)
    try:
        with _opener(deadline).open(request, timeout=timeout_seconds) as response:
            content = _content(response)
    except urllib.error.HTTPError as error:
        return _refused(to, error)
    except (TimeoutError, http.client.HTTPException, OSError) as error:
        return _LATE if deadline.passed else _broken(to, error)
    finally:
        deadline.end()
    # A connection that the deadline cut looks like a reply, or like headers, that ended early.
    if deadline.passed:
        return _LATE
    if content is None:
        return Fault("too large", f"a reply of more than {_MOST_BYTES} bytes", again=False)
    return _reply(to, content)


class _Deadline:
    """Cuts the connections of one exchange after so many seconds in all.

    The time-out of a socket begins anew with every byte, so that a server which sends one now and then holds it for
    ever: in the headers, in the body of an error, in the size of a chunk, in the greeting of TLS.
    """

    def __init__(self, seconds: float) -> None:
        """Begin to count."""
        self._until = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    @property
    def passed(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._until

    def connect(self, address: tuple[str, int], *_: object) -> socket.socket:
        """As `socket.create_connection`, for all addresses of a host together."""
        failed: OSError = TimeoutError("no address answers")
        host, port = address
        for *_kind, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError("no connection in time")
            try:
                made = socket.create_connection((str(place[0]), port), timeout=left)
            except OSError as error:
                failed = error
                continue
            # A second handle: TLS takes the socket itself over, and urllib lets go of it.
            self._sockets.append(made.dup())
            if self.passed:
                break
            return made
        raise failed

    def end(self) -> None:
        """Let go of everything."""
        self._timer.cancel()
        for handle in self._sockets:
            handle.close()

    def _cut(self) -> None:
        for handle in self._sockets:
            with contextlib.suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)


class _Within(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """HTTP and HTTPS, on connections that the deadline cuts."""

    def __init__(self, deadline: _Deadline) -> None:
        urllib.request.HTTPSHandler.__init__(self, context=_tls())
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._plain, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._secure, req)

    def _plain(self, host: str, /, **more: Any) -> http.client.HTTPConnection:
        return self._held(http.client.HTTPConnection(host, **more))

    def _secure(self, host: str, /, **more: Any) -> http.client.HTTPConnection:
        return self._held(http.client.HTTPSConnection(host, **more, context=_tls()))

    def _held(self, connection: http.client.HTTPConnection) -> http.client.HTTPConnection:
        # Where http.client takes its sockets from, those of a proxy's tunnel too; it has no public name for it.
        connection._create_connection = self._deadline.connect  # type: ignore[attr-defined]
        return connection


@cache
def _tls() -> ssl.SSLContext:
    """The system's certificates, which take longer to read than a request to make."""
    return ssl.create_default_context()


def _opener(deadline: _Deadline) -> urllib.request.OpenerDirector:
    """HTTP and HTTPS, by the proxy that the environment names; nothing else, redirections and files neither."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Within(deadline),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _content(response: http.client.HTTPResponse) -> bytes | None:
    """The body; None where it is too large. A body that ends early raises."""
    found = bytearray()
    while chunk := response.read1(_READ_AT_ONCE):
        found += chunk
        if len(found) > _MOST_BYTES:
            return None
    if response.length:
        raise http.client.IncompleteRead(bytes(found), response.length)
    return bytes(found)


def _broken(to: Endpoint, error: Exception) -> Fault:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return _LATE
    if isinstance(reason, http.client.IncompleteRead):
        return Fault("garbage", "half a reply")
    return Fault("connection", one_line(to.scrubbed(f"{type(reason).__name__}: {reason}")))


def _refused(to: Endpoint, error: urllib.error.HTTPError) -> Fault:
    with error:
        try:
            said = error.read(2000).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            said = ""
    detail = one_line(f"HTTP {error.code}: {to.scrubbed(said)}", width=300)
    if error.code == 429 and "insufficient_quota" not in said:
        return Fault("rate limited", detail, wait_seconds=_wait(error.headers.get("Retry-After")))
    if error.code >= 500 or error.code in {409, 425}:
        return Fault("server error", detail, wait_seconds=_wait(error.headers.get("Retry-After")))
    if error.code == 400 and "content_filter" in said:
        return Fault("filtered", detail, again=False)
    if error.code == 408:
        return Fault("timeout", detail)
    # A request that is too long or not admitted is one request's trouble; a key, a path or a credit is everybody's.
    return Fault("rejected", detail, again=False, hopeless=error.code not in {400, 413, 422})


def _wait(retry_after: str | None) -> float | None:
    """Seconds from a Retry-After header: a number, or a date."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _reply(to: Endpoint, content: bytes) -> Reply | Fault:
    garbage = Fault("garbage", one_line(to.scrubbed(content.decode("utf-8", "replace"))))
    try:
        body = json.loads(content)
        choice, usage = body["choices"][0], body.get("usage") or {}
        # What a reasoning model thought stands beside it, in `reasoning_content` or `reasoning`, and is no verdict.
        text, finish = _text(choice["message"]["content"]), choice.get("finish_reason")
    except (ValueError, RecursionError, KeyError, IndexError, TypeError, AttributeError):
        return garbage
    if text is None or not isinstance(usage, dict):
        return garbage
    tokens = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    known = [n if isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= _MOST_TOKENS else None for n in tokens]
    # A lone surrogate is valid JSON and no text that a file could hold.
    clean = to.scrubbed(text).encode("utf-8", "replace").decode()
    finished, model = (one_line(to.scrubbed(str(said or ""))) for said in (finish, body.get("model")))
    return Reply(clean, finished, known[0], known[1], model)


def _text(content: Any) -> str | None:
    """A message's content: a string, parts with text, or nothing at all."""
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    return content if isinstance(content, str) else None
