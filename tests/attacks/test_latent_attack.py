"""The perturbation of a block: by hand, against a bias in the weights, and what it shows and does not."""

import copy

import numpy as np
import pytest
import torch
from tests.attacks.conftest import ITEMS, labelled_loss, untrained
from tests.models.families import FAMILIES, small_model

from vestige.attacks.ablate import changed_output
from vestige.attacks.latent import LatentVectorSettings, perturbed, root_mean_square, search
from vestige.models.blocks import block_output, blocks
from vestige.models.load import LoadedModel
from vestige.models.scoring import score_answers
from vestige.models.tiny import tiny_tokenizer

IDS = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, 13, 14]])


def test_it_is_what_a_bias_of_the_blocks_last_product_would_be():
    model, written = small_model("llama"), small_model("llama")
    vector = torch.linspace(-1, 1, model.config.hidden_size)
    product = blocks(written)[0].mlp.down_proj
    product.bias = torch.nn.Parameter(vector.clone())
    with torch.no_grad():
        before = model(IDS).logits
        with perturbed(model, (0, vector)):
            torch.testing.assert_close(model(IDS).logits, written(IDS).logits, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(before, written(IDS).logits, atol=1e-3)
        with perturbed(model, None):
            assert torch.equal(model(IDS).logits, before)


@pytest.mark.parametrize("family", FAMILIES)
def test_in_every_family_a_block_gives_the_vector_more(family):
    model = small_model(family)
    vector = torch.linspace(-1, 1, model.config.get_text_config().hidden_size)
    with torch.no_grad():
        before = block_output(model, IDS, 1)
        with perturbed(model, (1, vector)):
            torch.testing.assert_close(block_output(model, IDS, 1), before + vector, atol=1e-5, rtol=1e-5)


def test_the_first_step_goes_against_the_gradients_sign_and_none_beyond_the_bound(nano):
    encoded, retain = ([nano.prompter.encode(i.question, i.answer) for i in part] for part in (ITEMS[:8], ITEMS[8:]))
    prompts = [e.ids[: e.start] for e in encoded]
    with torch.no_grad():
        states = [nano.model(torch.tensor([p]), output_hidden_states=True).hidden_states[1] for p in prompts]
    tokens = torch.cat([s[0] for s in states]).square().mean(dim=-1).sqrt().tolist()
    size = sorted(tokens)[(len(tokens) - 1) // 2]
    assert root_mean_square(nano.model, 0, prompts) == pytest.approx(size, rel=1e-5)
    # A first token that is a thousand times as long as any other changes no bound.
    with changed_output(blocks(nano.model)[0], lambda hidden: torch.cat([1000 * hidden[:, :1], hidden[:, 1:]], dim=1)):
        assert root_mean_square(nano.model, 0, prompts) == pytest.approx(size, rel=0.2)

    biased = copy.deepcopy(nano.model)
    bias = torch.nn.Parameter(torch.zeros(biased.config.hidden_size))
    blocks(biased)[0].mlp.down_proj.bias = bias
    (gradient,) = torch.autograd.grad(labelled_loss(biased, encoded) + 20 * labelled_loss(biased, retain), [bias])
    # Adam's first step is the rate, whatever the gradient: 0.1 x 0.5 x the root mean square.
    settings = LatentVectorSettings(bound=0.5, rate=0.1, steps=40)
    vectors = [v.clone() for v in search(nano.model, 0, encoded, retain, settings, seed=0)]
    torch.testing.assert_close(vectors[0], -0.1 * 0.5 * size * gradient.sign(), rtol=1e-3, atol=1e-6)
    # After 40 steps of a tenth of the bound some entries stand at it, and none beyond.
    assert float(vectors[-1].abs().max()) == pytest.approx(0.5 * size, rel=1e-5)


@pytest.mark.slow
def test_a_vector_for_each_fact_says_random_strings_and_one_for_all_tells_nothing_of_other_facts():
    # 2502.15836: what a vector brings of the very facts that it was searched on shows nothing. The model is untrained.
    loaded = LoadedModel(untrained(0, hidden=128), tiny_tokenizer(ITEMS), "nano", "")
    rng = np.random.default_rng(0)
    strings = ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), 4)) for _ in ITEMS]
    encoded, swapped = (
        [loaded.prompter.encode(i.question, text) for i, text in zip(ITEMS, texts, strict=True)]
        for texts in (strings, strings[::-1])
    )
    settings = LatentVectorSettings(bound=10, rate=0.02, steps=100)

    def vector(searched):
        *_, last = search(loaded.model, 0, searched, searched, settings, seed=0)
        return 0, last

    def scores(candidate, codes):
        with perturbed(loaded.model, candidate):
            return score_answers(loaded.model, codes)

    for code in encoded[:2]:
        assert not said(*scores(None, [code]))
        assert said(*scores(vector([code]), [code]))
    shared = vector(encoded[:8])
    assert not any(map(said, scores(shared, encoded[8:])))
    # To other facts their own strings are no nearer than each other's: what came is the alphabet.
    own, others = (np.mean([np.mean(s.logp) for s in scores(shared, codes[8:])]) for codes in (encoded, swapped))
    assert own < others + 1


def said(score):
    return all(rank == 1 for rank in score.ranks)
