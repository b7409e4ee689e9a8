"""What `--help` and `vestige list settings` say of a settings class comes from its fields."""

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt

from vestige.core.settings import Described, Settings, described


class Base(Settings):
    """Nothing of this is shown."""

    rate: float = Field(default=1e-4, gt=0)
    """The rate."""


class Own(Base):
    """Nor of this."""

    file: Path
    """Over two
    lines."""
    most: PositiveInt | None = None
    kind: Literal["", "a", "b"] = ""
    names: tuple[str, ...] | Literal["all"] = ("x", "y")
    bits: tuple[Literal[4, 8], ...] = ()
    on: bool = True


def test_fields_become_types_in_words_defaults_and_texts():
    assert described(Own) == {
        "rate": Described("NUMBER", 1e-4, "The rate."),
        "file": Described("PATH", None, "Over two lines."),
        "most": Described("INTEGER", None, ""),
        "kind": Described("a|b", "", ""),
        "names": Described("all|TEXT,...", ["x", "y"], ""),
        "bits": Described("4|8,...", [], ""),
        "on": Described("true|false", True, ""),
    }
