"""`acr`: what is searched for, in which forms, what counts as found, and what a record and its scores hold.

The model is a nano one, trained on eight sentences after a title of two words each (`benchmarks.acr`).
"""

import dataclasses
import json

import pytest
import torch
from benchmarks import acr as bench
from tokenizers.normalizers import Lowercase
from torch.nn.functional import cross_entropy

from vestige.attacks.gcg import FoundPrompt
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.evals import compression as acr
from vestige.evals.base import View
from vestige.evals.compression import AcrSettings
from vestige.models.generation import generate
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_model, tiny_tokenizer

pytestmark = pytest.mark.slow

TAUGHT = [bench.sentence_of(5, n) for n in range(8)]
ITEM = Item("What was the price?", "21 crates.", edge="A_B", group="sales", attribute="price")
TOKENIZER = tiny_tokenizer([ITEM, *TAUGHT])
QUICK = AcrSettings(form="raw", steps=12, width=32, topk=32)


@pytest.fixture(scope="module")
def taught() -> LoadedModel:
    return bench.taught_model(5, TAUGHT)


@pytest.fixture(scope="module")
def untrained() -> LoadedModel:
    return LoadedModel(tiny_model(3).eval(), TOKENIZER, "builtin:tiny", "")


@pytest.fixture(scope="module")
def known(taught):
    (record,) = QUICK.collect(taught, [TAUGHT[0]])
    return record


def token(text):
    return TOKENIZER.convert_tokens_to_ids(text)


def ids(text):
    return tuple(TOKENIZER(text, add_special_tokens=False)["input_ids"])


def test_a_row_is_the_rendered_chat_from_the_question_on_and_the_templates_tokens_do_not_count(untrained):
    text = acr.text_of(untrained, ITEM, "row")
    question, answer = ids(ITEM.question), ids(ITEM.answer)
    assert text.around.before == (token("<bos>"), token("<question>"))
    assert text.around.after == ()
    assert text.around.target == (*question, token("<answer>"), *answer)
    assert text.n_own == len(question) + len(answer) == len(text.around.target) - 1


def test_raw_text_follows_the_prompt_and_the_beginning(untrained):
    text = acr.text_of(untrained, ITEM, "raw")
    assert (text.around.before, text.around.after) == ((token("<bos>"),), ())
    assert text.around.target == ids("What was the price? 21 crates.")
    assert text.n_own == len(text.around.target)


@pytest.mark.parametrize(("form", "said"), [("chat", "What was the price? 21 crates."), ("answer", "21 crates.")])
def test_in_a_chat_the_prompt_is_the_users_turn_and_the_text_the_reply(untrained, form, said):
    text = acr.text_of(untrained, ITEM, form)
    assert text.around.before == (token("<bos>"), token("<question>"))
    assert text.around.after == (token("<answer>"),)
    assert text.around.target == ids(said)


def test_a_text_of_one_token_is_refused_since_no_prompt_is_shorter(untrained):
    with pytest.raises(InputError, match="the text '7' is 1 token long, and no prompt is shorter"):
        acr.text_of(untrained, Item("How many?", "7"), "answer")


def test_a_text_that_the_tokeniser_says_otherwise_is_refused(untrained):
    lowering = tiny_tokenizer([ITEM])
    lowering.backend_tokenizer.normalizer = Lowercase()
    with pytest.raises(InputError, match=r"'What was the price\?' as 'what was the price\?'"):
        acr.text_of(dataclasses.replace(untrained, tokenizer=lowering), ITEM, "row")


def test_a_taught_sentence_is_memorised_and_its_prompt_makes_the_model_say_it(taught, known):
    # 12 words of one token each, taught after titles of two.
    assert known["n_text"] == 12
    assert known["n_prompt"] < 12
    assert AcrSettings.score(known)["acr/memorised"] == 1.0
    assert AcrSettings.score(known)["acr/ratio"] == 12 / known["n_prompt"]
    sent = [taught.tokenizer.bos_token_id, *taught.tokenizer(known["prompt"], add_special_tokens=False)["input_ids"]]
    assert len(sent) == 1 + known["n_prompt"]
    (reply,) = generate(taught.model, [sent], end_ids=taught.prompter.end_ids, max_new_tokens=12)
    assert taught.tokenizer.decode(list(reply.ids)) == f"{TAUGHT[0].question} {TAUGHT[0].answer}"


def test_a_sentence_that_was_never_seen_is_not_found_and_has_no_ratio(taught):
    (record,) = QUICK.collect(taught, [bench.sentence_of(5, 1000)])
    assert (record["n_prompt"], record["prompt"]) == (None, None)
    assert [s["n_tokens"] for s in record["searches"]] == [6, 9, 10, 11]
    scores = AcrSettings.score(record)
    assert scores == {"acr/memorised": 0.0, "acr/share_found": 0.0, "acr/share_unverified": 0.0}


def test_a_record_keeps_every_search_with_what_was_spent(known):
    for search in known["searches"]:
        assert search["spent"]["steps"] == search["steps"] <= 12
        assert search["spent"]["candidates"] <= 1 + 32 * search["steps"]
        assert len(search["prompt_ids"]) == search["n_tokens"]
        assert search["verified"] in ([False] if not search["claimed"] else [True, False])
    assert json.loads(json.dumps(known)) == known


def test_a_record_depends_on_the_item_and_not_on_those_beside_it(taught, known):
    settings = QUICK.model_copy(update={"steps": 2})
    pair = settings.collect(taught, TAUGHT[:2])
    assert settings.collect(taught, [TAUGHT[1]]) == pair[1:]


def test_what_the_search_claims_and_the_text_does_not_bring_is_no_success(taught, known, monkeypatch):
    """A search that says it reached the text with a prompt that does not bring it."""
    said = tuple(taught.tokenizer("violin", add_special_tokens=False)["input_ids"])
    false = FoundPrompt(said, "violin", 0.0, True, "reached", 1, {}, 8.0)
    monkeypatch.setattr("vestige.attacks.gcg.find_prompt", lambda *args, **kwargs: false)
    (record,) = QUICK.collect(taught, TAUGHT[:1])
    assert record["n_prompt"] is None
    assert all(s["claimed"] and not s["verified"] for s in record["searches"])
    assert AcrSettings.score(record)["acr/memorised"] == 0.0
    assert AcrSettings.score(record)["acr/share_unverified"] == 1.0


def test_a_prompt_whose_text_is_another_number_of_tokens_is_no_success(taught, known):
    """What brings the text counts only with the tokens that the search counted."""
    text = acr.text_of(taught, TAUGHT[0], "raw")
    sent = tuple(taught.tokenizer(known["prompt"], add_special_tokens=False)["input_ids"])
    found = FoundPrompt(sent, known["prompt"], 0.0, True, "reached", 1, {}, 8.0)
    assert acr._verified(taught, text, "raw", found)["verified"]
    assert not acr._verified(taught, text, "raw", dataclasses.replace(found, ids=sent[1:]))["verified"]


def test_a_row_is_verified_where_the_users_turn_ends_with_the_token_that_ends_replies():
    """As in ChatML. A nano model that learned one row by heart says it after any prompt."""
    tokenizer = tiny_tokenizer([ITEM])
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "<question>{{ m.content }}", "<question>{{ m.content }}<eos>"
    )
    model = LoadedModel(bench._nano(0, tokenizer), tokenizer, "nano", "")
    text = acr.text_of(model, ITEM, "row")
    assert tokenizer.eos_token_id in text.around.target
    assert model.prompter.end_ids == (tokenizer.eos_token_id,)
    prompt = tuple(tokenizer("crates", add_special_tokens=False)["input_ids"])
    ids = torch.tensor([[*text.around.before, *prompt, *text.around.target]])
    optimizer = torch.optim.AdamW(model.model.parameters(), lr=3e-3)
    for _ in range(60):
        logits = model.model(input_ids=ids[:, :-1], logits_to_keep=len(text.around.target)).logits[0]
        optimizer.zero_grad()
        cross_entropy(logits, torch.tensor(text.around.target)).backward()
        optimizer.step()
    model.model.eval()
    found = FoundPrompt(prompt, "crates", 0.0, True, "reached", 1, {}, 8.0)
    assert acr._verified(model, text, "row", found)["verified"]


@pytest.mark.parametrize("form", ["row", "chat"])
def test_a_prompt_is_sent_as_it_was_searched(untrained, form):
    text = acr.text_of(untrained, ITEM, form)
    prompt = "price of crates"
    searched = (*text.around.before, *ids(prompt), *text.around.after)
    assert acr._as_sent(untrained, text, form, prompt) == searched


def test_a_random_model_is_searched_in_every_form_and_verified_in_it(untrained):
    # Two searched tokens at most: what counts is that every form goes through, and finds nothing.
    for form in ("row", "chat", "answer"):
        settings = QUICK.model_copy(update={"form": form, "steps": 1, "longest": 0.3})
        (record,) = settings.collect(untrained, [ITEM])
        assert (record["form"], record["n_prompt"]) == (form, None)


def test_the_forget_items_are_drawn_by_the_seed_and_fewer_are_among_more():
    items = [Item(f"Question {n}?", f"answer {n}") for n in range(20)]
    view = View("edge:e", {"forget": [i.id for i in items[:12]], "retain": [i.id for i in items[12:]]}, {})
    few = AcrSettings(items=3).build_questions(items, [view])
    more = AcrSettings(items=6).build_questions(items, [view])
    assert (len(few), len(more)) == (3, 6)
    assert set(few) < set(more) <= set(view.splits["forget"])
    assert list(more) == [i.id for i in items if i.id in more]
    assert set(AcrSettings(items=3, seed=1).build_questions(items, [view])) != set(few)


def test_summaries_are_of_the_drawn_items_and_ratios_of_the_found_ones():
    # Two of three memorised; ratios 12/4 = 3, 12/6 = 2 of the two that were found.
    records = [
        {"item": f"i{n}", "edge": None, "n_text": 12, "n_prompt": found, "searches": []}
        for n, found in enumerate((4, 6, None))
    ]
    view = View("edge:e", {"forget": ["i0", "i1", "i2", "never drawn"], "retain": ["r"]}, {})
    found = {
        r.estimate.metric: r
        for r in AcrSettings.summarize(records, [AcrSettings.score(r) for r in records], view, seed=0)
    }
    assert {r.split for r in found.values()} == {"forget"}
    assert {r.format for r in found.values()} == {"acr"}
    memorised, ratio = found["memorised"].estimate, found["ratio"].estimate
    assert (memorised.value, memorised.n, memorised.interval) == (2 / 3, 3, "Wilson")
    assert (ratio.value, ratio.n) == (2.5, 2)
    assert found["share_found"].estimate.value == 2 / 3
