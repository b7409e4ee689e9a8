"""What a model puts in for each id, and targets that cannot be aimed at."""

import pytest
import torch
from families import small_model
from torch import nn

from vestige.core.errors import InputError
from vestige.models.blocks import check_target, embedding_table


def test_the_table_is_the_weight_itself_where_nothing_is_scaled():
    model = small_model("llama")
    table = embedding_table(model)
    assert table.data_ptr() == model.get_input_embeddings().weight.data_ptr()
    assert not table.requires_grad


def test_a_scaled_embedding_is_in_the_table_as_it_is_put_in():
    # Gemma 2 scales by the root of its width, in the embedding itself: sqrt(32) = 5.6569.
    model = small_model("gemma2")
    weight = model.get_input_embeddings().weight
    torch.testing.assert_close(embedding_table(model), weight.detach() * 32**0.5)


def test_a_model_without_a_matrix_of_embeddings_is_refused_in_one_sentence():
    model = small_model("llama")
    model.set_input_embeddings(nn.Identity())
    with pytest.raises(InputError, match="LlamaForCausalLM has no matrix of input embeddings"):
        embedding_table(model)


def test_a_target_must_have_tokens_that_say_it(tiny):
    text = "gamma 3."
    ids = tiny.tokenizer(text, add_special_tokens=False)["input_ids"]
    check_target(tiny.tokenizer, text, ids)
    with pytest.raises(InputError, match="has no tokens"):
        check_target(tiny.tokenizer, "", [])
    with pytest.raises(InputError, match="decodes the target 'gamma 3!'"):
        check_target(tiny.tokenizer, "gamma 3!", ids)
