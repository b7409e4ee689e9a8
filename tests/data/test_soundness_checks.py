"""Checks of whole data sets: each planted leak is found, clean data raises no alarm."""

import numpy as np
import pytest
from tests.data import planted_leaks as bench

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.corpus import NamedSplits, SourceSettings, named_splits, open_corpus
from vestige.data.dataset import compile_dataset
from vestige.data.findings import SoundnessSettings
from vestige.data.folder import write_dataset
from vestige.data.soundness import check_splits

SETTINGS = SoundnessSettings(permutations=2_000)


def verdicts(splits: NamedSplits, seed: int = 0) -> dict[str, bool | None]:
    return {check.line.check: check.line.sound for check in check_splits(splits, SETTINGS, seed=seed)[0]}


@pytest.mark.slow
@pytest.mark.parametrize("leak", list(bench.LEAKS))
def test_a_planted_leak_is_found_by_the_check_that_is_meant_for_it(leak):
    found = verdicts(bench.planted(leak, 0.5, 60, np.random.default_rng(5), given=True))
    assert found[bench.LEAKS[leak][1]] is False


@pytest.mark.slow
@pytest.mark.parametrize("given", [True, False])
def test_clean_random_data_raises_no_alarm_and_enough_of_it_passes(given):
    for seed in range(3):
        small = verdicts(bench.planted("", 0, 30, np.random.default_rng(seed), given=given), seed)
        assert False not in small.values()
        assert None in small.values()


def test_the_planted_items_are_those_that_are_named():
    rng = np.random.default_rng(1)
    splits = bench.planted("copied items", 0.25, 40, rng, given=True)
    copies = {i.question.casefold().replace(" ?", "?") for i in splits.splits["retain"] if i.edge == "copies"}
    checks, _ = check_splits(splits, SETTINGS, seed=0)
    copied = next(c for c in checks if c.line.check == "copied questions")
    assert {i.question.casefold() for i in splits.splits["forget"] if i.id in copied.leaking} == copies
    assert len(copied.leaking) == 10


def test_sample_dataset_1_gives_four_of_the_twenty_answers_of_a_b_away(tmp_path):
    write_dataset(compile_dataset("sample1", seed=0), tmp_path / "data")
    splits = named_splits(open_corpus(SourceSettings(data=str(tmp_path / "data"))), "edge:A_B")
    checks, _ = check_splits(splits, SETTINGS, seed=0)
    line = next(c.line for c in checks if c.line.check == "entailed answers")
    assert line.sound is False
    assert line.reason.startswith("2 of 20 forget answers are stated by retained contracts, and 2 more are names")


def test_without_options_the_check_says_so_and_cannot_tell():
    items = tuple(Item(f"What is number {n}?", f"It is {n}.") for n in range(20))
    splits = NamedSplits("f", {"forget": items[:8], "retain": items[8:]}, {})
    line = check_splits(splits, SETTINGS, seed=0)[0][-1].line
    assert (line.check, line.sound) == ("options and questions", None)
    assert "0 forget items can be asked with options" in line.reason


def test_too_little_to_forget_or_to_keep_is_refused():
    items = tuple(Item(f"What is number {n}?", f"It is {n}.") for n in range(20))
    with pytest.raises(InputError, match=r"has 4 items, too few to exclude chance\. Name at least 5"):
        check_splits(NamedSplits("f", {"forget": items[:4], "retain": items[4:]}, {}), SETTINGS, seed=0)
    with pytest.raises(InputError, match="is the whole data set"):
        check_splits(NamedSplits("f", {"forget": items}, {}), SETTINGS, seed=0)


def test_what_is_found_depends_on_the_seed_and_not_on_the_order_of_the_items():
    splits = bench.planted("right options with a style", 0.6, 40, np.random.default_rng(2), given=False)
    turned = NamedSplits("planted", {k: tuple(reversed(v)) for k, v in splits.splits.items()}, {})
    assert verdicts(splits) == verdicts(turned)
