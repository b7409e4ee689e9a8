"""Checkpoints and settings that are damaged: used, or named in one sentence."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.audited import nano_config
from tests.damaging import survive
from transformers import LlamaForCausalLM

from vestige.core.errors import InputError
from vestige.core.settings import read_toml, to_toml
from vestige.training.checkpoints import Checkpoints
from vestige.training.loop import train
from vestige.training.settings import TrainingSettings


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 100])
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_named_with_the_way_out(fresh, make_job, name, size):
    job = make_job()
    train(fresh().model, job, until=2)
    path = job.checkpoints.folder / "step-2" / name
    whole = path.read_bytes()
    path.write_bytes(whole[: size if name != "state.json" else min(size, 20)])
    with pytest.raises(InputError, match=rf"{name} is damaged .*Delete the folder {job.checkpoints.folder} and run"):
        train(fresh().model, job)
    # Nothing was deleted; what the sentence says to do is enough.
    assert path.exists()
    shutil.rmtree(job.checkpoints.folder)
    assert train(fresh().model, job, until=1).steps == 1


@pytest.mark.slow
def test_weights_of_a_model_with_other_names_or_shapes_are_refused_as_damaged(fresh, make_job):
    job = make_job()
    train(fresh().model, job, until=2)
    path = job.checkpoints.folder / "step-2" / "model.safetensors"
    weights = load_file(path)
    # One row would be copied into all rows.
    for other in ({f"another.{k}": v for k, v in weights.items()}, {k: v[:1].clone() for k, v in weights.items()}):
        save_file(other, path)
        with pytest.raises(InputError, match=r"model.safetensors is damaged"):
            train(fresh().model, job)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(scope="module")
def nano(whole: Path) -> Path:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LlamaForCausalLM(nano_config())
    model.save_pretrained(whole / "model")
    return whole / "model"


@pytest.mark.slow
def test_checkpoints(nano, whole, tmp_path):
    model = LlamaForCausalLM.from_pretrained(nano)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.tensor([[1, 2]])).logits.sum().backward()
    optimizer.step()
    Checkpoints(whole / "checkpoints").save(1, model, optimizer, {"x": 1.0})
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    def restored(folder: Path) -> None:
        own = Checkpoints(folder)
        step = own.newest()
        if step is not None:
            optimizer.state.clear()
            model.load_state_dict(weights, strict=False)
            state = own.restore(step, model, optimizer)
            assert all(isinstance(value, float) for value in state.values())
            optimizer.step()

    survive("checkpoints", [whole / "checkpoints"], tmp_path, restored, sealed=True)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_one_flipped_bit_is_refused_by_the_name_of_its_file(nano, tmp_path, name):
    model = LlamaForCausalLM.from_pretrained(nano)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.tensor([[1, 2]])).logits.sum().backward()
    optimizer.step()
    own = Checkpoints(tmp_path)
    own.save(1, model, optimizer, {"x": 1.0})
    path = tmp_path / "step-1" / name
    whole = bytearray(path.read_bytes())
    assert own.restore(1, model, optimizer) == {"x": 1.0}
    # The last bytes of a tensor, and in the JSON a digit.
    at = len(whole) - 4 if name != "state.json" else whole.index(b"1.0")
    whole[at] ^= 1
    path.write_bytes(whole)
    with pytest.raises(InputError, match=rf"{name} is damaged \(.*(checksum is another|was changed)"):
        own.restore(1, model, optimizer)


def test_settings(whole, tmp_path):
    (whole / "settings").mkdir()
    values = {key: value for key, value in TrainingSettings().identity().items() if value is not None}
    (whole / "settings" / "run.toml").write_text(to_toml(values))

    def restored(folder):
        return TrainingSettings.build(read_toml(folder / "run.toml"), where="run.toml")

    survive("settings", [whole / "settings"], tmp_path, restored)
