"""`vestige view`: the reports of a folder of runs, served to this machine alone and made anew as the runs grow.

The server listens on the loopback interface. It answers only requests that name it by a loopback name (`Host`) and that
no other site sent (`Origin`, `Sec-Fetch-Site`): else a page of another site could read reports through the reader's
browser. No part of an address becomes a path: runs and files are looked up among those that are there. Nothing is
written, so that a command may work on a run at the same time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from vestige.artifacts.audits import read_outcome
from vestige.artifacts.layout import ProbeFolder, RunFolder
from vestige.core.errors import InputError, VestigeError
from vestige.report.contents import plain_outcome, read_contents
from vestige.report.first_screen import first_screen
from vestige.report.graph import read_edges
from vestige.report.holes import is_probe, read_probe
from vestige.report.page import render, render_holes, render_view

REFRESH_SECONDS = 5
_GROWS = ("*/*/spec.json", "*/*/done.json", "*/*/evals/*/summary-*.json", "audit/*/outcome.json", "summary.json")
"""What a run gains as it goes on, and its page is made from."""
_FILES = {"tables": ("*.csv", "text/csv"), "figures": ("*.svg", "image/svg+xml")}
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_NO_SCRIPT = "default-src 'none'; style-src 'unsafe-inline'; sandbox"


class NotThere(Exception):
    """Nothing is at this address."""


@dataclass
class Viewer:
    """The pages of the runs in `folder`, or of the one run that it is; each is kept until its run has grown."""

    folder: Path
    _kept: dict[tuple[str, str], tuple[Any, Any]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def runs(self) -> dict[str, Path]:
        """The runs by their names; a link that leads out of the folder is none."""
        folder = self.folder.resolve()
        if _is_run(folder):
            return {folder.name: folder}
        own = [p for p in sorted(folder.iterdir()) if p.is_dir() and p.resolve().is_relative_to(folder)]
        return {p.name: p for p in own if _is_run(p)}

    def page(self, name: str) -> str:
        """The report of one run."""
        return str(self._of("page", name, _page))

    def index(self) -> str:
        """All runs with their verdicts, one below the other."""
        return render_view([self._of("line", name, _line) for name in self.runs()], REFRESH_SECONDS)

    def file(self, name: str, kind: str, file: str) -> tuple[bytes, str]:
        """A table or a figure of a run, as its last report left it, with its type."""
        if kind not in _FILES:
            raise NotThere
        pattern, mime = _FILES[kind]
        run = self._run(name)
        found = {p.name: p for p in (run / kind).glob(pattern) if p.is_file() and not p.is_symlink()}
        if file not in found or not found[file].resolve().is_relative_to(run.resolve()):
            raise NotThere
        return found[file].read_bytes(), mime

    def _run(self, name: str) -> Path:
        runs = self.runs()
        if name not in runs:
            raise NotThere
        return runs[name]

    def _of(self, what: str, name: str, make: Callable[[Path], Any]) -> Any:
        run = self._run(name)
        with self._lock:
            state = _state(run)
            kept = self._kept.get((what, name))
            if kept is None or kept[0] != state:
                kept = self._kept[what, name] = (state, make(run))
            return kept[1]


def _is_run(folder: Path) -> bool:
    return is_probe(ProbeFolder(folder)) or any(RunFolder(folder).subjects())


def _state(run: Path) -> list[tuple[str, int, int]]:
    found = sorted(path for pattern in _GROWS for path in run.glob(pattern))
    stats = [(str(path), path.stat()) for path in found]
    return [(path, stat.st_mtime_ns, stat.st_size) for path, stat in stats]


def _page(run: Path) -> str:
    if is_probe(ProbeFolder(run)):
        return render_holes(read_probe(ProbeFolder(run)))
    return render(read_contents(RunFolder(run)))


def _line(run: Path) -> dict[str, Any]:
    """What the index says of a run; a run that cannot be read is said to be so, and the others are shown."""
    folder = RunFolder(run)
    subjects = list(folder.subjects())
    said: dict[str, Any] = {
        "name": run.name,
        "link": f"/run/{quote(run.name, safe='', errors='replace')}/",
        "models": len(subjects),
        "finished": sum(s.done.exists() for s in subjects),
        "audits": [],
        "problem": "",
    }
    try:
        parties = {edge.id: edge.name for edge in read_edges(folder)[0] if edge.name}
        outcomes = [plain_outcome(read_outcome(audit), parties) for audit in folder.audits()]
        said["audits"] = [first_screen(i, outcome, {}, parties) for i, outcome in enumerate(outcomes)]
    except VestigeError as error:
        said["problem"] = str(error)
    return said


def serve(folder: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server of the runs in `folder` on the loopback interface, not yet started; port 0 takes a free one."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no folder; give a run, or a folder of runs")
    viewer = Viewer(folder)
    if not viewer.runs():
        raise InputError(f"{folder}: no run in it; give a run, or a folder of runs")
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), _handler(viewer))
    except OSError as error:
        raise InputError(f"port {port} cannot be had ({error.strerror}); choose another with --port") from error


def _handler(viewer: Viewer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "vestige", ""

        def do_GET(self) -> None:
            self._answer(*self._found())

        def do_HEAD(self) -> None:
            self.do_GET()

        def _found(self) -> tuple[HTTPStatus, bytes, str]:
            if not allowed(
                {name.title(): value for name, value in self.headers.items()}, self.connection.getsockname()[1]
            ):
                return HTTPStatus.FORBIDDEN, b"This address is for this machine's own browser.\n", "text/plain"
            try:
                body, mime = _looked_up(viewer, self.path)
                return HTTPStatus.OK, body, mime
            except NotThere:
                return HTTPStatus.NOT_FOUND, b"Nothing is here.\n", "text/plain"
            except (VestigeError, OSError) as error:
                # Half of what a run is writing may be there; the next request finds it whole.
                return HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode(errors="replace"), "text/plain"

        def _answer(self, status: HTTPStatus, body: bytes, mime: str) -> None:
            self.send_response(status)
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            if mime != "text/html":
                self.send_header("Content-Security-Policy", _NO_SCRIPT)
            self.send_header("Content-Type", f"{mime}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing: requests are the reader's own."""

    return Handler


def allowed(headers: Mapping[str, str], port: int) -> bool:
    """Whether a request was sent to this server by its own name, and by none but its own pages or a person."""
    own = {f"{host}:{port}" for host in ("127.0.0.1", "localhost")}
    origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site", "none")
    by_us = origin is None or origin in {f"http://{name}" for name in own}
    return headers.get("Host") in own and by_us and site in ("none", "same-origin")


def _looked_up(viewer: Viewer, address: str) -> tuple[bytes, str]:
    parts = [unquote(part) for part in urlsplit(address).path.split("/")[1:]]
    match parts:
        case [""]:
            return viewer.index().encode(errors="replace"), "text/html"
        case ["run", name, ""]:
            return viewer.page(name).encode(errors="replace"), "text/html"
        case ["run", name, kind, file]:
            return viewer.file(name, kind, file)
    raise NotThere
