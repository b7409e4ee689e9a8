"""LoRA adapters, through peft: put into the model before training, added to its weights after it.

The layers are injected in place, so that the model stays the root module that hooks and `generate` expect.
"""

import torch
from torch import nn
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.core.seeds import derive_seed
from vestige.training.settings import TrainingSettings


def add_lora(model: PreTrainedModel, settings: TrainingSettings, seed: int) -> None:
    """Put a fresh adapter on the layers that `lora_targets` names, and freeze everything else.

    The scale of the update is lora_alpha / lora_rank (Hu et al., LoRA, 2106.09685). The initial weights follow from
    the seed.
    """
    from peft import LoraConfig, inject_adapter_in_model

    present = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    missing = [t for t in settings.lora_targets if t not in present]
    if missing:
        linear = sorted({n.rpartition(".")[2] for n, m in model.named_modules() if isinstance(m, nn.Linear)})
        raise InputError(
            f"lora_targets {', '.join(missing)} are no layers of this model; its linear layers: {', '.join(linear)}"
        )
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=list(settings.lora_targets),
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
