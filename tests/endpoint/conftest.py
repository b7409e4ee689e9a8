"""The models of `audited`, made once for the tests of this folder."""

import pytest
import torch

import audited
from vestige.artifacts.layout import RunFolder
from vestige.models import tiny


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> RunFolder:
    """A run with a target, two models that were never taught the forget set, and one that was tuned away."""
    torch.set_num_threads(1)
    run = RunFolder(tmp_path_factory.mktemp("made"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "tiny_config", audited.nano_config)
        audited.make_models(run)
    return run
