"""The state of an interrupted training, sufficient to resume bit for bit, and the training job.

Tensors are in safetensors files. Nothing is pickled. state.json holds the SHA-256 of each, and a checksum of itself, so
that no flipped bit is trained on. Schedule, data order and dropout follow from seed and step.

One training run: the objective, the rows, their order, and the state's folder.
"""

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vestige import losses
from vestige.core.errors import InputError
from vestige.core.files import new_folder
from vestige.core.ids import file_digest
from vestige.core.store import read_with_seal, write_sealed
from vestige.core.text import Fields, NumberByName, NumberMapping, Record, one_line
from vestige.training.batching import Plan, RowSource
from vestige.training.parallel import ALONE, World
from vestige.training.settings import TrainingSettings
from vestige.training.step import Needs, Objective, ReferenceRow, Step


@dataclass(frozen=True)
class Checkpoints:
    """A folder that holds the newest checkpoint of one training run."""

    folder: Path

    def newest(self) -> int | None:
        """The step of the newest whole checkpoint: how many steps were taken."""
        steps = [int(n) for p in self.folder.glob("step-*") if (n := p.name.removeprefix("step-")).isdecimal()]
        return max(steps, default=None)

    def save(
        self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, state: NumberMapping, world: World = ALONE
    ) -> None:
        """Save the state after `step` steps, then remove older ones. `state` is the objective's own.

        The leading process of `world` writes. Any number of processes can go on from it.
        """
        if not world.leads:
            return
        moments = _moments(model, optimizer)
        with new_folder(self.folder / f"step-{step}") as partial:
            body = {"step": step, "state": dict(state)}
            keep_tensors(partial, {"model": trained_weights(model), "optimizer": moments}, body)
        # Older states are removed only after the new one is complete, in case the process is killed.
        for old in self.folder.glob("step-*"):
            if old.name != f"step-{step}":
                shutil.rmtree(old)

    def restore(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> NumberByName:
        """Restore the state after `step` steps. The objective's state. A damaged file is refused by name."""
        folder = self.folder / f"step-{step}"
        kept = _state(folder)
        with undamaged(folder / "state.json"):
            if kept["step"] != step:
                raise ValueError(f"it is of step {kept['step']}")
            objective_state = {name: float(value) for name, value in _numbers(kept["state"]).items()}
        put_back(model, folder / "model.safetensors")
        moments = _tensors(folder / "optimizer.safetensors")
        counted: set[bool] = set()
        for name, parameter in _trainable(model):
            prefix = f"{name}/"
            state = {k.removeprefix(prefix): v for k, v in moments.items() if k.startswith(prefix)}
            if state:
                # The fused optimiser needs its step count on the parameter's device too.
                placed: Fields = {key: value.to(parameter.device) for key, value in state.items()}
                optimizer.state[parameter] = placed
                counted.add("step" in placed)
        with undamaged(folder / "optimizer.safetensors"):
            if len(counted) > 1:
                raise ValueError("some parameters have no count of steps")
        return objective_state

    def clear(self) -> None:
        """Remove everything: the training is done."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def undamaged(path: Path) -> Iterator[None]:
    """Turn what goes wrong while a checkpoint's file is read into an InputError that names it and the way out.

    Nothing is deleted: a person must decide whether to repeat hours of training.
    """
    try:
        # Libraries that memory-map a directory report a missing device.
        if path.is_dir():
            raise ValueError("it is a folder")
        yield
    except (FileNotFoundError, SafetensorError, InputError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{path} is damaged ({one_line(str(error), width=200)}), so training cannot go on from it. Delete the "
            f"folder {path.parent.parent} and run the same command again: training starts again"
        ) from error


def keep_tensors(folder: Path, tensors: Mapping[str, Mapping[str, Tensor]], body: Record) -> None:
    """Write each group of tensors to a file of its name, and `body` to state.json with the checksums of all."""
    files = {name: folder / f"{name}.safetensors" for name in tensors}
    for name, group in tensors.items():
        save_file(dict(group), files[name])
    write_sealed(folder / "state.json", dict(body), files.values())


def _state(folder: Path) -> Fields:
    """Return the content of state.json, if it is unchanged since it was written."""
    with undamaged(folder / "state.json"):
        return read_with_seal(folder / "state.json", "seal", "files")


def _tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file that is as it was written."""
    files = _state(path.parent)["files"]
    with undamaged(path):
        if file_digest(path) != files[path.name]:
            raise ValueError("its checksum is another")
        return load_file(path)


def _numbers(value: Any) -> Fields:
    if not isinstance(value, dict) or not all(type(v) in (int, float) for v in value.values()):
        raise ValueError("its state holds something other than numbers by name")
    return value


def _trainable(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(n, p) for n, p in model.named_parameters() if p.requires_grad]


def trained_weights(model: nn.Module) -> dict[str, Tensor]:
    """The trained parameters by name, on the CPU."""
    return _on_cpu(_trainable(model))


def put_back(model: nn.Module, weights: Path) -> None:
    """Give the trained parameters the values in a file of `trained_weights`, next to state.json."""
    # All shapes are checked before any weight is changed, so a rejection leaves the model unchanged.
    stored = _tensors(weights)
    with undamaged(weights):
        for name, parameter in _trainable(model):
            if stored[name].shape != parameter.shape:
                raise ValueError(f"{name} has another shape")
    with torch.no_grad():
        for name, parameter in _trainable(model):
            parameter.copy_(stored[name])


def _moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state."""
    state: dict[str, Tensor] = {}
    for name, parameter in _trainable(model):
        state |= {f"{name}/{key}": value for key, value in optimizer.state[parameter].items()}
    return _on_cpu(state.items())


def _on_cpu(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors}


@dataclass(frozen=True)
class TrainingJob:
    """The arguments of `train` in addition to the model. `layer` is the block that an objective on activations reads.

    `world` lists the processes: it affects speed and memory, and not the result.
    """

    objective: Objective
    rows: RowSource
    plan: Plan
    settings: TrainingSettings
    seed: int
    checkpoints: Checkpoints
    log: Path
    references: Mapping[str, ReferenceRow] = field(default_factory=dict)
    layer: int | None = None
    world: World = ALONE


@dataclass(frozen=True)
class Finetune:
    """NLL(train), mean over the tokens of the effective batch."""

    needs: ClassVar[Needs] = Needs(policy=frozenset({"train"}))

    def terms(self, step: Step) -> dict[str, Float[Tensor, ""]]:
        train = step.policy("train")
        return {"train": losses.nll(train.logp, train.mask, n_tokens=train.n_tokens)}
