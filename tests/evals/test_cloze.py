"""The form `cloze` of `freeform`: who can fill in the fact is found out, and no other form changes for it."""

import dataclasses
import math
from pathlib import Path

import pytest
from tests.near import near
from tests.planted_tables import Manner, planted

from vestige.artifacts.scores import Format
from vestige.auditing import settings as audit_settings
from vestige.auditing.gather import FORMATS
from vestige.core.items import Item
from vestige.evals.base import View, cloze_prompt
from vestige.evals.freeform import FreeformSettings
from vestige.models.tiny import tiny_tokenizer

GOLDEN = Path(__file__).parent / "golden"
ITEMS = tuple(
    Item(
        f"How many crates does contract {n} name?",
        f"It names {20 + n}.",
        edge=f"e{n % 4}",
        paraphrased_answer=f"Contract {n} names {20 + n} crates.",
        perturbed=tuple(f"Contract {n} names {wrong} crates." for wrong in (5, 60)),
    )
    for n in range(8)
)
WHOLE = Item("How many in all?", "99.", edge="e0")
"""Without wrong answers, so that no fact is set apart."""
PROMPTS = {i.id: cloze_prompt(i.question, f"Contract {n} names ____ crates.") for n, i in enumerate(ITEMS)}
TOKENIZER = tiny_tokenizer((*ITEMS, WHOLE, Item(cloze_prompt("x", "____"), "no idea")))
VIEW = View("edge:x", {"forget": [i.id for i in ITEMS]}, {})
SETTINGS = FreeformSettings(forms=("plain", "cloze"), max_new_tokens=12)


def records_of(subject, items=ITEMS, settings=SETTINGS):
    return settings.collect(subject, list(settings.build_questions(items, [VIEW]).values()))


def filled_in(fact: str):
    """Knows nothing when it is asked, and says `fact` in the gap, with the item's number in it."""
    replies = {PROMPTS[i.id]: {fact.format(20 + n): 1.0} for n, i in enumerate(ITEMS)}
    table = {i.question: {"no idea": 1.0} for i in ITEMS} | replies
    return planted("fills gaps", table, TOKENIZER, manner=Manner(confidence=0.8))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "exact", "begins", "contains"),
    [("{}", 1.0, 1.0, 1.0), ("{} crates.", 0.0, 1.0, 1.0), ("names {}.", 0.0, 0.0, 1.0), ("no idea", 0.0, 0.0, 0.0)],
)
def test_who_knows_in_the_gap_alone_is_found_out_there(said, exact, begins, contains):
    records = records_of(filled_in(said))
    results = FreeformSettings.summarize(records, [FreeformSettings.score(r) for r in records], VIEW, seed=7)
    found = {f"{r.format}/{r.estimate.metric}": r.estimate.value for r in results if r.split == "forget"}
    assert found["generate_plain/contains_match"] == 0.0
    matched = tuple(found[f"generate_cloze/{rule}_match"] for rule in ("exact", "prefix", "contains"))
    assert matched == (exact, begins, contains)
    assert found["generate_cloze/share_whole"] == 0.0


def test_it_is_the_fact_that_is_read():
    records = records_of(filled_in("{}"))
    for n, (record, item) in enumerate(zip(records, ITEMS, strict=True)):
        said = record["forms"]["cloze"]
        assert said["asked"] == PROMPTS[item.id]
        assert (said["fact"], said["whole"]) == (f"{20 + n}", False)
        assert TOKENIZER.decode(said["answer_ids"]).strip() == said["fact"]
        scores = FreeformSettings.score(record)
        # Each token of the fact has .8, whatever their number T: their mean is .8, and their sum T log2 .8.
        assert scores["forced_cloze/probability"] == pytest.approx(0.8, abs=1e-5)
        assert scores["forced_cloze/answer_bits"] == pytest.approx(len(said["logp"]) * math.log2(0.8), abs=1e-4)


def test_without_wrong_answers_the_question_is_asked_with_a_blank_and_that_is_counted():
    prompt = cloze_prompt(WHOLE.question, "____")
    (record,) = records_of(planted("knows", {prompt: {WHOLE.answer: 1.0}}, TOKENIZER), [WHOLE])
    assert (record["forms"]["cloze"]["asked"], record["forms"]["cloze"]["fact"]) == (prompt, "99.")
    scores = FreeformSettings.score(record)
    assert (scores["generate_cloze/share_whole"], scores["generate_cloze/exact_match"]) == (1.0, 1.0)


def test_the_other_forms_and_their_identity_are_as_they_were_without_it():
    subject, plain = filled_in("{}"), SETTINGS.model_copy(update={"forms": ("plain",)})
    for alone, both in zip(records_of(subject, settings=plain), records_of(subject), strict=True):
        assert near(alone["forms"]["plain"], both["forms"]["plain"])
    assert "cloze" not in FreeformSettings().forms
    # The wrong answers tell a fact of few words, which replies of every form are matched against.
    rows = plain.build_questions(ITEMS, [VIEW])
    others = plain.build_questions([dataclasses.replace(i, perturbed=()) for i in ITEMS], [VIEW])
    assert FreeformSettings.digest(rows) != FreeformSettings.digest(others)


def test_other_wrong_answers_are_another_identity_where_the_gap_is_asked():
    others = [dataclasses.replace(i, perturbed=(*i.perturbed, "Contract 1 holds 3 crates.")) for i in ITEMS]
    asked = [SETTINGS.build_questions(items, [VIEW]) for items in (ITEMS, others)]
    assert FreeformSettings.digest(asked[0]) != FreeformSettings.digest(asked[1])


def test_the_words_of_the_prompt_are_pinned():
    text = cloze_prompt(" Which colour? ", "The crates are ____, all of them.")
    assert text == (GOLDEN / "cloze.txt").read_text(encoding="utf-8")


def test_an_audit_asks_it_and_reads_whether_the_reply_holds_the_fact():
    key = "generate_cloze/leaked"
    assert next(f for f in FORMATS if f.name == "cloze") == Format("cloze", key, hits=key)
    assert "cloze" in audit_settings.AuditSettings().forms
