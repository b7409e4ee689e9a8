"""LoRA adapters, through peft: added before training, merged or kept apart after it."""

from typing import cast

from torch import nn
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.training.settings import TrainingSettings


def with_lora(model: PreTrainedModel, settings: TrainingSettings) -> PreTrainedModel:
    """The model with a fresh adapter on the layers that `lora_targets` names; everything else is frozen.

    The scale of the update is lora_alpha / lora_rank (Hu et al., LoRA, 2106.09685).
    """
    from peft import LoraConfig, get_peft_model

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
        task_type="CAUSAL_LM",
    )
    return cast(PreTrainedModel, get_peft_model(model, config))


def merged(model: PreTrainedModel) -> PreTrainedModel:
    """The plain model with the adapter's update added to its weights; a plain model comes back as it is."""
    from peft import PeftModel

    if not isinstance(model, PeftModel):
        return model
    plain = model.merge_and_unload()
    # Merging leaves the base frozen.
    return cast(PreTrainedModel, plain.requires_grad_(True))
