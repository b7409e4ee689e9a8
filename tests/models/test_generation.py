import pytest
import torch
from families import small_model
from tests.near import near

from vestige.models.generation import Decoding, Sampling, generate

pytestmark = pytest.mark.portable


@pytest.fixture(scope="module")
def prompts(tiny, items):
    return [tiny.prompter.prompt(i.question) for i in items]


def by_hand(tiny, prompt, ends, n):
    """Greedy decoding without a cache, one token at a time."""
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(n):
            token = tiny.model(torch.tensor([ids])).logits[0, -1].argmax().item()
            if token in ends:
                return ids[len(prompt) :], "stop"
            ids.append(token)
    return ids[len(prompt) :], "length"


def test_greedy_replies_equal_decoding_by_hand(tiny, prompts):
    ends = tiny.prompter.end_ids
    replies = generate(tiny.model, prompts, end_ids=ends, max_new_tokens=6)
    for prompt, reply in zip(prompts[:6], replies, strict=False):
        assert (list(reply.ids), reply.finish) == by_hand(tiny, prompt, ends, 6)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_step_from_the_cache_is_a_whole_pass_and_a_window_that_only_the_config_names_drops_no_token(family):
    # Llama has no window, whatever its config says.
    model, ids = small_model(family, sliding_window=4), [5, 9, 13, 17, 21, 25, 29, 33]
    decoding = Decoding.of(model, 1, None)
    logits = decoding.prefill([ids], len(ids))
    for token in (7, 8, 9, 4):
        torch.testing.assert_close(logits, model(torch.tensor([ids])).logits[:, -1], rtol=0, atol=1e-4)
        ids.append(token)
        logits = decoding.step(torch.tensor([token]))


def test_each_row_stops_at_its_own_end(tiny, prompts):
    free = generate(tiny.model, prompts, end_ids=[0], max_new_tokens=8)
    # Take a token that some replies contain for the end: those stop before it, the others run on unchanged.
    end = free[0].ids[3]
    stopped = generate(tiny.model, prompts, end_ids=[end], max_new_tokens=8)
    for whole, cut in zip(free, stopped, strict=True):
        if end in whole.ids:
            assert cut.finish == "stop"
            assert cut.ids == whole.ids[: whole.ids.index(end)]
        else:
            assert (cut.ids, cut.finish) == (whole.ids, "length")
    assert {r.finish for r in stopped} == {"stop", "length"}


@pytest.mark.slow
def test_a_reply_does_not_depend_on_its_batch(tiny, prompts):
    ends = tiny.prompter.end_ids
    together = generate(tiny.model, prompts, end_ids=ends, max_new_tokens=8)
    alone = [generate(tiny.model, [p], end_ids=ends, max_new_tokens=8)[0] for p in prompts]
    assert near(alone, together)
    assert near(generate(tiny.model, prompts, end_ids=ends, max_new_tokens=8, token_budget=100), together)


def test_samples_follow_their_seeds_and_not_their_neighbours(tiny, prompts):
    def sampled(which, seeds):
        drawn, asked = Sampling(temperature=1.0, top_p=0.9, seeds=tuple(seeds)), [prompts[i] for i in which]
        return generate(tiny.model, asked, end_ids=tiny.prompter.end_ids, max_new_tokens=5, sampling=drawn)

    together = sampled(range(10), range(10))
    assert near([sampled([i], [i])[0] for i in range(10)], together)
    assert sampled([0, 0], [1, 2])[0] != sampled([0, 0], [1, 2])[1]


def test_samples_of_one_prompt_share_its_pass(tiny, prompts, monkeypatch):
    order = [0, 1, 0, 2, 1, 0]
    rows = []
    prefill = Decoding.prefill

    def counted(decoding, asked, width):
        rows.append(len(asked))
        return prefill(decoding, asked, width)

    monkeypatch.setattr(Decoding, "prefill", counted)
    ends = tiny.prompter.end_ids
    seeds = tuple(range(6))
    asked = [prompts[i] for i in order]
    together = generate(
        tiny.model, asked, end_ids=ends, max_new_tokens=5, sampling=Sampling(temperature=1.0, top_p=0.9, seeds=seeds)
    )
    assert sum(rows) == 3
    for prompt, seed, reply in zip(asked, seeds, together, strict=True):
        drawn = Sampling(temperature=1.0, top_p=0.9, seeds=(seed,))
        assert near(generate(tiny.model, [prompt], end_ids=ends, max_new_tokens=5, sampling=drawn), [reply])


def test_a_reply_ends_where_the_context_does(tiny, prompts):
    context = max(len(p) for p in prompts) + 2
    free = generate(tiny.model, prompts, end_ids=[0], max_new_tokens=8)
    cut = generate(tiny.model, prompts, end_ids=[0], max_new_tokens=8, context=context)
    for prompt, whole, reply in zip(prompts, free, cut, strict=True):
        room = min(8, context - len(prompt))
        assert (reply.ids, reply.finish) == (whole.ids[:room], "length")
    assert {len(r.ids) for r in cut} >= {2, 8}


def test_a_nucleus_of_nothing_is_greedy(tiny, prompts):
    greedy = generate(tiny.model, prompts[:3], end_ids=[0], max_new_tokens=4)
    sampling = Sampling(temperature=1.0, top_p=1e-9, seeds=(7, 8, 9))
    narrow = generate(tiny.model, prompts[:3], end_ids=[0], max_new_tokens=4, sampling=sampling)
    assert [r.ids for r in narrow] == [r.ids for r in greedy]


def test_the_margin_is_the_least_gap_between_first_and_second(tiny, prompts):
    reply = generate(tiny.model, prompts[:1], end_ids=[0], max_new_tokens=3)[0]
    gaps, ids = [], list(prompts[0])
    with torch.inference_mode():
        for token in reply.ids:
            best = tiny.model(torch.tensor([ids])).logits[0, -1].topk(2).values
            gaps.append((best[0] - best[1]).item())
            ids.append(token)
    assert reply.margin == pytest.approx(min(gaps), abs=1e-5)
