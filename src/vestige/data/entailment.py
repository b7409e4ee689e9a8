"""What the retain set gives away about the forget set, by the contract types' tables, not by string overlap.

An item of the forget set is
- entailed: it asks for the address of an entity, and a retained contract states the same address of it;
- guessable: it asks for the name of an entity that signs a retained contract, so that the name is known and
  only which contract it belongs to has to be guessed;
- free: neither.
(Qiu et al., 2024, arXiv:2406.16810, do not tell these apart: in their sample data set 1 retained contracts
teach 4 of the 20 answers of A_B.)
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from vestige.core.items import Item, Scope
from vestige.data.contract_type import ContractType
from vestige.data.dataset import Contract, Dataset
from vestige.data.graph import Graph


class Known(NamedTuple):
    """What contracts state about entities: the names of their parties, and addresses as (name, address)."""

    names: frozenset[str]
    addresses: frozenset[tuple[str, str]]


def known_from(contracts: Iterable[Contract], types: Mapping[str, ContractType]) -> Known:
    """What these contracts state about entities."""
    names, addresses = set(), set()
    for contract in contracts:
        type_ = types[contract.type]
        for role, naming in type_.name_of.items():
            names.add(contract.values[naming])
            addresses |= {
                (contract.values[naming], contract.values[attribute])
                for attribute, owner in type_.addresses.items()
                if owner == role and attribute in contract.values
            }
    return Known(frozenset(names), frozenset(addresses))


def scope_of_items(dataset: Dataset, forget: Collection[str]) -> dict[str, Scope]:
    """The scope of each item of the forgotten edges, by item id; items of unknown attributes are left out."""
    retained = known_from((c for c in dataset.contracts if c.edge not in forget), dataset.types)
    return {
        item.id: scope_of(item, dataset.contract_of[edge], dataset.types, retained)
        for edge in forget
        if edge in dataset.contract_of
        for item in dataset.items_of_edge.get(edge, ())
        if item.attribute is not None
    }


def scope_of(item: Item, contract: Contract, types: Mapping[str, ContractType], retained: Known) -> Scope:
    """The scope of one item, given its contract and what the retained contracts state."""
    type_, attribute = types[contract.type], str(item.attribute)
    if attribute in type_.addresses:
        owner = contract.values[type_.name_of[type_.addresses[attribute]]]
        return "entailed" if (owner, contract.values[attribute]) in retained.addresses else "free"
    if attribute in type_.names:
        return "guessable" if contract.values[attribute] in retained.names else "free"
    return "free"


def n_entailed_of_contracts(dataset: Dataset) -> dict[str, int]:
    """Entailed items of each edge if that edge alone is forgotten; edges of unknown content are left out."""
    statements = Counter(
        fact for contract in dataset.contracts for fact in known_from([contract], dataset.types).addresses
    )
    return {
        contract.edge: sum(
            statements[contract.values[type_.name_of[role]], contract.values[attribute]] > 1
            for attribute, role in type_.addresses.items()
            if attribute in contract.values
        )
        for contract in dataset.contracts
        for type_ in [dataset.types[contract.type]]
    }


def n_entailed(graph: Graph, types: Sequence[ContractType], parties: Int[np.ndarray, "E 2"]) -> Int[np.ndarray, " E"]:
    """The same counted on a graph whose contracts are not at hand; `types` stand in the order of the graph's.

    An edge has one for each address of a party that some other contract of that party states as well.
    `parties` are the nodes in the order of the roles.
    """
    states = np.array([[role in type_.addresses.values() for role in type_.roles] for type_ in types])
    stated = states[graph.type_of]
    times = np.bincount(parties[stated], minlength=graph.n_nodes)
    counts: Int[np.ndarray, " E"] = (stated & (times[parties] > 1)).sum(axis=1)
    return counts
