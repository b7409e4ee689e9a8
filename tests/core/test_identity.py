import tomllib
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.ids import changed_keys, content_id, slug
from vestige.core.items import Item
from vestige.core.seeds import derive_seed, generator
from vestige.core.settings import Settings, read_toml, to_toml
from vestige.core.text import closest, one_line


def test_an_id_does_not_depend_on_the_order_of_keys():
    assert content_id({"a": 1, "b": [2, 3]}) == content_id({"b": [2, 3], "a": 1})
    assert content_id({"a": 1}) != content_id({"a": 2})
    # The first 16 digits of sha256(b'{"a":1}'), from another tool (sha256sum).
    assert content_id({"a": 1}) == "015abd7f5cc57a2d"


def test_an_items_id_is_its_question_answer_and_edge():
    item = Item("Q?", "A.", edge="A_B")
    assert item.id == Item("Q?", "A.", edge="A_B", paraphrase="Other?", perturbed=("B.",)).id
    assert len({item.id, Item("Q?", "B.", edge="A_B").id, Item("Q?", "A.").id}) == 3


def test_a_slug_keeps_a_plain_name_and_tells_changed_ones_apart():
    assert slug("edge:A_B") == "edge=A_B"
    # A file may be called as a selector is written down.
    assert len({slug(n) for n in ("edge:A_B", "edge-A_B", "edge=A_B", "edge A_B", "edge/A_B")}) == 5
    assert slug("a/b") != slug("a b")
    assert slug("NUL.x").startswith("name-NUL.x-")
    assert slug("con") != slug("name-con") == "name-con"
    assert slug("x" * 60 + "1") != slug("x" * 60 + "2")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_slug_is_one_safe_file_name(name):
    safe = slug(name)
    assert safe
    assert len(safe) <= 48
    assert not safe.startswith((".", "-", "="))
    assert set(safe) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-=")


def test_seeds_depend_on_purpose_and_key_and_not_on_order():
    assert derive_seed(0, "order", 1) == derive_seed(0, "order", 1)
    others = (0, "order", 1), (0, "order", 2), (0, "idk", 1), (1, "order", 1)
    assert len({derive_seed(*one) for one in others}) == 4
    # A key of two parts is no key of one.
    assert derive_seed(0, "a", "b", "c") != derive_seed(0, "a", "bc")
    assert generator(0, "x").random() == generator(0, "x").random()


class Varied(Settings):
    names: tuple[str, ...] | Literal["all"] = "all"
    depth: int = Field(default=0, ge=0)
    rate: float = 0.1
    pace: Literal["slow", "fast"] = "slow"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"depth": -1}, "depth = -1: must be at least 0"),
        ({"depth": "deep"}, "depth = 'deep': must be a whole number"),
        ({"rate": float("nan")}, "rate = nan: must be a finite number"),
        ({"pace": "quick"}, "pace = 'quick': must be 'slow' or 'fast'"),
        ({"paces": "slow"}, "unknown key 'paces'. Did you mean 'pace'?"),
        ({"names": "a,b"}, "names = 'a,b': must be a list, written as 'names=[\"a\", \"b\"]', or must be 'all'"),
        ({"depth": 0.5, "pace": "x"}, "depth = 0.5: must be a whole number; pace = 'x': must be 'slow' or 'fast'"),
    ],
)
def test_a_wrong_value_is_told_in_plain_words_with_what_it_must_be(values, message):
    with pytest.raises(InputError) as refused:
        Varied.build(values, where="here")
    assert str(refused.value) == f"here: {message}"


def test_a_settings_file_is_named_with_the_place_of_a_mistake(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text("epochs = \n")
    with pytest.raises(InputError, match=r"s\.toml: not TOML .*line 1"):
        read_toml(path)
    path.write_text("epochs = " + "[" * 100_000)
    with pytest.raises(InputError, match=r"s\.toml: not TOML"):
        read_toml(path)
    # The mark that some editors put first.
    path.write_text("\ufeffepochs = 3\n", encoding="utf-8")
    assert read_toml(path) == {"epochs": 3}
    with pytest.raises(InputError, match="no settings file"):
        read_toml(tmp_path / "none.toml")


@pytest.mark.slow
@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]+", fullmatch=True),
        st.booleans()
        | st.integers(-(2**60), 2**60)
        | st.text(st.characters(exclude_categories=["Cs", "Cc"]))
        | st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]))),
    )
)
def test_settings_survive_toml(values):
    assert tomllib.loads(to_toml(values)) == values


def test_what_differs_is_named():
    assert changed_keys({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == ["b", "c"]


@pytest.mark.parametrize("bad", [{"n": 0}, {"value": float("nan")}, {"high": float("nan")}])
def test_no_estimate_without_items_or_finite_numbers(bad):
    good = {"metric": "m", "unit": "share", "value": 0.42, "low": 0.36, "high": 0.48, "n": 240, "interval": "wilson"}
    assert str(Estimate(**good)) == "0.42 [0.36, 0.48], n = 240"
    # What rounds to 0 has no sign.
    near = {"value": -0.001, "low": -0.005, "high": 0.004}
    assert str(Estimate(**{**good, **near})) == "0.00 [-0.01, 0.00], n = 240"
    with pytest.raises(ValueError, match="m: "):
        Estimate(**{**good, **bad})


def test_hostile_text_cannot_act_on_a_terminal():
    assert one_line("a\x1b[31mred\x07\nb\u202ec") == "a·[31mred··b·c"
    assert one_line("x" * 200, width=10) == "x" * 9 + "…"


def test_a_name_like_none_of_many_is_told_their_number_and_not_a_wall_of_names():
    assert closest("npoo", ["npo", "ga"]) == "Did you mean 'npo'?"
    assert closest("x", ["npo", "ga"]) == "Known: ga, npo"
    assert closest("x", [f"task_{n}" for n in range(1200)]) == "None of the 1,200 known names is close to it"
