"""What is done before a model is asked grows as the facts do: executed lines are counted, not seconds."""

import random
import sys
from collections.abc import Callable

import pytest
from benchmarks.planted import large
from benchmarks.planted_cases import draw_case

from vestige.attacks import relearn
from vestige.attacks.planning import plan_all
from vestige.auditing.judge import judge
from vestige.auditing.settings import AuditSettings
from vestige.core.items import Item
from vestige.data.corpus import Corpus, NamedSplits, SourceSettings, factual_items, named_splits
from vestige.data.facts import facts_of
from vestige.evals.base import view_of
from vestige.evals.freeform import FreeformSettings

SETTINGS = AuditSettings()


def executed_lines(work: Callable[[], object]) -> int:
    """How many lines of Python run; each turn of a comprehension is one."""
    n_lines = 0

    def count(frame: object, event: str, argument: object) -> object:
        nonlocal n_lines
        n_lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return n_lines


def facts(n: int, purpose: str, answer: Callable[[random.Random], str]) -> tuple[Item, ...]:
    """`n` questions that no other call asks, so that no cache of texts answers for them."""
    rng = random.Random(n)
    return tuple(
        Item(f"What is the {_word(rng)} of {_name(rng)} in case {purpose}{n}x{k}?", answer(rng)) for k in range(n)
    )


def _word(rng: random.Random) -> str:
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6))


def _name(rng: random.Random) -> str:
    return f"{_word(rng).title()} {_word(rng).title()}"


def _number(rng: random.Random) -> str:
    return str(rng.randint(100_000, 9_999_999))


def _yes(rng: random.Random) -> str:
    return rng.choice(("Yes.", "No."))


@pytest.mark.parametrize("answer", [_name, _number, _yes])
def test_no_default_of_an_audit_grows_faster_than_its_facts(answer, monkeypatch, tmp_path):
    monkeypatch.setattr(relearn, "factual_items", lambda: factual_items()[:4])
    lines: dict[str, list[int]] = {}
    for n in (200, 400):
        forget, retain = facts(n, "F", answer), facts(n, "R", answer)
        corpus = Corpus("data", SourceSettings(data="data"), (*forget, *retain), (), None)
        path = tmp_path / f"{n}.csv"
        path.write_text("question,answer\n" + "".join(f"{i.question},{i.answer}\n" for i in forget))
        splits = NamedSplits("f", {"forget": forget, "retain": retain}, {})
        forms = FreeformSettings(forms=("few_shot",))
        for name, work in {
            "named_splits": lambda: named_splits(corpus, str(path)),  # noqa: B023
            "facts_of": lambda: facts_of(forget),  # noqa: B023
            "plan_all": lambda: plan_all(SETTINGS.model_dump(), splits.splits, seed=0),  # noqa: B023
            "freeform": lambda: forms.build_questions((*forget, *retain), (view_of(splits),)),  # noqa: B023
        }.items():
            lines.setdefault(name, []).append(executed_lines(work))
    growth = {name: large / small for name, (small, large) in lines.items()}
    # Twice the facts. Without the tenth above it nothing could be sorted.
    assert {name: ratio for name, ratio in growth.items() if ratio > 2.2} == {}, lines


def test_judging_grows_no_faster_than_the_facts():
    cases = [draw_case(large(n, controls=2, methods=2, attacks=2), 1) for n in (100, 200)]
    fewer, more = (executed_lines(lambda case=case: judge(case, resamples=100)) for case in cases)
    assert 1.1 < more / fewer <= 2.2
