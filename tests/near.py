"""Whether two results are the same but for rounding: what other batches, threads and processors may change."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

NATS = 1e-4
# What a token that was a near-tie decides.
_REPLY = {"ids", "finish", "reply", "reply_ids", "margin"}


def near(found: Any, expected: Any, *, nats: float = NATS) -> bool:
    """Numbers within `nats`, ranks within one, replies the same unless a near-tie decided one of their tokens."""
    if is_dataclass(expected) or hasattr(expected, "_asdict"):
        if type(found) is not type(expected):
            return False
        return near(_fields(found), _fields(expected), nats=nats)
    if isinstance(expected, Mapping):
        if not isinstance(found, Mapping) or found.keys() != expected.keys():
            return False
        tied = expected.get("margin", math.inf) < 10 * nats
        kept = [key for key in expected if not (tied and key in _REPLY)]
        return all(near(found[k], expected[k], nats=1 if "rank" in str(k) else nats) for k in kept)
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        return len(found) == len(expected) and all(near(a, b, nats=nats) for a, b in zip(found, expected, strict=True))
    if isinstance(expected, float):
        return found == expected or abs(found - expected) <= nats
    return bool(found == expected)


def _fields(value: Any) -> dict[str, Any]:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value._asdict()
