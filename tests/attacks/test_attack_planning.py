"""From an audit's settings to attacks: names, points, what is left out and why."""

from typing import get_args

import pytest

from vestige.artifacts.audits import PlannedAttack
from vestige.attacks.in_context import (
    asked_with_facts,
    ends_of,
    facts_before,
    holds_answer,
    in_seeded_order,
    with_facts,
)
from vestige.attacks.planning import attack_of, plan_all
from vestige.attacks.prompts import POINTS, EnhancedSettings, GcgSettings
from vestige.attacks.quantize import QuantizeSettings
from vestige.attacks.relearn import Material, RelearnSettings
from vestige.auditing.settings import AuditSettings
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.corpus import split_by
from vestige.data.dataset import compile_dataset

SPLITS = split_by(compile_dataset("sample1", seed=0), "edge:A_B", seed=0).named()


def settings(**changes) -> dict:
    return {**AuditSettings().model_dump(), "relearn_rates": (), **changes}


def test_an_audits_attacks_by_name():
    found = plan_all(settings(relearn_items=(5, 10), in_context=(2, 4)), SPLITS, seed=0).attacks
    assert [a.plan.name for a in found] == [
        *(f"relearn {material} n={n}" for material in get_args(Material) for n in (5, 10)),
        "quantize 8 bits",
        "quantize 4 bits",
        "ablate n=10",
        "in_context n=2",
        "in_context n=4",
    ]
    curve = plan_all(settings(relearn_curve=True), SPLITS, seed=0).attacks[0].plan
    assert curve.points == ("1", "2", "3")
    # The last answers are the same: only who is asked before differs.
    assert attack_of(curve).training_steps(curve) == attack_of(found[0].plan).training_steps(curve)
    for attack in found:
        plan = attack.plan
        assert plan.tested == tuple(i.id for i in attack.tested)
        assert plan.points == (("3",) if plan.kind == "relearn" else ("given",))
        assert plan.shows_answers == (plan.material == "forget")
        assert attack.splits is SPLITS
    assert found[-4].plan == PlannedAttack(
        "quantize 4 bits", "quantize", "nothing", 0, ("given",), found[-4].plan.tested, False, {"bits": 4}
    )


def test_an_attacker_tries_a_grid_and_not_for_a_ceiling():
    asked = settings(
        relearn=("retain", "forget"),
        quantize=(),
        ablate=(),
        in_context=(),
        relearn_rates=(1e-3, 2e-4),
        relearn_ranks=(8,),
    )
    found = plan_all(asked, SPLITS, seed=0).attacks
    named = {a.plan.name: (a.plan.settings["rate"], a.plan.settings["rank"]) for a in found}
    assert named == {
        "relearn retain n=50": (2e-4, 128),
        "relearn retain n=50 rate=0.001": (1e-3, 128),
        "relearn retain n=50 rank=8": (2e-4, 8),
        "relearn retain n=50 rate=0.001 rank=8": (1e-3, 8),
        "relearn forget n=20": (2e-4, 128),
    }
    assert len({tuple(i.id for i in a.shown) for a in found}) == 2
    # What cannot be tried, or is untested, is said once.
    told = plan_all(
        settings(relearn=("forget_part", "related"), relearn_rates=(1e-3,)), {**SPLITS, "retain": ()}, seed=0
    )
    assert len([s for s in told.untested if s.startswith("relearn forget_part n=10: 10 items")]) == 1
    assert len([s for s in told.untested if s.startswith("relearn related n=50 was not tried")]) == 1


def test_the_audits_defaults_are_those_of_the_paper():
    plain = {"relearn": ("retain",)}
    assert list(RelearnSettings.in_audit(settings(**plain))) == [RelearnSettings()]
    changed = {
        "relearn_epochs": 5,
        "relearn_rate": 1e-3,
        "relearn_rank": 0,
        "relearn_alpha": 4,
        "relearn_batch_size": 2,
    }
    (found,) = RelearnSettings.in_audit(settings(**plain, **changed))
    assert found == RelearnSettings(epochs=5, rate=1e-3, rank=0, alpha=4, batch_size=2)


def test_an_attack_is_named_by_what_it_shows_and_comes_once():
    found = plan_all(settings(relearn=("forget_part",), relearn_items=(5, 50, 100)), SPLITS, seed=0)
    named = [a.plan for a in found.attacks if a.plan.kind == "relearn"]
    assert [p.name for p in named] == ["relearn forget_part n=5", "relearn forget_part n=10"]
    assert [p.n_shown for p in named] == [5, 10]
    assert "relearn forget_part n=10: 10 items are shown where 50 were asked for" in found.untested


def test_what_the_data_cannot_give_is_said_and_the_rest_is_planned():
    splits = {"forget": [Item("Who?", "Ann Lee.")], "retain": [Item("Where?", "Oslo.")]}
    found = plan_all(settings(in_context=(1, 2)), splits, seed=0)
    assert [a.plan.name for a in found.attacks] == [
        "relearn retain n=1",
        "relearn unrelated n=50",
        "relearn forget n=1",
        "quantize 8 bits",
        "quantize 4 bits",
        "in_context n=1",
    ]
    said = " ".join(found.untested)
    for part in (
        "relearn related n=50 was not tried: no retain item is known to be related",
        "relearn forget_part n=50 was not tried: the 1 forget items cannot be split",
        "in_context n=2 was not tried: 2 facts are needed before 'Who?', and 1 retain items do not hold its answer",
        "relearn retain n=1: 1 items are shown where 50 were asked for",
    ):
        assert part in said
    with pytest.raises(InputError, match="no forget items"):
        plan_all(settings(), {"retain": splits["retain"]}, seed=0)


def test_facts_are_of_the_same_entities_first_and_never_hold_the_answer():
    retain = in_seeded_order(SPLITS["retain"], seed=2)
    for item in SPLITS["forget"]:
        facts = facts_before(item, retain, 8)
        assert all({"A", "B"} & ends_of(f.edge) for f in facts)
        assert not any(holds_answer(f, item) for f in facts)
        assert facts_before(item, retain, 4) == facts[:4]
    assert in_seeded_order(SPLITS["retain"], seed=3) != retain


def test_after_related_facts_come_those_of_the_same_attribute_and_then_others():
    item = Item("How old is Ann?", "31.", edge="a_b", group="people", attribute="age")
    other = Item("Is it far?", "No.")
    alike = Item("How old is Bob?", "40.", edge="c_d", group="people", attribute="age")
    near = Item("Where is Ann?", "Oslo.", edge="b_x", group="people", attribute="place")
    telling = Item("Whose age is 31?", "Ann's.", edge="a_b")
    assert facts_before(item, [other, telling, alike, near], 3) == (near, alike, other)
    with pytest.raises(InputError, match="4 facts are needed before"):
        facts_before(item, [other, telling, alike, near], 4)


def test_the_words_around_facts_are_pinned():
    facts = [Item("Where is Ann? ", " Oslo."), Item("Where is Bob?", "Bergen.")]
    assert with_facts("Where is Carl?", facts) == (
        "Here is some of what is known.\n- Where is Ann? Oslo.\n- Where is Bob? Bergen.\n\nWhere is Carl?"
    )


def test_an_item_is_asked_with_facts_in_all_its_wordings_and_keeps_everything_else():
    item = Item("Who?", "Ann.", edge="e", attribute="a", paraphrase="Which one?", perturbed=("Bob.",))
    bare = Item("When?", "Now.")
    fact = Item("Where?", "Oslo.")
    asked = asked_with_facts([item, bare], {item.id: [fact], bare.id: []})
    before = "Here is some of what is known.\n- Where? Oslo.\n\n"
    found = asked[item.id]
    assert (found.question, found.paraphrase) == (f"{before}Who?", f"{before}Which one?")
    assert (found.answer, found.edge, found.attribute, found.perturbed) == ("Ann.", "e", "a", ("Bob.",))
    assert asked[bare.id].paraphrase is None
    assert found.id != item.id


def test_prompts_are_searched_on_a_part_of_the_forget_set_and_asked_of_the_rest():
    found = plan_all(
        settings(relearn=(), quantize=(), ablate=(), in_context=(), gcg=(3,), prefix=(3, 7)), SPLITS, seed=0
    ).attacks
    assert [a.plan.name for a in found] == ["gcg n=3", "prefix n=3", "prefix n=7"]
    part = plan_all(settings(relearn=("forget_part",), quantize=(), ablate=(), in_context=()), SPLITS, seed=0).attacks[
        0
    ]
    for attack in found:
        plan = attack.plan
        assert (plan.material, plan.n_shown, plan.points) == ("forget_part", len(attack.shown), POINTS)
        assert not plan.shows_answers
        # The same items are tested whatever is shown, as after relearning on a part.
        assert attack.tested == part.tested
        assert not {i.id for i in attack.shown} & {i.id for i in part.tested}
    assert found[1].shown == found[2].shown[:3]


def test_searches_have_settings_of_their_own_where_an_audit_sets_none():
    two = {"gcg": (3,), "prefix": (3,)}
    assert GcgSettings.in_audit(settings(**two)) == [GcgSettings(items=3)]
    assert EnhancedSettings.in_audit(settings(**two)) == [EnhancedSettings(items=3)]
    own = settings(**two, prompt_tokens=24, prompt_steps=9, prompt_candidates=5)
    assert GcgSettings.in_audit(own) == [GcgSettings(items=3, tokens=24, steps=9, width=5)]
    assert EnhancedSettings.in_audit(own) == [EnhancedSettings(items=3, tokens=24, steps=9, candidates=5)]


def test_what_a_search_takes_is_known_before_it():

    def takes(one) -> tuple[int, int]:
        plan = one.plan(SPLITS, seed=0).plan
        # What a plan keeps says as much as the settings that it was made by.
        assert attack_of(plan).passes(plan) == one.passes(plan)
        return getattr(one, "steps", 0), one.passes(plan)

    suffix = takes(GcgSettings(items=3, steps=10, width=20))
    # Ten steps: 20 candidates, a gradient and a look at the winner each, two looks at the start; three texts.
    assert suffix == (10, (10 * 22 + 2) * 3)
    prefix = takes(EnhancedSettings(items=7, steps=10, candidates=16))
    # Subject and target both read 16 candidates and a gradient a step, and the start.
    assert prefix == (10, 2 * (10 * 17 + 1) * 7)
    assert takes(QuantizeSettings(bits=8)) == (0, 0)


def test_an_audit_names_further_attacks_with_settings_of_their_own():
    none = dict.fromkeys(("relearn", "quantize", "ablate", "in_context"), ())
    further = ("relearn material=related items=3", "gcg", "quantize bits=4", "quantize bits=nf4")
    asked = AuditSettings(**none, further=further).model_dump()
    found = plan_all(asked, SPLITS, seed=0).attacks
    assert [a.plan.name for a in found] == ["relearn related n=3", "gcg n=7", "quantize 4 bits", "quantize nf4"]
    # Whoever names none has the identity that audits had before there were any.
    assert "further" not in AuditSettings().identity()
    for wrong, said in (("squeeze", "no attack 'squeeze'"), ("quantize bits=5", "bits = 5: must be 'nf4', 4 or 8")):
        with pytest.raises(InputError, match=said):
            plan_all({**asked, "further": (wrong,)}, SPLITS, seed=0)


def test_further_attacks_with_other_settings_have_them_in_their_names():
    none = dict.fromkeys(("quantize", "ablate", "in_context"), ())
    further = ("relearn rate=1e-4 epochs=9", "gcg items=3 steps=10", "gcg items=3 steps=20", "gcg items=3 steps=20")
    found = plan_all(settings(**none, relearn=("retain",), further=further), SPLITS, seed=0).attacks
    names = ["relearn retain n=50", "relearn retain n=50 epochs=9 rate=0.0001", "gcg n=3", "gcg n=3 steps=20"]
    assert [a.plan.name for a in found] == names
    assert [attack_of(a.plan).steps for a in found[2:]] == [10, 20]


def test_a_further_attack_without_a_name_is_refused():
    with pytest.raises(InputError, match=r"further = .*an entry without a name"):
        AuditSettings.build({"further": ["gcg", " "]})
