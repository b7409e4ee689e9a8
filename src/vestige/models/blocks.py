"""The decoder's blocks and its embedding, found by structure and not by a family's names.

Axes: B rows, T positions, D hidden width, V vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vestige.core.errors import InputError
from vestige.core.text import one_line

# The last linear layer of a block's MLP: Llama, Mistral, Qwen, Gemma, Phi-3; Phi; GPT-2.
_OUTPUT_PROJECTIONS = ("mlp.down_proj", "mlp.fc2", "mlp.c_proj")


def blocks(model: PreTrainedModel) -> nn.ModuleList:
    """Return the list of the decoder's blocks: the only list in the model with the config's length.

    Raises:
        InputError: There is no such list, or more than one.
    """
    n = model.config.get_text_config().num_hidden_layers
    # Families have different names for their list. Its length is in every config.
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == n]
    if len(lists) != 1:
        raise InputError(
            f"{type(model).__name__} has {len(lists)} lists of {n} blocks where one was expected, so its layers are "
            "ambiguous. Choose a method that reads no activations"
        )
    return lists[0]


def output_projection(block: nn.Module) -> str:
    """The name, within a block, of the product that its MLP ends with."""
    names = {name for name, _ in block.named_modules()}
    endings: Sequence[str] = [n for n in _OUTPUT_PROJECTIONS if n in names]
    if not endings:
        linear = sorted(name for name, m in block.named_modules() if isinstance(m, nn.Linear))
        raise InputError(
            f"a {type(block).__name__} has none of {', '.join(_OUTPUT_PROJECTIONS)}. Name the modules to train with "
            f"the method's setting parameters, out of {', '.join(linear)}"
        )
    return endings[0]


class _BlockReached(Exception):
    """The last block that is read has been computed. Later blocks are not needed."""


def block_output(model: PreTrainedModel, ids: Int[Tensor, "B T"], layer: int) -> Float[Tensor, "B T D"]:
    """The output of block `layer`, in float32. No block above it is computed."""
    return hidden_states(_output(model, ids, layer)).float()


def hidden_states(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The hidden states that a block gives, which some families put into a tuple."""
    if isinstance(output, torch.Tensor):
        return output
    return output[0]


def gives_hidden_states_alone(model: PreTrainedModel, ids: Int[Tensor, "B T"]) -> bool:
    """Whether the first block gives its hidden states and nothing more, so that a block which passes on can are in."""
    return isinstance(_output(model, ids, 0), torch.Tensor)


def continued_from(
    model: PreTrainedModel, ids: Int[Tensor, "B T"], entering: Float[Tensor, "B T D"], *, start: int, layer: int
) -> Float[Tensor, "B T D"]:
    """The output of block `layer` where `entering` goes into block `start`. The blocks below it are not computed."""
    every = blocks(model)
    with _passed_on(every[:start], every[start], entering):
        return block_output(model, ids, layer)


def read_out(model: PreTrainedModel, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
    """Return the logits of the model's last norm and head for `hidden`: the logit lens.

    Raises:
        InputError: A block returns more than hidden states, so that no other block can replace it.
    """
    every = blocks(model)
    # One token per row is enough: all rows use the first position.
    ids = torch.zeros(len(hidden), 1, dtype=torch.long, device=hidden.device)
    if not gives_hidden_states_alone(model, ids[:1]):
        raise InputError(f"the blocks of {type(model).__name__} cannot be left out one by one. Leave `inside` out")
    with _passed_on(every, every[0], hidden[:, None]):
        logits: Tensor = model(input_ids=ids, use_cache=False).logits[:, 0]
    return logits


@contextmanager
def _passed_on(skipped: Iterable[nn.Module], entered: nn.Module, entering: Tensor) -> Iterator[None]:
    """Inside the context the blocks `skipped` are identities, and `entering` is the input of `entered`."""
    with ExitStack() as undo:
        for block in skipped:
            # They stay in the list, since a model's loop reads their attributes, but they do nothing.
            block.__dict__["forward"] = _pass_on
            undo.callback(block.__dict__.pop, "forward")
        hook = entered.register_forward_pre_hook(lambda _, inputs: (entering, *inputs[1:]))
        undo.callback(hook.remove)
        yield


def _pass_on(hidden_states: Tensor, *_: object, **__: object) -> Tensor:
    return hidden_states


def _output(model: PreTrainedModel, ids: Int[Tensor, "B T"], layer: int) -> Tensor | tuple[Tensor, ...]:
    with outputs_kept(model, [layer], stops=True) as outputs:
        # 1 is the minimum: 0 would keep the logits of all positions.
        model(input_ids=ids, use_cache=False, logits_to_keep=1)
    assert outputs, "the model ran without its own block"
    return outputs[layer]


@contextmanager
def outputs_kept(
    model: PreTrainedModel, layers: Sequence[int], *, stops: bool
) -> Iterator[dict[int, Tensor | tuple[Tensor, ...]]]:
    """A context in which the outputs of the blocks `layers` fill the dictionary while the model runs.

    With `stops` the model runs only up to the last of these blocks.
    """
    outputs: dict[int, Tensor | tuple[Tensor, ...]] = {}

    def keep(layer: int, output: Tensor | tuple[Tensor, ...]) -> None:
        outputs[layer] = output
        if stops and layer == layers[-1]:
            raise _BlockReached

    if layers:
        every = blocks(model)
    else:
        every = nn.ModuleList()
    with ExitStack() as hooks, suppress(_BlockReached):
        for layer in layers:
            handle = every[layer].register_forward_hook(lambda _, __, out, layer=layer: keep(layer, out))
            hooks.callback(handle.remove)
        yield outputs


@torch.no_grad()
def embedding_table(model: PreTrainedModel) -> Float[Tensor, "V D"]:
    """Return the vector of each token id as the model embeds it, including its scaling.

    A gradient with respect to these vectors, times this table, is the gradient with respect to one-hot tokens.

    Raises:
        InputError: The model names no matrix of embeddings.
    """
    try:
        embedding = model.get_input_embeddings()
    except NotImplementedError:
        embedding = None
    if not isinstance(embedding, nn.Embedding):
        raise InputError(
            f"{type(model).__name__} has no matrix of input embeddings that it names, so no prompt can be searched for "
            "in it. Take a model whose `get_input_embeddings` gives an nn.Embedding"
        )
    if type(embedding) is nn.Embedding and embedding.max_norm is None:
        # The weight itself and not a copy.
        return embedding.weight.detach()
    n_rows = len(embedding.weight)
    table: Tensor = embedding(torch.arange(n_rows, device=embedding.weight.device))
    return table


def check_target(tokenizer: PreTrainedTokenizerBase, text: str, ids: Sequence[int]) -> None:
    """Reject a target that is empty, or whose ids decode to another text."""
    if not text or not ids:
        raise InputError(f"the target {one_line(text)!r} has no tokens, so there is nothing to search for. Give a text")
    said = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    if said != text:
        raise InputError(
            f"the tokeniser decodes the target {one_line(text)!r} as {one_line(str(said))!r}, so that a prompt which "
            "reaches its tokens would not make the model say it. Give the decoded text as the target"
        )
