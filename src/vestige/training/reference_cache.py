"""Reference quantities on disk: a training that goes on does not compute them again.

They are found by what they depend on: the reference model, the rows, the number formats, the layer, the device's
kind and the versions of this code and of torch. Tensors lie end to end in one safetensors file, row after row.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vestige.core.files import new_folder
from vestige.core.ids import content_id
from vestige.training.batching import Row

VERSION = 2
"""Raised when the same key would come out as other numbers."""

Parts = dict[str, list[Float[Tensor, "_ ..."]]]
"""By name, a tensor for each row; the rows' lengths differ."""


@dataclass(frozen=True)
class ReferenceCache:
    """Where the quantities of one reference, of digest `model`, are kept; only one process writes."""

    folder: Path
    model: str
    writes: bool = True

    def keep(self, rows: Sequence[Row], about: dict[str, Any], compute: Callable[[], Parts]) -> Parts:
        """What is kept for these rows, or what `compute` gives, kept from now on.

        `about` is everything besides the model and the rows that the numbers depend on.
        """
        named = {**about, "model": self.model, "rows": [r.key for r in rows]}
        id_ = content_id({**named, "version": VERSION, "torch": torch.__version__})
        place = self.folder / f"references-{id_}"
        if place.exists():
            # Nothing is lost with a damaged file: what is computed in its place is the same.
            with contextlib.suppress(OSError, SafetensorError, ValueError, KeyError):
                return _unpacked(load_file(place / "rows.safetensors"))
        found = compute()
        if self.writes:
            with new_folder(place) as partial:
                save_file(_packed(found), partial / "rows.safetensors")
        return found


def _packed(parts: Parts) -> dict[str, Tensor]:
    packed: dict[str, Tensor] = {}
    for name, tensors in parts.items():
        packed[name] = torch.cat(tensors).contiguous()
        packed[f"{name} lengths"] = torch.tensor([len(t) for t in tensors])
    return packed


def _unpacked(packed: dict[str, Tensor]) -> Parts:
    names = [name for name in packed if not name.endswith(" lengths")]
    return {
        name: [part.clone() for part in packed[name].split(packed[f"{name} lengths"].tolist())]
        for name in sorted(names)
    }
