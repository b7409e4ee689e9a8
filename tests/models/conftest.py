"""A tiny untrained model, shared by the tests that only need numbers from one; and pip's index as a folder."""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from vestige.core.items import Item
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_model, tiny_tokenizer

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]


@pytest.fixture(scope="session")
def items() -> tuple[Item, ...]:
    return tuple(
        Item(
            f"What is the {' '.join(WORDS[: 1 + i % 9])} of {WORDS[i % 12]} {i}?",
            f"{WORDS[(5 * i) % 12]} {i}.",
            edge=f"e{i % 4}",
        )
        for i in range(24)
    )


@pytest.fixture(scope="session")
def tiny(items) -> LoadedModel:
    torch.set_num_threads(1)
    return LoadedModel(tiny_model(0).eval(), tiny_tokenizer(items), "builtin:tiny", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which pip looks for packages, and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in (("CONFIG_FILE", os.devnull), ("NO_INDEX", "1"), ("FIND_LINKS", str(folder))):
        monkeypatch.setenv(f"PIP_{name}", value)
    return folder


def write_wheel(folder: Path, name: str, version: str, files: Mapping[str, str | bytes]) -> Path:
    """A wheel of that name with these files; its dependencies are nowhere."""
    plain = name.replace("-", "_")
    path, about = folder / f"{plain}-{version}-py3-none-any.whl", f"{plain}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: absent\n"
    own = {"METADATA": metadata, "WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n", "RECORD": ""}
    with zipfile.ZipFile(path, "w") as archive:
        for place, content in {**files, **{f"{about}/{k}": v for k, v in own.items()}}.items():
            archive.writestr(place, content)
    return path
