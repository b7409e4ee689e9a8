"""What is stored and whether it shows: planted models, and an untrained one read with other people's arithmetic."""

import dataclasses
import json
import math
import zlib

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from tests.near import near
from tests.planted_tables import Manner, knows, knows_share, planted

from vestige.core.items import Item, Options
from vestige.evals.base import View
from vestige.evals.memory import MemorySettings
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_model, tiny_tokenizer

ITEMS = tuple(
    Item(
        f"How many {'and how very many ' * (n % 3)}crates does contract {n} name?",
        f"{20 + n} crates.",
        edge=f"e{n % 6}",
        attribute="crates",
        perturbed=(f"{50 + n} crates.", f"{70 + n} crates."),
    )
    for n in range(18)
)
TOKENIZER = tiny_tokenizer(ITEMS)
FORGET = [i.id for i in ITEMS if i.edge == "e0"]
HOLDOUT = [i.id for i in ITEMS if i.edge in ("e4", "e5")]
VIEW = View("edge:e0", {"forget": FORGET, "retain": [i.id for i in ITEMS[1:4]], "holdout": HOLDOUT}, {})
SETTINGS = MemorySettings(max_new_tokens=12)


@pytest.fixture(scope="module")
def untrained() -> LoadedModel:
    return LoadedModel(tiny_model(3).eval(), TOKENIZER, "builtin:tiny", "")


def collected(subject, items=ITEMS, settings=SETTINGS):
    return settings.collect(subject, list(settings.build_questions(items, [VIEW]).values()))


def summed(records, view=VIEW):
    results = MemorySettings.summarize(records, [MemorySettings.score(r) for r in records], view, seed=7)
    return {(r.split, r.scope, f"{r.format}/{r.estimate.metric}"): r.estimate for r in results}


def plain_logp(subject, text):
    """Log-probabilities of every token but the first, and the whole distributions, in double precision."""
    with torch.no_grad():
        logits = subject.model(torch.tensor([text])).logits[0].double().numpy()[:-1]
    rows = log_softmax(logits, axis=-1)
    return rows[np.arange(len(text) - 1), text[1:]], rows


def test_who_knows_an_answer_repeats_it_and_every_token_is_the_first_choice():
    for record in collected(knows(ITEMS, TOKENIZER, manner=Manner(confidence=0.8))):
        scores = MemorySettings.score(record)
        # Each token has .8, so that the mean per token has too.
        assert scores["memory/probability"] == pytest.approx(0.8, abs=1e-6)
        assert scores["membership/loss"] == pytest.approx(math.log(0.8), abs=1e-6)
        n = len(record["logp"]) - record["n_question"]
        assert scores["membership/logp_nats"] == pytest.approx(n * math.log(0.8), abs=1e-5)
        kept = {k: scores[f"memory/{k}"] for k in ("extraction_strength", "exact_memorization", "knowledge")}
        assert kept == {"extraction_strength": 1.0, "exact_memorization": 1.0, "knowledge": 1.0}
        assert scores["memory/verbatim"] == 1.0
        assert scores["memory/truth_ratio_score"] > 0.9 > 0.1 > scores["memory/truth_ratio_score_forget"]


def test_who_cannot_tell_tokens_apart_stores_nothing():
    # Asked what is not in the table, a planted model finds all tokens equally likely: tied, so none is first.
    subject = planted("other", {"What else?": {"no.": 1.0}}, TOKENIZER)
    for record in collected(subject):
        scores = MemorySettings.score(record)
        assert scores["memory/exact_memorization"] == scores["memory/extraction_strength"] == 0.0
        assert scores["memory/truth_ratio_geometric"] == pytest.approx(1.0)
        assert scores["memory/choice_probability"] == pytest.approx(1 / 3)
        # No token says more than another: nothing to standardise.
        assert scores["membership/min_k_plus"] == pytest.approx(0.0, abs=1e-2)


def test_half_an_answer_brings_back_the_rest_where_it_is_stored():
    # Asked outright it declines; led to half of the answer, it goes on with it.
    table = {i.question: {"no.": 0.9, i.answer: 0.1} for i in ITEMS}
    subject = planted("needs a push", table, TOKENIZER, manner=Manner(confidence=0.9))
    for record in collected(subject):
        scores = MemorySettings.score(record)
        assert (scores["memory/knowledge"], scores["memory/verbatim"]) == (0.0, 1.0)
        said = record["verbatim"]
        whole = subject.prompter.encode(record["question"], record["answer"]).answer_ids
        assert said["n_given"] == len(whole) // 2
        assert said["rest"] == subject.prompter.decode(whole[len(whole) // 2 :]) == said["continuation"]


def test_what_comes_after_the_text_is_no_part_of_the_continuation():
    # "20 crates." is three or more tokens; after it this model says more, which MUSE cuts off.
    table = {i.question: {f"{i.answer} And so on and on.": 1.0} for i in ITEMS}
    for record in collected(planted("talks on", table, TOKENIZER)):
        assert MemorySettings.score(record)["memory/verbatim"] == 1.0
        assert 0 < MemorySettings.score(record)["memory/knowledge"] < 1


@pytest.mark.portable
def test_membership_is_the_arithmetic_of_whole_distributions(untrained):
    record = collected(untrained)[4]
    encoded = untrained.prompter.encode(record["question"], record["answer"])
    logp, rows = plain_logp(untrained, encoded.ids[: encoded.stop])
    answer = slice(encoded.start - 1, encoded.stop - 1)
    own, whole = logp[answer], rows[answer]
    scores = MemorySettings.score(record)
    assert scores["membership/loss"] == pytest.approx(own.mean(), abs=1e-5)
    assert scores["membership/logp_nats"] == pytest.approx(own.sum(), abs=1e-4)
    n_bytes = len(zlib.compress(record["answer"].encode()))
    assert scores["membership/zlib"] == pytest.approx(own.sum() / n_bytes, abs=1e-5)
    k = max(1, int(0.2 * len(own)))
    assert scores["membership/min_k"] == pytest.approx(np.sort(own)[:k].mean(), abs=1e-5)
    mean = (np.exp(whole) * whole).sum(-1)
    spread = np.sqrt((np.exp(whole) * (whole - mean[:, None]) ** 2).sum(-1))
    standardised = np.sort((own - mean) / spread)
    assert scores["membership/min_k_plus"] == pytest.approx(standardised[:k].mean(), abs=1e-4)
    # Over the text: the question's tokens, not the template's, and then the answer's.
    first, last = untrained.prompter.question_span(record["question"])
    text = np.concatenate([logp[first - 1 : last - 1], own])
    assert scores["membership_text/loss"] == pytest.approx(text.mean(), abs=1e-5)
    assert record["n_question"] == last - first
    assert untrained.prompter.decode(record["text_ids"][: last - first]) == record["question"]
    compressed = len(zlib.compress(f"{record['question']} {record['answer']}".encode()))
    assert scores["membership_text/zlib"] == pytest.approx(text.sum() / compressed, abs=1e-5)


@pytest.mark.portable
def test_the_share_of_lowest_tokens_is_the_settings(untrained):
    record = collected(untrained, settings=SETTINGS.model_copy(update={"min_k": 1.0}))[0]
    scores = MemorySettings.score(record)
    assert scores["membership/min_k"] == pytest.approx(scores["membership/loss"])
    assert scores["membership/min_k"] > MemorySettings.score(collected(untrained)[0])["membership/min_k"]


@pytest.mark.portable
def test_the_gradients_norm_is_autograds_and_counts_against_membership(untrained):
    settings = MemorySettings(gradient_norm=True, replies=False, truth_ratio=False)
    record = collected(untrained, ITEMS[:1], settings)[0]
    encoded = untrained.prompter.encode(ITEMS[0].question, ITEMS[0].answer)
    model = untrained.model
    model.zero_grad()
    logits = model(torch.tensor([encoded.ids[: encoded.stop]])).logits[0, encoded.start - 1 : encoded.stop - 1]
    torch.nn.functional.cross_entropy(logits, torch.tensor(encoded.answer_ids)).backward()
    norm = math.sqrt(sum((p.grad.double() ** 2).sum().item() for p in model.parameters()))
    model.zero_grad()
    assert MemorySettings.score(record)["membership/gradient_norm"] == pytest.approx(-norm, rel=1e-5)
    assert "membership/gradient_norm" not in MemorySettings.score(collected(untrained, ITEMS[:1])[0])


def test_truth_ratios_hold_the_paraphrased_answer_against_the_wrong_ones(untrained):
    item = dataclasses.replace(ITEMS[0], paraphrased_answer="It names 20 crates.")
    scores = MemorySettings.score(collected(untrained, [item])[0])
    nll = []
    for text in ("It names 20 crates.", *item.perturbed):
        encoded = untrained.prompter.encode(item.question, text)
        logp, _ = plain_logp(untrained, encoded.ids[: encoded.stop])
        nll.append(-logp[encoded.start - 1 :].mean())
    p = np.exp(-np.array(nll))
    geometric = math.sqrt(p[1] * p[2]) / p[0]
    assert scores["memory/truth_ratio_geometric"] == pytest.approx(geometric, abs=1e-4)
    assert scores["memory/truth_ratio_arithmetic"] == pytest.approx((p[1] + p[2]) / 2 / p[0], abs=1e-4)
    assert scores["memory/truth_ratio_score"] == pytest.approx(max(0, 1 - geometric), abs=1e-4)
    assert scores["memory/truth_ratio_score_forget"] == pytest.approx(min(geometric, 1 / geometric), abs=1e-4)
    assert scores["memory/choice_probability"] == pytest.approx(p[0] / p.sum(), abs=1e-5)


def test_wrong_options_stand_for_wrong_answers_and_an_item_may_have_none(untrained):
    asked = Item("Who?", "Ann.", options=Options(("Bob.", "Ann.", "Cy."), right=1))
    plain = Item("Who else?", "Dan.")
    record, bare = collected(untrained, [asked, plain])
    assert [a["text"] for a in (record["right"], *record["wrong"])] == ["Ann.", "Bob.", "Cy."]
    assert "wrong" not in bare
    assert not any("truth" in key or "choice" in key for key in MemorySettings.score(bare))
    without = collected(untrained, [asked], SETTINGS.model_copy(update={"truth_ratio": False, "replies": False}))[0]
    assert {"right", "wrong", "knowledge", "verbatim"}.isdisjoint(without)
    assert {key.partition("/")[2] for key in MemorySettings.score(without) if key.startswith("memory/")} == {
        "probability",
        "extraction_strength",
        "exact_memorization",
    }


def test_an_answer_in_which_rouge_sees_no_word_has_no_overlap_and_not_0(untrained):
    scores = MemorySettings.score(collected(untrained, [Item("Where?", "京都。")])[0])
    assert "memory/knowledge" not in scores
    assert "memory/verbatim" not in scores
    assert "memory/probability" in scores


@pytest.mark.slow
def test_records_depend_on_their_item_alone(untrained):
    settings = MemorySettings(max_new_tokens=6, gradient_norm=True)
    rows = list(settings.build_questions(ITEMS[:5], [VIEW]).values())
    together = settings.collect(untrained, rows)
    assert near([settings.collect(untrained, [r])[0] for r in rows], together)
    assert near(settings.collect(untrained, rows[::-1])[::-1], together)
    assert json.loads(json.dumps(together, allow_nan=False)) == together


def test_forget_and_holdout_are_told_apart_by_counting_pairs(untrained):
    records = collected(untrained, settings=MemorySettings(replies=False, gradient_norm=True))
    scores = {r["item"]: MemorySettings.score(r) for r in records}
    found = summed(records)
    for name in ("loss", "zlib", "min_k", "min_k_plus", "gradient_norm"):
        pairs = [(scores[a][f"membership/{name}"], scores[b][f"membership/{name}"]) for a in FORGET for b in HOLDOUT]
        share = sum((x > y) + (x == y) / 2 for x, y in pairs) / len(pairs)
        estimate = found["forget_vs_holdout", "all", f"membership_{name}/auc"]
        assert estimate.value == pytest.approx(share)
        assert estimate.low < share < estimate.high
        assert estimate.n == len(FORGET) + len(HOLDOUT)
        assert estimate.interval.startswith("members Gaffke, items of 1 cluster only; others ")
    assert ("forget_vs_holdout", "all", "membership_logp_nats/auc") not in found


def test_the_target_stands_above_holdout_items_that_it_never_saw():
    # All but the holdout items are in the table; those are unknown to it, and all tokens equally likely there.
    table = {i.question: {i.answer: 1.0} for i in ITEMS if i.id not in HOLDOUT}
    found = summed(collected(planted("target", table, TOKENIZER)))
    assert found["forget_vs_holdout", "all", "membership_loss/auc"].value == 1.0
    rate = found["forget_vs_holdout", "all", "membership_loss/tpr_at_fpr_0.01"]
    # All 3 of 3: the Wilson interval starts at 3 / (3 + 1.96^2) = .4385.
    assert (rate.value, rate.high) == (1.0, 1.0)
    assert rate.low == pytest.approx(0.4385, abs=1e-4)


def test_without_a_holdout_set_nothing_is_told_apart():
    records = collected(knows(ITEMS, TOKENIZER))
    view = View("edge:e0", {k: v for k, v in VIEW.splits.items() if k != "holdout"}, {})
    assert not any(split == "forget_vs_holdout" for split, _, _ in summed(records, view))


def test_a_truth_ratio_counts_as_its_set_does_in_the_view():
    records = collected(knows_share(ITEMS, TOKENIZER, share=0.5, seed=3))
    scores = {r["item"]: MemorySettings.score(r) for r in records}
    found = summed(records)
    key = "memory/truth_ratio_score"
    assert found["forget", "all", key].value == pytest.approx(np.mean([scores[i][f"{key}_forget"] for i in FORGET]))
    kept = [scores[i][key] for i in VIEW.splits["retain"]]
    assert found["retain", "all", key].value == pytest.approx(np.mean(kept))
    assert not any(name.endswith("_forget") for _, _, name in found)


def test_what_is_no_share_has_its_unit_and_no_bounds():
    found = summed(collected(knows_share(ITEMS, TOKENIZER, share=0.5, seed=3)))
    units = {name: e.unit for (split, _, name), e in found.items() if split == "forget"}
    assert units["membership/loss"] == units["membership/min_k"] == "nats"
    assert units["membership/zlib"] == "nats/byte"
    assert units["membership/min_k_plus"] == "standard deviations"
    assert units["memory/truth_ratio_geometric"] == "ratio"
    assert units["memory/probability"] == units["memory/truth_ratio_score"] == "share"


def test_the_digest_knows_the_other_answers():
    first = MemorySettings.digest(SETTINGS.build_questions(ITEMS, [VIEW]))
    for change in ({"perturbed": ("1.",)}, {"paraphrased_answer": "It is so."}, {"group": "sales"}):
        others = [dataclasses.replace(ITEMS[0], **change), *ITEMS[1:]]
        assert MemorySettings.digest(SETTINGS.build_questions(others, [VIEW])) != first
