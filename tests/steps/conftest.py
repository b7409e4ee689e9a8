from collections.abc import Iterator

import pytest
from tests.small import nano


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    """The built-in model has one block and 16 dimensions, in every file of the room that does not say otherwise."""
    with nano():
        yield
