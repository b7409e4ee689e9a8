import dataclasses
import math

import pytest
import torch
from tests.planted_tables import Manner, knows, never_knew, planted
from transformers import DynamicCache

from vestige.core.items import Item
from vestige.models.generation import generate
from vestige.models.scoring import score_answers
from vestige.models.tiny import tiny_tokenizer

CONFIDENCE, CHANCE = 0.8, 0.1
MANNER = Manner(confidence=CONFIDENCE, chance=CHANCE)
CITIES = ("Berlin", "Paris", "Rome", "Oslo", "Lima", "Quito", "Athens", "Dublin")
# Questions of several lengths, and sixteen rows of which half have short replies, so that finished ones are dropped.
ITEMS = tuple(
    Item(
        f"Where {'did the goods of the contract ' * (n % 3)}go under number {n}?",
        f"{CITIES[n % 8]}{', then by sea and rail to ' + CITIES[(n + 3) % 8] if n % 2 else ''}.",
        edge=f"e{n % 4}",
        attribute="place",
        paraphrase=f"Under number {n}, what was the destination?",
    )
    for n in range(16)
)
TOKENIZER = tiny_tokenizer(ITEMS)
V = len(TOKENIZER)
REST = math.log((1 - CONFIDENCE) / (V - 1))


def ask(subject, questions, max_new_tokens=32):
    prompts = [subject.prompter.prompt(q) for q in questions]
    return generate(subject.model, prompts, end_ids=subject.prompter.end_ids, max_new_tokens=max_new_tokens)


def said(subject, questions):
    return [subject.prompter.decode(r.ids) for r in ask(subject, questions)]


def scored(subject, items):
    return score_answers(subject.model, [subject.prompter.encode(i.question, i.answer) for i in items])


def in_the_other_words(items):
    return [dataclasses.replace(i, question=i.paraphrase) for i in items]


def test_knowing_is_every_answer_in_full_at_the_stated_confidence():
    subject = knows(ITEMS, TOKENIZER, manner=MANNER)
    for items in (ITEMS, in_the_other_words(ITEMS)):
        replies = ask(subject, [i.question for i in items])
        assert [subject.prompter.decode(r.ids) for r in replies] == [i.answer for i in items]
        for reply, score in zip(replies, scored(subject, items), strict=True):
            # The answer's tokens and its end: ln .8 each, and ln .8 - ln(.2 / (V - 1)) ahead of every other token.
            assert [*score.logp, score.end_logp] == pytest.approx([math.log(0.8)] * (len(reply.ids) + 1), abs=1e-5)
            assert {*score.ranks, score.end_rank} == {1.0}
            assert reply.finish == "stop"
            assert reply.margin == pytest.approx(math.log(0.8) - REST, abs=1e-5)


def test_decoding_with_a_cache_reads_what_one_pass_reads():
    subject = never_knew(ITEMS, TOKENIZER, seed=3, manner=MANNER)
    rows = [subject.prompter.encode(i.question, i.answer).ids for i in ITEMS[:6]]
    width, cache, steps = max(map(len, rows)), DynamicCache(config=subject.model.config), []
    ids = torch.tensor([[0] * (width - len(r)) + list(r) for r in rows])
    mask = torch.tensor([[0] * (width - len(r)) + [1] * len(r) for r in rows])
    first = min(map(len, rows))
    # A portion of several tokens, padded on the left, and then single ones.
    for start, stop in [(0, first), *((t, t + 1) for t in range(first, width))]:
        out = subject.model(
            ids[:, start:stop], attention_mask=mask[:, :stop], past_key_values=cache, use_cache=True, logits_to_keep=0
        )
        steps.append(out.logits)
    together = torch.cat(steps, dim=1)
    for n, row in enumerate(rows):
        plain = subject.model(torch.tensor([row])).logits[0]
        assert torch.equal(together[n, width - len(row) :], plain)


def test_replies_share_the_confidence_by_their_weights():
    # 3 : 1 where "Berlin." and "Paris." part, and all of it again from there on.
    subject = planted("two", {"Where?": {"Berlin.": 3.0, "Paris.": 1.0}}, TOKENIZER, manner=MANNER)
    for answer, share in (("Berlin.", 0.75), ("Paris.", 0.25)):
        (score,) = scored(subject, [Item("Where?", answer)])
        expected = [math.log(share * 0.8)] + [math.log(0.8)] * (len(score.logp) - 1)
        assert score.logp == pytest.approx(expected, abs=1e-5)
        assert score.ranks[0] == (1 if answer == "Berlin." else 2)
    # Two tokens are said at the first place, so V - 2 share the rest.
    (score,) = scored(subject, [Item("Where?", "Oslo.")])
    assert score.logp[0] == pytest.approx(math.log(0.2 / (V - 2)), abs=1e-5)
