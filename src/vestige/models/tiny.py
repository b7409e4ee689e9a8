"""`builtin:tiny`: a Llama-architecture model of 1.7 million parameters, made on the spot from the data and a seed.

`builtin:tiny-deep` has another shape, for questions about two models.

Its tokeniser is a byte-level BPE of at most 2,048 tokens trained on the data's own text, digits apart. It is shared by
all subjects of a run, so that their bits can be compared. The tokeniser has seen the forget set's text, which does not
reveal the answer to any question.
"""

from collections.abc import Iterable
from itertools import chain

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from vestige.core.items import Item
from vestige.core.seeds import derive_seed

TINY_MODELS = ("builtin:tiny", "builtin:tiny-deep")
_DEEP_SHAPE = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 6, "head_dim": 32}
VOCABULARY = 2048
MAX_TOKENS = 256
_SPECIAL = ("<pad>", "<bos>", "<question>", "<answer>", "<eos>")
_CHAT_TEMPLATE = (
    "<bos>{% for m in messages %}{% if m.role == 'user' %}<question>{{ m.content }}{% else %}"
    "<answer>{{ m.content }}<eos>{% endif %}{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"
)


def tiny_tokenizer(items: Iterable[Item]) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokeniser trained on the items' questions, paraphrases and answers, in their order."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\d"), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(_SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = chain.from_iterable((i.question, i.paraphrase or "", i.answer) for i in items)
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        additional_special_tokens=["<question>", "<answer>"],
        chat_template=_CHAT_TEMPLATE,
        model_max_length=MAX_TOKENS,
        clean_up_tokenization_spaces=False,
    )


def tiny_config() -> LlamaConfig:
    """Hidden 192, 3 layers, 4 heads, intermediate 512, tied embeddings: 1.7 million parameters.

    A fourth layer learns the same data no sooner and costs a quarter more (docs/models.md).
    """
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=MAX_TOKENS,
        tie_word_embeddings=True,
        pad_token_id=_SPECIAL.index("<pad>"),
        bos_token_id=_SPECIAL.index("<bos>"),
        eos_token_id=_SPECIAL.index("<eos>"),
    )


def shape_of(model: str) -> LlamaConfig:
    """The shape of a built-in tiny model: `tiny_config`, or 1.5 million parameters in 6 layers of 128."""
    config = tiny_config()
    if model == TINY_MODELS[0]:
        return config
    return LlamaConfig.from_dict({**config.to_dict(), **_DEEP_SHAPE})


def tiny_model(seed: int, model: str = TINY_MODELS[0]) -> LlamaForCausalLM:
    """The untrained model. Its weights depend on the seed and the shape alone."""
    # The global generator is restored, so that making a model changes no later draw.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "tiny"))
        return LlamaForCausalLM(shape_of(model))
