"""Wrong answers of the right kind: what the same attribute is in other contracts, or could have been."""

from collections.abc import Iterator, Sequence

from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.data.contract_checks import N_WRONG, candidate_values
from vestige.data.contract_type import ContractType
from vestige.data.drawing import WRONG_DRAWN, Drawing
from vestige.data.uniform import shuffled, uniform_integers

_TRIES = 8 * N_WRONG


def wrong_values(
    drawing: Drawing, type_: ContractType, attribute: str, edge: int, value: str, others: Sequence[str]
) -> tuple[str, ...]:
    """Five values other than `value`, all different, which depend on the seed, the edge and the attribute.

    First come values that the attribute has in other contracts (`others`, without repeats), then further
    values of its generator, then the table's decoys.
    """
    found: list[str] = []
    for candidate in _candidates(drawing, type_, attribute, edge, others):
        if candidate != value and candidate not in found:
            found.append(candidate)
            if len(found) == N_WRONG:
                return tuple(found)
    raise InputError(
        f"contract type {type_.name}: attributes.{attribute}: only {len(found)} wrong answers to {value!r}, "
        "and "
        f"{N_WRONG} are needed; add decoys"
    )


def _candidates(
    drawing: Drawing, type_: ContractType, attribute: str, edge: int, others: Sequence[str]
) -> Iterator[str]:
    place = list(type_.spec.attributes).index(attribute)
    rng = generator(drawing.seed, "wrong answers", type_.name, attribute, edge)
    for index in uniform_integers(rng, 0, len(others) - 1, _TRIES).tolist():
        yield others[index]
    yield from others if len(others) <= _TRIES else ()
    listed = list(candidate_values(type_.spec, type_.spec.attributes[attribute]))
    yield from (listed[index] for index in shuffled(rng, len(listed)).tolist())
    number = edge * len(type_.spec.attributes) + place
    yield from drawing.fresh_values(type_, attribute, number, WRONG_DRAWN)
    yield from type_.spec.attributes[attribute].decoys
