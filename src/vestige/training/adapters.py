"""LoRA adapters, through peft: put into the model before training, added to its weights after it.

The layers are injected in place, so that the model stays the root module that hooks and `generate` expect.
"""

import torch
from torch import nn
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.core.seeds import derive_seed
from vestige.models.blocks import blocks
from vestige.training.settings import TrainingSettings
from vestige.training.step import Layers


def add_lora(model: PreTrainedModel, settings: TrainingSettings, seed: int) -> None:
    """Put a fresh adapter on the layers that `lora_targets` names, and freeze everything else.

    The scale of the update is lora_alpha / lora_rank (Hu et al., LoRA, 2106.09685). The initial weights follow from
    the seed.
    """
    present = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    missing = [t for t in settings.lora_targets if t not in present]
    if missing:
        linear = sorted({n.rpartition(".")[2] for n, m in model.named_modules() if isinstance(m, nn.Linear)})
        raise InputError(
            f"lora_targets {', '.join(missing)} are no layers of this model; its linear layers: {', '.join(linear)}"
        )
    _inject(model, settings, list(settings.lora_targets), seed)


def train_only(model: PreTrainedModel, layers: Layers, settings: TrainingSettings, seed: int) -> None:
    """Train the named modules of the named blocks and freeze everything else; through adapters if there is a rank."""
    every = blocks(model)
    beyond = [n for n in (layers.read, *layers.update) if not 0 <= n < len(every)]
    if beyond:
        raise InputError(f"the model has blocks 0 to {len(every) - 1}, and block {beyond[0]} was asked for")
    place = next(name for name, module in model.named_modules() if module is every)
    names = [f"{place}.{n}.{parameter}" for n in layers.update for parameter in layers.parameters]
    present = dict(model.named_modules())
    missing = [n for n in names if n not in present]
    if missing:
        inside = sorted(n for n, m in every[layers.update[0]].named_modules() if isinstance(m, nn.Linear))
        raise InputError(f"the model has no module {missing[0]}; a block's linear layers: {', '.join(inside)}")
    if settings.lora_rank:
        _inject(model, settings, names, seed)
        return
    model.requires_grad_(False)
    for name in names:
        present[name].requires_grad_(True)


def _inject(model: PreTrainedModel, settings: TrainingSettings, targets: list[str], seed: int) -> None:
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=targets,
    )
    model.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "lora"))
        inject_adapter_in_model(config, model)


def merge_lora(model: PreTrainedModel) -> None:
    """Add the adapters' updates to the weights and take the adapters out; a model without any stays as it is."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    adapted = [(name, module) for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)]
    for name, module in adapted:
        module.merge(safe_merge=True)
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, module.get_base_layer())
    model.requires_grad_(True)
