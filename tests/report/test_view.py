"""`vestige view`: who is answered, what is served, and whether pages follow a run that grows."""

import http.client
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic_audit import hostile, outcome, write_audit
from synthetic_run import SCRIPT, items, spec, write_run, write_subject

from vestige.artifacts.layout import RunFolder
from vestige.core.errors import InputError
from vestige.report import build_report
from vestige.report.view import allowed, serve

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewed") / "runs"
    first = write_run(folder / "first run", hostile=False, forgets=("edge:A_B",))
    write_audit(first, outcome())
    build_report(first)
    growing = RunFolder(folder / "growing")
    write_subject(growing.control("target"), spec("target", ""), items(), ("edge:A_B",), False)
    outside = folder.parent / "secret"
    shutil.copytree(growing.path, outside)
    (folder / "link").symlink_to(outside)
    (first / "tables" / "leak.csv").symlink_to(first / "run.toml")
    return folder


@pytest.fixture(scope="module")
def port(runs: Path) -> Iterator[int]:
    with serve(runs) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    sent = {"Host": f"127.0.0.1:{port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=sent)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body, dict(response.headers)


def test_the_runs_stand_side_by_side_and_lead_to_their_reports(port, runs):
    status, body, headers = get(port, "/")
    assert status == 200
    assert 'href="/run/first%20run/"' in body
    assert 'href="/run/first%20run/#why-0-0-1"' in body
    assert "no audit yet; 1 of 1 models are finished" in body
    assert headers["X-Frame-Options"] == "DENY"
    status, page, _ = get(port, "/run/first%20run/")
    assert (status, page) == (200, (runs / "first run/report.html").read_text(encoding="utf-8"))
    status, table, headers = get(port, "/run/first%20run/tables/verdicts.csv")
    assert (status, table) == (200, (runs / "first run/tables/verdicts.csv").read_bytes().decode())
    assert "sandbox" in headers["Content-Security-Policy"]
    assert get(port, "/", method="HEAD")[:2] == (200, "")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"origin": "http://evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
def test_a_request_by_another_name_or_from_another_site_is_refused(port, headers):
    assert get(port, "/", **headers)[0] == 403


def test_its_own_names_and_pages_are_answered(port):
    for host in ("127.0.0.1", "localhost"):
        own = {"Host": f"{host}:{port}", "Origin": f"http://{host}:{port}", "Sec-Fetch-Site": "same-origin"}
        assert allowed(own, port)
        assert not allowed(own, port + 1)


@pytest.mark.parametrize(
    "path",
    [
        "/run/link/",
        "/run/../secret/",
        "/run/..%2fsecret/",
        "/run/first%20run/tables/..%2frun.toml",
        "/run/first%20run/tables/leak.csv",
        "/run/first%20run/models/target",
        "/run/first%20run/../../secret/",
        "/run/%00/",
        "/etc/passwd",
    ],
)
def test_nothing_outside_the_folder_and_nothing_but_reports_is_served(port, path):
    assert get(port, path)[0] == 404


def test_only_reading_is_known(port):
    assert get(port, "/", method="POST")[0] == 501


def test_a_page_follows_its_run(port, runs):
    run = RunFolder(runs / "growing")
    _, before, _ = get(port, "/run/growing/")
    assert "<bdi>retrained</bdi>" not in before
    own = spec("retrained", "edge:A_B")
    write_subject(run.control("retrained"), own, items(), ("edge:A_B",), False)
    assert "<bdi>retrained</bdi>" in get(port, "/run/growing/")[1]
    assert "2 of 2 models are finished" in get(port, "/")[1]
    write_audit(run.path, hostile())
    index = get(port, "/")[1]
    assert "&lt;script&gt;window.pwned" in index
    assert SCRIPT not in index
    outcome_file = run.audit("edge:A_B").outcome
    outcome_file.write_text("{", encoding="utf-8")
    assert "cannot be read" in get(port, "/")[1]
    assert get(port, "/run/growing/")[0] == 503
    assert not run.report.exists()


def test_a_folder_without_a_run_is_refused_and_so_is_a_port_that_is_taken(tmp_path, port, runs):
    with pytest.raises(InputError, match="no run in it"):
        serve(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        serve(tmp_path / "none")
    with pytest.raises(InputError, match=f"port {port} cannot be had"):
        serve(runs, port)
