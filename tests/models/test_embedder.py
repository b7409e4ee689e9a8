"""Embeddings are the normalised mean over a text's own tokens, whatever stands beside it in a batch."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from vestige.core.errors import InputError
from vestige.models import embedder as module
from vestige.models.embedder import LONGEST_TOKENS, load_embedder, minilm_folder

pytestmark = pytest.mark.portable

WORDS = ["a", "man", "is", "eating", "food", "the", "market", "fell"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert")
    vocabulary = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=words, **names).save_pretrained(path)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).eval().save_pretrained(path)
    return path


@pytest.fixture
def found(folder):
    return load_embedder(str(folder), device="cpu")


def test_an_embedding_is_the_normalised_mean_over_its_tokens(found):
    ids = torch.tensor([[2, *(4 + WORDS.index(w) for w in ("a", "man", "is", "eating")), 3]])
    with torch.inference_mode():
        hidden = found.model(input_ids=ids).last_hidden_state[0]
    mean = hidden.mean(0).numpy()
    (vector,) = found.embed(["a man is eating"])
    np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)


def test_neighbours_change_no_more_than_rounding_and_the_order_is_kept(found):
    texts = ["a man", "the market fell " * 30, "", "food", "a man is eating food"] * 3
    together = found.embed(texts)
    assert together.dtype == np.float32
    assert together.shape == (15, 16)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(found.embed([text])[0], vector, atol=1e-6)
    assert found.embed([]).shape == (0, 16)


def test_a_text_is_cut_where_sentence_transformers_cuts_it(found):
    long = "food " * (LONGEST_TOKENS - 2)
    np.testing.assert_array_equal(found.embed([long])[0], found.embed([long + "market fell"])[0])
    assert (found.embed([long])[0] != found.embed([long[5:]])[0]).any()


def test_where_the_model_is_nowhere_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="vestige models get minilm"):
        load_embedder()


@pytest.mark.skipif(minilm_folder() is None, reason="all-MiniLM-L6-v2 is not on this machine")
def test_minilm_knows_a_paraphrase():
    found = load_embedder(device="cpu")
    a, b, c = found.embed(["A man is eating food.", "A man eats food.", "The stock market fell."])
    # As sentence-transformers has it for these weights: 0.97 and -0.04.
    assert a @ b == pytest.approx(0.968, abs=2e-3)
    assert a @ c == pytest.approx(-0.036, abs=2e-3)


def test_a_text_without_tokens_has_an_embedding_of_length_one(found):
    # A tokeniser that adds no signs of its own leaves an empty text without a token.
    found.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A")
    empty, again, word = found.embed(["", "", "man"])
    assert np.linalg.norm(empty) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(empty, again, atol=1e-6)
    np.testing.assert_allclose(found.embed(["man"])[0], word, atol=1e-6)
