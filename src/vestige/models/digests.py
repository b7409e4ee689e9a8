"""The digest of a model's weights: what every result that depends on them is keyed by."""

import hashlib

import torch
from torch import nn


def weights_digest(model: nn.Module) -> str:
    """SHA-256 over the names, shapes, types and bytes of all parameters and buffers that are saved, by name."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        total.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        total.update(plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return total.hexdigest()
