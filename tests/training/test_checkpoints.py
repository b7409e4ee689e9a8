"""Checkpoints that a full disk or a broken copy damaged are named, and left for a person to delete."""

import shutil

import pytest
from safetensors.torch import load_file, save_file

from vestige.core.errors import InputError
from vestige.training.loop import train


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
