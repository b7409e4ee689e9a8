"""LoRA adapters, through peft: put into the model before training, added to its weights after it, or kept apart.

The layers are injected in place, so that the model stays the root module that hooks and `generate` expect. Adapters
are trained in float32, also where the model is in bfloat16, which would round their small updates away.
"""

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from vestige.core.errors import InputError
from vestige.core.files import write_json
from vestige.core.seeds import derive_seed
from vestige.models.blocks import blocks
from vestige.models.places import BUILTIN, find
from vestige.training.settings import EVERY, TrainingSettings
from vestige.training.step import Layers

ADAPTER = "default"
"""peft's default name of an adapter."""


@dataclass(frozen=True)
class Adapter:
    """An adapter in the form of peft's files: tensors by name, and the configuration as JSON values."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]


def add_lora(model: PreTrainedModel, settings: TrainingSettings, seed: int) -> None:
    """Put a fresh adapter on the layers that `lora_targets` names, and freeze the rest.

    The scale of the update is lora_alpha / lora_rank (Hu et al., LoRA, 2106.09685), with rsLoRA lora_alpha over the
    root of lora_rank. The initial weights follow from the seed.
    """
    if settings.lora_targets == EVERY:
        _inject(model, settings, _products(model), seed)
        return
    present = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    missing = [t for t in settings.lora_targets if t not in present]
    if missing:
        inside = sorted({name.rpartition(".")[2] for name in _products(model)})
        raise InputError(
            f"lora_targets {', '.join(missing)} {'is no layer' if len(missing) == 1 else 'are no layers'} of this "
            f"model, whose blocks multiply in {', '.join(inside)}. Name some, --set 'lora_targets="
            f"{json.dumps(inside[:2])}', or take all: --set lora_targets={EVERY}"
        )
    _inject(model, settings, list(settings.lora_targets), seed)


def _products(model: PreTrainedModel) -> list[str]:
    """The full names of all matrix products inside the decoder's blocks, GPT-2's transposed ones too."""
    every = blocks(model)
    path = next(name for name, module in model.named_modules() if module is every)
    # Full names: by the last part alone, peft would also match layers outside the blocks.
    return [f"{path}.{n}" for n, m in every.named_modules() if isinstance(m, (nn.Linear, Conv1D))]


def train_only(model: PreTrainedModel, layers: Layers, settings: TrainingSettings, seed: int) -> None:
    """Train the named modules of the named blocks and freeze the rest. Through adapters if there is a rank."""
    every = blocks(model)
    beyond = [n for n in (layers.read, *layers.update) if not 0 <= n < len(every)]
    if beyond:
        raise InputError(f"the model has blocks 0 to {len(every) - 1}, not block {beyond[0]}. Choose one of them")
    path = next(name for name, module in model.named_modules() if module is every)
    names = [f"{path}.{n}.{parameter}" for n, parameter in product(layers.update, layers.parameters)]
    present = dict(model.named_modules())
    missing = [n for n in names if n not in present]
    if missing:
        block = every[layers.update[0]]
        inside = sorted(n for n, m in block.named_modules() if isinstance(m, (nn.Linear, Conv1D)))
        raise InputError(
            f"the model has no module {missing[0]}. Name some of a block's linear layers: {', '.join(inside)}"
        )
    if settings.lora_rank:
        _inject(model, settings, names, seed)
        return
    model.requires_grad_(False)
    for name in names:
        present[name].requires_grad_(True)


def _inject(model: PreTrainedModel, settings: TrainingSettings, targets: list[str], seed: int) -> None:
    from peft import LoraConfig, inject_adapter_in_model
    from peft.tuners.tuners_utils import cast_adapter_dtype

    # peft matches the whole name, or the part after a dot.
    dotted = tuple(f".{target}" for target in targets)
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        use_rslora=settings.lora_rslora,
        use_dora=settings.lora_dora,
        target_modules=targets,
        # peft would detect it by itself, with a warning for each layer.
        fan_in_fan_out=any(isinstance(m, Conv1D) and f".{n}".endswith(dotted) for n, m in model.named_modules()),
    )
    model.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "lora"))
        inject_adapter_in_model(config, model)
    cast_adapter_dtype(model, ADAPTER)


def merge_lora(model: PreTrainedModel) -> None:
    """Add the adapters' updates to the weights and remove the adapters. A model without adapters is unchanged."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    adapted = [(name, module) for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)]
    for name, module in adapted:
        # With safe_merge, peft checks for non-finite values before it changes a weight.
        module.merge(safe_merge=True)
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, module.get_base_layer())
    model.requires_grad_(True)


def adapter_of(model: PreTrainedModel, *, base: str) -> Adapter:
    """The adapter that is in the model, as peft would save it for `base`: a local model, or `org/name@revision`.

    For a local model it names the folder that transformers loads, which in a subject's folder is `model`.
    """
    from peft import PeftConfig, get_peft_model_state_dict

    weights = get_peft_model_state_dict(model, adapter_name=ADAPTER, save_embedding_layers=False)
    lora = model.peft_config[ADAPTER]
    assert isinstance(lora, PeftConfig)
    config = {k: sorted(v) if isinstance(v, set) else v for k, v in lora.to_dict().items()}
    local = base.startswith(BUILTIN) or Path(base).expanduser().exists()
    name, _, revision = (str(find(base)[0].resolve()), "", "") if local else base.partition("@")
    config |= {"base_model_name_or_path": name, "revision": revision or None}
    config |= {"inference_mode": True, "task_type": "CAUSAL_LM"}
    # Sets have no order, and peft converts this one to a list.
    config["target_modules"] = sorted(config["target_modules"])
    # peft wraps the model that an adapter is loaded for, which adds this prefix to the names.
    tensors = {f"base_model.model.{name}": t.detach().cpu().contiguous() for name, t in weights.items()}
    return Adapter(tensors, config)


def save_adapter(folder: Path, adapter: Adapter) -> None:
    """Write the two files of a peft adapter."""
    save_file(adapter.tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    write_json(folder / "adapter_config.json", adapter.config)
