"""PISTOL's first sample data set, compiled once: in memory and as a folder, which tests only read."""

from pathlib import Path

import pytest

from vestige.data.dataset import Dataset, compile_dataset, write_dataset


@pytest.fixture(scope="session")
def sample1() -> Dataset:
    return compile_dataset("sample1", seed=0)


@pytest.fixture(scope="session")
def folder1(sample1: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled") / "sample1"
    write_dataset(sample1, folder)
    return folder
