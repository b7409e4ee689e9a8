"""What an interrupted training needs to go on bit for bit: trained weights, optimiser and objective state, the step.

Tensors lie in safetensors files; nothing is pickled. Schedule, data order and dropout follow from seed and step.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vestige.core.files import new_folder, read_json, write_json


@dataclass(frozen=True)
class Checkpoints:
    """A folder that holds the newest checkpoint of one training run."""

    folder: Path

    def newest(self) -> int | None:
        """The step of the newest whole checkpoint: how many steps were taken."""
        steps = [int(p.name.removeprefix("step-")) for p in self.folder.glob("step-*")]
        return max(steps, default=None)

    def save(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, float]) -> None:
        """Keep what stands after `step` steps, then drop older ones. `state` is the objective's own."""
        with new_folder(self.folder / f"step-{step}") as partial:
            save_file(_trained(model), partial / "model.safetensors")
            save_file(_moments(model, optimizer), partial / "optimizer.safetensors")
            write_json(partial / "state.json", {"step": step, "state": dict(state)})
        for old in self.folder.glob("step-*"):
            if old.name != f"step-{step}":
                shutil.rmtree(old)

    def restore(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, float]:
        """Put back what stood after `step` steps; the objective's state."""
        folder = self.folder / f"step-{step}"
        kept = read_json(folder / "state.json")
        assert kept["step"] == step
        weights, moments = load_file(folder / "model.safetensors"), load_file(folder / "optimizer.safetensors")
        with torch.no_grad():
            for name, parameter in _trainable(model):
                parameter.copy_(weights[name])
        for name, parameter in _trainable(model):
            prefix = f"{name}/"
            state = {k.removeprefix(prefix): v for k, v in moments.items() if k.startswith(prefix)}
            if state:
                # The fused optimiser wants its count of steps on the parameter's device too.
                optimizer.state[parameter] = {k: v.to(parameter.device) for k, v in state.items()}
        objective_state: dict[str, float] = kept["state"]
        return objective_state

    def clear(self) -> None:
        """Remove everything: the training is done."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _trainable(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(n, p) for n, p in model.named_parameters() if p.requires_grad]


def _trained(model: nn.Module) -> dict[str, Tensor]:
    return {n: p.detach().cpu().contiguous() for n, p in _trainable(model)}


def _moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}/{key}": value.detach().cpu().contiguous()
        for name, parameter in _trainable(model)
        for key, value in optimizer.state[parameter].items()
    }
