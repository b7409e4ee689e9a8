"""What a model puts in for each token id, and whether a target can be aimed at at all.

Axes: V vocabulary, D hidden width.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vestige.core.errors import InputError
from vestige.core.text import one_line


@torch.no_grad()
def embedding_table(model: PreTrainedModel) -> Float[Tensor, "V D"]:
    """The vector that stands for each token id, as the model's embedding gives it: scaled, where it scales.

    A gradient with respect to these vectors, times this table, is the gradient with respect to one-hot tokens.
    """
    embedding = _input_embeddings(model)
    if type(embedding) is nn.Embedding and embedding.max_norm is None:
        # The weight itself, and no copy of it.
        return embedding.weight.detach()
    n_rows = len(embedding.weight)
    found: Tensor = embedding(torch.arange(n_rows, device=embedding.weight.device))
    return found


def _input_embeddings(model: PreTrainedModel) -> nn.Embedding:
    """The matrix of input embeddings. Raises InputError where the model names none."""
    try:
        found = model.get_input_embeddings()
    except NotImplementedError:
        found = None
    if not isinstance(found, nn.Embedding):
        raise InputError(
            f"{type(model).__name__} has no matrix of input embeddings that it names, so no prompt can be searched for "
            "in it; take a model whose `get_input_embeddings` gives an nn.Embedding"
        )
    return found


def check_target(tokenizer: PreTrainedTokenizerBase, text: str, ids: Sequence[int]) -> None:
    """Refuse a target that is empty, or whose ids do not say its text, so that reaching them would not be saying it."""
    if not text or not ids:
        raise InputError(f"the target {one_line(text)!r} has no tokens, so there is nothing to search for; give a text")
    said = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    if said != text:
        raise InputError(
            f"the tokeniser says the target {one_line(text)!r} as {one_line(str(said))!r}, so that a prompt which "
            "reaches its tokens would not make the model say it; give the target as the tokeniser says it"
        )
