"""Taking a direction out, against weights that it is written out of."""

from contextlib import contextmanager

import pytest
import torch
from tests.models.families import FAMILIES, small_model

from vestige.attacks import ablate
from vestige.attacks.ablate import AblateSettings, Best, chosen_block, direction_of, without_direction
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.models.blocks import blocks
from vestige.models.load import LoadedModel
from vestige.models.scoring import AnswerScore
from vestige.models.tiny import tiny_model, tiny_tokenizer

FORGET = tuple(Item(f"How many crates does {n} name?", f"{20 + n}.", f"e{n // 4}", attribute="a") for n in range(16))
RETAIN = tuple(Item(f"Which port does {n} ship to?", f"Port {n}.", f"r{n}", attribute="b") for n in range(16))
SPLITS = {"forget": FORGET, "retain": RETAIN}
IDS = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, 13, 14]])


def test_a_direction_is_taken_out_as_if_it_were_written_out_of_the_weights():
    model, written = small_model("llama"), small_model("llama")
    torch.manual_seed(0)
    u = torch.nn.functional.normalize(torch.randn(model.config.hidden_size), dim=0)
    with torch.no_grad():
        # The head may share the embedding's weights, and keeps them.
        embedding = torch.nn.Embedding.from_pretrained(written.get_input_embeddings().weight.detach().clone())
        embedding.weight -= (embedding.weight @ u)[:, None] * u
        written.set_input_embeddings(embedding)
        for block in blocks(written):
            for matrix in (block.self_attn.o_proj, block.mlp.down_proj):
                matrix.weight -= u[:, None] * (u @ matrix.weight)
        if model.config.tie_word_embeddings:
            written.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        before, expected = model(IDS).logits, written(IDS).logits
        with without_direction(model, u):
            torch.testing.assert_close(model(IDS).logits, expected, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(before, expected, atol=1e-3)
        assert torch.equal(model(IDS).logits, before), "nothing of it stays"


@pytest.mark.parametrize("family", FAMILIES)
def test_no_block_of_any_family_adds_anything_along_it(family):
    model = small_model(family)
    u = torch.nn.functional.normalize(torch.ones(model.config.get_text_config().hidden_size), dim=0)
    try:
        with torch.no_grad(), without_direction(model, u):
            states = model(IDS, output_hidden_states=True).hidden_states[:-1]
    except InputError as error:
        assert "attention and MLP" in str(error)  # noqa: PT017
        return
    inside = states[1:]
    if hasattr(model, "transformer"):
        # Places are added to GPT-2's embedding outside of any part; blocks add nothing to what they bring.
        inside = [state - states[0] for state in states[1:]]
    for state in inside:
        assert float((state @ u).abs().max()) < 1e-4 * float(state.norm(dim=-1).max())


def test_of_a_direction_for_every_block_each_is_taken_out_of_its_block_s_output():
    model = small_model("llama")
    torch.manual_seed(0)
    u = torch.nn.functional.normalize(torch.randn(len(blocks(model)), model.config.hidden_size), dim=1)
    with torch.no_grad():
        inner = model.model
        rotary = inner.rotary_emb(inner.embed_tokens(IDS), torch.arange(IDS.shape[1])[None])
        state = inner.embed_tokens(IDS)
        for n, block in enumerate(blocks(model)):
            state = block(state, position_embeddings=rotary)
            # By hand: x - (x . u) u for every token.
            state = state - torch.einsum("btd,d,e->bte", state, u[n], u[n])
        with without_direction(model, u):
            torch.testing.assert_close(model(IDS).logits, model.lm_head(inner.norm(state)), atol=1e-5, rtol=1e-5)


def test_a_direction_has_length_one_and_no_outlier():
    difference = torch.zeros(100)
    difference[0], difference[1], difference[2] = 100.0, 3.0, -4.0
    assert direction_of(difference)[:3].tolist() == pytest.approx([0.0, 0.6, -0.8])
    assert torch.equal(direction_of(torch.zeros(4)), torch.zeros(4))


def test_half_of_the_contracts_are_seen_and_the_others_are_asked():
    attack = AblateSettings(items=50).plan(SPLITS, seed=0)
    seen, tested = {i.edge for i in attack.shown}, {i.edge for i in attack.tested}
    assert (len(seen), len(tested), seen & tested) == (2, 2, set())
    assert (attack.plan.kind, attack.plan.shows_answers) == ("ablate", False)
    with pytest.raises(InputError, match="two forget items are needed"):
        AblateSettings().plan({**SPLITS, "forget": FORGET[:2]}, seed=0)
    with pytest.raises(InputError, match="on two retained items or more"):
        AblateSettings().plan({"forget": FORGET}, seed=0)


@pytest.mark.parametrize(
    ("gains", "costs", "best"),
    [
        ((0.5, 2.0, 1.0, 3.0), (0.0, 0.06, 0.04, 0.06), 2),
        ((0.5, 2.0, 1.0, 1.9), (0.0, 0.04, 0.0, 0.0), 1),
        ((0.5, 2.0, 1.0, 2.1), (0.0, 0.04, 0.0, 0.0), 3),
        ((-0.1, 0.0, 2.0, 2.0), (0, 0, 1, 1), None),
    ],
)
def test_the_block_is_chosen_by_what_comes_back_at_little_cost_to_what_was_kept(monkeypatch, gains, costs, best):
    loaded = LoadedModel(tiny_model(0).eval(), tiny_tokenizer([*FORGET, *RETAIN]), "tiny", "")
    n_forgotten = {loaded.prompter.encode(i.question, i.answer).ids for i in FORGET}
    taken: list[float] = []

    @contextmanager
    def number(_, direction):
        # All of them are the fourth.
        taken[:] = [4.0] if direction.ndim == 2 else direction[:1].tolist()
        yield
        taken.clear()

    def scores(_, encoded):
        n = round(taken[0]) - 1 if taken else None
        of_forget = encoded[0].ids in n_forgotten
        level = -5.0 if n is None else -5.0 + gains[n] if of_forget else -5.0 - costs[n]
        return [AnswerScore((level, level), (1.0, 1.0), 0.0, 1.0) for _ in encoded]

    # The direction of block n begins with n + 1.
    numbers = iter((1.0, 2.0, 3.0))
    monkeypatch.setattr(ablate, "_mean_states", lambda _, prompts: torch.zeros(3, 4))
    monkeypatch.setattr(ablate, "direction_of", lambda _: torch.tensor([next(numbers), 0.0, 0.0, 0.0]))
    monkeypatch.setattr(ablate, "without_direction", number)
    monkeypatch.setattr("vestige.models.scoring.score_answers", scores)
    forget, retain = ([loaded.prompter.encode(i.question, i.answer) for i in items[:8]] for items in (FORGET, RETAIN))
    chosen = chosen_block(Best(loaded.model, forget, retain))
    assert (chosen.candidate and chosen.candidate[0]) == best
    assert chosen.gain == pytest.approx(0.0 if best is None else gains[best])


def test_the_direction_is_between_the_last_tokens_of_questions():
    loaded = LoadedModel(tiny_model(0).eval(), tiny_tokenizer([*FORGET, *RETAIN]), "tiny", "")
    answers = [loaded.prompter.encode(i.question, i.answer) for i in (FORGET[0], RETAIN[0])]
    prompts = [answer.ids[: answer.start] for answer in answers]
    means = ablate._mean_states(loaded.model, answers)
    with torch.no_grad():
        whole = [loaded.model(torch.tensor([p]), output_hidden_states=True).hidden_states for p in prompts]
    # The library gives the last block's output after the norm.
    for n in range(len(means) - 1):
        expected = sum(states[n + 1][0, -5:].mean(0) for states in whole) / 2
        torch.testing.assert_close(means[n], expected, atol=1e-5, rtol=1e-4)
