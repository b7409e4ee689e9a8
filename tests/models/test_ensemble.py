"""An ensemble is asked like any model, and answers with the mean of its constituents' probabilities."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, LlamaConfig, MistralConfig, PhiConfig

from vestige.core.errors import InputError
from vestige.models.ensemble import INDEX, EnsembleModel
from vestige.models.folders import weights_digest
from vestige.models.generation import generate
from vestige.models.load import LoadedModel, ModelSettings, load
from vestige.models.scoring import score_answers
from vestige.models.tiny import tiny_model

pytestmark = pytest.mark.portable

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
COMMON = {"vocab_size": 64, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


@pytest.fixture(scope="module")
def ensemble(tiny) -> EnsembleModel:
    # Shard 1 has no constituent, as when all its items are forgotten.
    return EnsembleModel({4: sharp(12), 0: sharp(10), 2: sharp(11)}).eval()


def sharp(seed: int):
    """A model whose next token is not nearly a draw, so that the constituents disagree about what comes first."""
    model = tiny_model(seed).eval()
    with torch.no_grad():
        model.model.norm.weight.mul_(20)
    return model


def mean_probabilities(ensemble: EnsembleModel, ids: list[int]) -> torch.Tensor:
    """By hand and in float64, from a plain pass of each constituent."""
    with torch.inference_mode():
        logits = [model(torch.tensor([ids])).logits[0].double() for model in ensemble.constituents]
    return torch.stack([one.softmax(-1) for one in logits]).mean(0)


def test_the_mean_is_one_of_probabilities_by_hand():
    # At one place (1/2, 1/2) and (1/4, 3/4) make (3/8, 5/8); a mean of logits would give 1 / (1 + sqrt 3) = 0.366.
    class Says(torch.nn.Module):
        def __init__(self, share: float) -> None:
            super().__init__()
            self.logits = torch.tensor([[[share, 1 - share]]]).log()

        def forward(self, **_: object) -> "Says":
            return self

    ensemble = EnsembleModel({0: tiny_model(0), 1: tiny_model(1)})
    ensemble.constituents = torch.nn.ModuleList([Says(1 / 2), Says(1 / 4)])
    logits = ensemble(torch.tensor([[0]])).logits
    torch.testing.assert_close(logits, torch.tensor([[[3 / 8, 5 / 8]]]).log())


def test_scores_equal_the_mean_of_the_constituents_probabilities(tiny, items, ensemble):
    encoded = [tiny.prompter.encode(i.question, i.answer) for i in items]
    for code, score in zip(encoded, score_answers(ensemble, encoded), strict=True):
        mean = mean_probabilities(ensemble, list(code.ids))
        expected = [mean[j - 1, code.ids[j]].log().item() for j in range(code.start, code.end + 1)]
        assert [*score.logp, score.end_logp] == pytest.approx(expected, abs=2e-5)
        ranks = [1 + int((mean[j - 1] > mean[j - 1, code.ids[j]]).sum()) for j in range(code.start, code.stop)]
        assert [round(r) for r in score.ranks] == pytest.approx(ranks, abs=1)


def test_an_ensembles_replies_are_no_constituents_own(tiny, items, ensemble):
    # Without this the tests above could pass for a model that asks one constituent only.
    prompts = [tiny.prompter.prompt(i.question) for i in items]
    together = generate(ensemble, prompts, end_ids=[0], max_new_tokens=6)
    for model in ensemble.constituents:
        assert generate(model, prompts, end_ids=[0], max_new_tokens=6) != together


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SIZES, **COMMON, num_key_value_heads=2),
        MistralConfig(**SIZES, **COMMON, num_key_value_heads=2, sliding_window=8),
        Gemma2Config(**SIZES, **COMMON, num_key_value_heads=2, head_dim=8, sliding_window=8),
        PhiConfig(**SIZES, **COMMON),
        GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2),
    ],
    ids=lambda config: config.model_type,
)
def test_every_architectures_cache_is_divided_among_the_constituents(config):
    # Prompts longer than a sliding window of 8, of different lengths, so that rows are padded and dropped.
    torch.manual_seed(0)
    ensemble = EnsembleModel({k: AutoModelForCausalLM.from_config(config) for k in range(3)}).eval()
    prompts = [torch.randint(3, 64, (n,)).tolist() for n in (3, 12, 15, 9)]
    replies = generate(ensemble, prompts, end_ids=[2], max_new_tokens=4)
    for prompt, reply in zip(prompts, replies, strict=True):
        ids = list(prompt)
        while len(ids) < len(prompt) + 4 and (token := int(mean_probabilities(ensemble, ids)[-1].argmax())) != 2:
            ids.append(token)
        assert list(reply.ids) == ids[len(prompt) :]


def test_a_saved_ensemble_comes_back_with_the_same_digest_and_answers(tiny, items, ensemble, tmp_path):
    ensemble.save_pretrained(tmp_path / "model")
    tiny.tokenizer.save_pretrained(tmp_path / "model")
    # A subject's folder stands for the model in it.
    for name in (tmp_path, tmp_path / "model"):
        again = load(ModelSettings(model=str(name), device="cpu"))
        assert isinstance(again.model, EnsembleModel)
        assert again.model.shards == (0, 2, 4)
        assert again.digest() == LoadedModel(ensemble, tiny.tokenizer, "", "").digest()
        assert again.prompter.digest == tiny.prompter.digest
    encoded = [tiny.prompter.encode(i.question, i.answer) for i in items]
    assert score_answers(again.model, encoded) == score_answers(ensemble, encoded)
    # Each part is a plain folder that transformers loads by itself.
    part = AutoModelForCausalLM.from_pretrained(tmp_path / "model" / "shard-2")
    assert weights_digest(part) == weights_digest(ensemble.constituents[1])


def test_the_digest_knows_every_weight_and_its_place():
    one, other = (EnsembleModel({0: tiny_model(a), 1: tiny_model(b)}) for a, b in ((0, 1), (1, 0)))
    assert weights_digest(one) != weights_digest(other)
    before = weights_digest(one)
    with torch.no_grad():
        one.constituents[1].model.norm.weight[0] += 1
    assert weights_digest(one) != before


@pytest.mark.parametrize(
    "names",
    [[], ["shard-0", "shard-0"], ["../elsewhere"], ["shard-0/../../x"], ["/etc"], [0], "shard-0", None, ["shard-1\n"]],
)
def test_an_index_that_names_other_folders_is_refused(ensemble, tiny, tmp_path, names):
    (tmp_path / INDEX).write_text(json.dumps({"schema": 1, "constituents": names}))
    with pytest.raises(InputError, match="names no constituents as Vestige does"):
        load(ModelSettings(model=str(tmp_path)))


def test_an_ensemble_that_is_not_whole_is_refused(tmp_path):
    (tmp_path / INDEX).write_text(json.dumps({"schema": 1, "constituents": ["shard-0"]}))
    with pytest.raises(InputError, match=r"shard-0 holds no config\.json, so the ensemble in .* is not whole"):
        load(ModelSettings(model=str(tmp_path)))
    (tmp_path / INDEX).write_text(json.dumps({"schema": 2, "constituents": ["shard-0"]}))
    with pytest.raises(InputError, match="made by another version"):
        load(ModelSettings(model=str(tmp_path)))


def test_an_adapter_for_an_ensemble_is_refused(tmp_path):
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    base.mkdir()
    adapter.mkdir()
    (base / INDEX).write_text(json.dumps({"schema": 1, "constituents": ["shard-0"]}))
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    with pytest.raises(InputError, match="an adapter belongs to one model"):
        load(ModelSettings(model=str(adapter)))


def test_models_of_two_shapes_and_no_models_are_refused():
    small = AutoModelForCausalLM.from_config(LlamaConfig(**SIZES, **COMMON))
    with pytest.raises(InputError, match="must have one architecture"):
        EnsembleModel({0: tiny_model(0), 1: small})
    with pytest.raises(InputError, match="at least one model"):
        EnsembleModel({})
