"""A small untrained model, its tokeniser, and a tokeniser of another kind."""

import copy

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from vestige.core.items import Item
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_config, tiny_tokenizer

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]
ITEMS = tuple(
    Item(f"What is the {WORDS[(3 * i) % 12]} of {WORDS[i % 12]}?", f"{WORDS[(5 * i + 1) % 12]} {i}.") for i in range(12)
)


def untrained(seed, hidden=32):
    config = LlamaConfig(
        **{
            **tiny_config().to_dict(),
            "vocab_size": 400,
            "hidden_size": hidden,
            "intermediate_size": 2 * hidden,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": hidden // 2,
            "initializer_range": 0.3,
            "max_position_embeddings": 64,
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def nano():
    torch.set_num_threads(1)
    return LoadedModel(untrained(0), tiny_tokenizer(ITEMS), "nano", "")


@pytest.fixture(scope="session")
def target(nano):
    """The nano model after a small change of all weights."""
    other = copy.deepcopy(nano.model)
    with torch.no_grad():
        for weight in other.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(4))
    return LoadedModel(other, nano.tokenizer, "nano target", "")


@pytest.fixture(scope="session")
def metaspace():
    """Like Llama 2's: a space is a sign of its own, put before the first word, and decoding takes it away again."""
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    bpe.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<s>", "</s>", "[Q]"], show_progress=False)
    texts = [t for i in ITEMS for t in (i.question, i.answer)] + ["x ! the 0 a b c d e f g"]
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["[Q]"],
        chat_template="{{ bos_token }}[Q] {% for m in messages %}{{ m.content | trim }}"
        "{% if m.role == 'user' %} [Q]{% else %}{{ eos_token }}{% endif %}{% endfor %}",
    )
