"""What `import vestige` offers: each name loads, and its three lists agree."""

import ast
from pathlib import Path

import vestige


def test_every_public_name_loads_from_its_home_and_is_told_to_type_checkers():
    source = ast.parse(Path(vestige.__file__).read_text(encoding="utf-8"))
    (checked,) = (node for node in source.body if isinstance(node, ast.If))
    shown = [name.name for node in checked.body if isinstance(node, ast.ImportFrom) for name in node.names]
    assert sorted(shown) == sorted(vestige.__all__) == dir(vestige)
    for name in vestige.__all__:
        assert getattr(vestige, name) is not None
