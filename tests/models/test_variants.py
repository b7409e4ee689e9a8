"""Prompts in their texts: shared passes and the gradient against one whole pass a prompt."""

import pytest
import torch
from families import small_model
from torch.nn.functional import cross_entropy, one_hot

from vestige.core.errors import InputError
from vestige.models.keys_values import can_go_on
from vestige.models.variants import Around, Scored, Variants, best_of

pytestmark = pytest.mark.portable

SUFFIX = Around((5, 9, 11, 3, 40), (6, 6), (21, 22, 23, 24))
PREFIX = Around((), (14, 15, 16), (33, 34))
INFIX = Around((7, 8), (19, 20, 21, 22, 23), (9,))
BARE = Around((4,), (), (12, 13))
PLACES = {"suffix": SUFFIX, "prefix": PREFIX, "infix": INFIX, "nothing after": BARE}
SHARING = ("llama", "mistral", "qwen2", "granite", "cohere", "phi", "phi3", "gpt2")


def prompts_of(n: int, length: int = 6, vocabulary: int = 67) -> list[tuple[int, ...]]:
    """One prompt with one token changed in each, at places and to tokens that follow from a seed."""
    rng = torch.Generator().manual_seed(7)
    base = torch.randint(3, vocabulary, (length,), generator=rng)
    found = []
    places, tokens = (torch.randint(*span, (n,), generator=rng) for span in ((0, length), (3, vocabulary)))
    for place, token in zip(places, tokens, strict=True):
        changed = base.clone()
        changed[place] = token
        found.append(tuple(changed.tolist()))
    return found


@torch.no_grad()
def naive_loss(model, text: Around, prompt) -> float:
    """Written out: a whole pass over everything, logits everywhere, cross-entropy where the target stands."""
    ids = torch.tensor([[*text.before, *prompt, *text.after, *text.target]])
    k = len(text.target)
    logits = model(ids).logits[0, -k - 1 : -1].float()
    return float(cross_entropy(logits, torch.tensor(text.target)))


def naive_losses(model, texts, prompts) -> list[float]:
    return [sum(naive_loss(model, text, prompt) for text in texts) / len(texts) for prompt in prompts]


@pytest.mark.parametrize(
    ("family", "place"), [*(("llama", place) for place in PLACES), *((family, "infix") for family in SHARING[1:])]
)
def test_losses_are_those_of_whole_passes_wherever_the_prompt_stands(family, place):
    model = small_model(family, sliding_window=None) if family in ("mistral", "phi3") else small_model(family)
    text, prompts = PLACES[place], prompts_of(9)
    variants = Variants(model, [text], token_budget=64)
    assert variants.way == "shared"
    found = variants.losses(prompts)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.tensor(naive_losses(model, [text], prompts)), rtol=0, atol=2e-5)


@pytest.mark.parametrize("family", [*SHARING, "gemma2"])
def test_losses_over_several_texts_are_their_mean_whether_or_not_they_begin_alike(family):
    model = small_model(family)
    texts = [SUFFIX, PREFIX, Around(SUFFIX.before, (17,), (25, 26)), Around((), (), (8, 9, 10)), BARE]
    prompts = prompts_of(7)
    expected = torch.tensor(naive_losses(model, texts, prompts))
    variants = Variants(model, texts)
    assert variants.way != "plain"
    torch.testing.assert_close(variants.losses(prompts), expected, rtol=0, atol=2e-5)


def test_a_window_shorter_than_the_context_is_not_shared_and_scores_right():
    model = small_model("mistral", sliding_window=4)
    assert can_go_on(model)
    assert not can_go_on(model, window=64)
    assert can_go_on(small_model("mistral", sliding_window=64), window=64)
    prompts = prompts_of(5)
    expected = torch.tensor(naive_losses(model, [SUFFIX, PREFIX], prompts))
    assert Variants(model, [SUFFIX, PREFIX]).way == "plain"
    torch.testing.assert_close(Variants(model, [SUFFIX, PREFIX]).losses(prompts), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("text", "prompts"),
    [
        # Ties: the same target token at two places, and the same prompt given twice.
        (Around((3,), (4,), (30, 30)), [(5, 6, 7), (5, 6, 8), (5, 6, 7)]),
        # Nothing in common.
        (SUFFIX, [(5, 9, 11, 30), (40, 8, 31, 6), (21, 50, 60, 7)]),
        # One token before everything.
        (Around((), (), (9, 10)), [(5,), (6,), (7,)]),
    ],
)
def test_odd_prompts_are_scored_right(text, prompts):
    model = small_model("llama", tie_word_embeddings=True)
    expected = torch.tensor(naive_losses(model, [text], prompts))
    torch.testing.assert_close(Variants(model, [text]).losses(prompts), expected, rtol=0, atol=2e-5)


def test_what_a_longer_text_turns_otherwise_is_not_shared():
    # From 17 tokens on all positions are turned otherwise, those of the beginning too.
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "factor": 4.0, "rope_theta": 10000.0}
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 16, **factors}
    model = small_model("llama", rope_parameters=rope, initializer_range=0.3)
    prompts = prompts_of(4, length=24)
    found = Variants(model, [SUFFIX]).losses(prompts)
    assert found.tolist() == pytest.approx(naive_losses(model, [SUFFIX], prompts), abs=1e-4)


def test_equal_prompts_lead_in_the_order_given():
    model = small_model("llama")
    prompts = prompts_of(12)
    best = prompts[Variants(model, [SUFFIX]).leaders(prompts, 1)[0].index]
    given = [best, *prompts, best]
    found = Variants(model, [SUFFIX]).leaders(given, 3)
    assert [one.index for one in found] == [0, 1 + prompts.index(best), 13]
    assert len({one.loss for one in found}) == 1


def test_a_screen_chooses_prompts_and_their_losses_are_those_of_the_exact_model():
    model, rough = small_model("llama", initializer_range=0.3), small_model("llama", initializer_range=0.3)
    with torch.no_grad():
        for weight in rough.parameters():
            weight.mul_(1.001)
    prompts = prompts_of(120)
    exact, screened = Variants(model, [SUFFIX]), Variants(model, [SUFFIX])
    screened.__dict__["_screen"] = Variants(rough, [SUFFIX])
    losses = exact.losses(prompts).tolist()
    read = []
    screened.losses = lambda some: read.extend(some) or exact.losses(some)
    leaders = screened.leaders(prompts, 3)
    assert [one.index for one in leaders] == sorted(range(120), key=lambda i: (losses[i], i))[:3]
    assert [one.loss for one in leaders] == pytest.approx([losses[one.index] for one in leaders], abs=1e-6)
    assert len(read) < len(set(prompts)) / 2


@pytest.mark.parametrize(("difference", "n_read"), [(-0.1, 16), (9.0, 32), (float("nan"), 40)])
def test_prompts_are_read_until_no_screened_loss_is_near_the_leader(difference, n_read):
    # Screened as 0, 1, ..., 39. With 9 the leader of the first 16 has 9, and the next is screened as 16, within 2 * 9
    # of it. After 32 the next is 32 - 9 = 23 > 2 * 9 away.
    losses = best_of(range(40), lambda numbers: [i + difference for i in numbers], 1)
    assert sorted(losses) == list(range(n_read))


def test_the_same_call_gives_the_same_bytes_and_leaves_the_model_as_it_was(tiny):
    prompts, texts = prompts_of(20, vocabulary=400), [Around((1, 2, 77), (3,), (90, 91))]
    before = [(p.requires_grad, p.data_ptr()) for p in tiny.model.parameters()]
    one, other = (Variants(tiny.model, texts) for _ in range(2))
    assert one.leaders(prompts, 4) == other.leaders(prompts, 4) == one.leaders(prompts, 4)
    assert torch.equal(one.gradient(prompts[0]), other.gradient(prompts[0]))
    assert [(p.requires_grad, p.data_ptr()) for p in tiny.model.parameters()] == before
    assert all(p.grad is None for p in tiny.model.parameters())


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "granite"])
def test_the_gradient_is_that_of_one_hot_tokens(family):
    model, prompt, texts = small_model(family), prompts_of(1)[0], [SUFFIX, PREFIX]
    table = model.get_input_embeddings()(torch.arange(67)).detach()
    hot = one_hot(torch.tensor(prompt), len(table)).float().requires_grad_()
    total = torch.tensor(0.0)
    for text in texts:
        around = [table[torch.tensor(ids, dtype=torch.long)] for ids in (text.before, (*text.after, *text.target))]
        logits = model(inputs_embeds=torch.cat([around[0], hot @ table, around[1]])[None]).logits
        total = total + cross_entropy(logits[0, -len(text.target) - 1 : -1], torch.tensor(text.target)) / len(texts)
    (expected,) = torch.autograd.grad(total, hot)
    found = Variants(model, texts).gradient(prompt)
    assert found.shape == (6, 67)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)


def test_a_prompt_reaches_a_target_that_is_the_first_choice_at_every_place():
    model, prompt = small_model("llama", initializer_range=0.3), (5, 6, 7)
    said = model.generate(torch.tensor([[3, *prompt, 4]]), max_new_tokens=3, do_sample=False, eos_token_id=None)
    target = tuple(said[0, 5:].tolist())
    other = (*target[:2], (target[2] + 1) % 67)
    variants = Variants(model, [Around((3,), (4,), target), Around((3,), (4,), other)])
    assert variants.reached(prompt) == (True, False)


def test_what_cannot_be_scored_is_refused():
    model = small_model("llama")
    with pytest.raises(InputError, match="target of at least one token"):
        Variants(model, [Around((1,), (), ())])
    with pytest.raises(InputError, match="target of at least one token"):
        Variants(model, [])
    variants = Variants(model, [SUFFIX])
    with pytest.raises(ValueError, match="one length"):
        variants.losses([(1, 2), (1, 2, 3)])
    with pytest.raises(ValueError, match="one length"):
        variants.losses([])
    with pytest.raises(InputError, match="a prompt of 54 tokens makes a text of 65 tokens, where the model reads 64"):
        variants.losses([tuple(range(3, 57))])
    assert isinstance(variants.leaders([tuple(range(3, 56))], 1)[0], Scored)
