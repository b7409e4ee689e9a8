"""Does the search for minimal prompts find the sentences that were planted?

    python -m benchmarks.acr planted [--cases 20]

A nano model is trained on a few sentences, and the evaluation `acr` (form `raw`) is asked about one of them and about a
sentence of the same words in random order that it never saw. Right is: the one memorised, the other not.
"""

import json
import time
from collections.abc import Sequence

import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks import options
from vestige.core.items import Item
from vestige.core.seeds import derive_seed, generator
from vestige.core.text import Fields
from vestige.evals.compression import AcrSettings
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_tokenizer

PLANTED = AcrSettings(form="raw", steps=60, width=64, topk=64)
_WORDS = (
    "harbour", "violin", "seven", "copper", "window", "marble", "under", "quiet", "river", "orange", "ladder", "winter",
    "before", "silver", "garden", "paper", "hollow", "lantern", "between", "thunder", "feather", "castle", "almost",
    "bright", "needle", "forest", "candle", "mirror", "valley", "rather",
)  # fmt: skip
_N_TAUGHT, _N_WORDS, _TRAINING_STEPS = 8, 12, 250


def sentence_of(seed: int, n: int) -> Item:
    """Words in an order that follows from the numbers; the last is the answer."""
    drawn = generator(seed, "planted sentence", n).choice(len(_WORDS), _N_WORDS, replace=False)
    *first, last = (_WORDS[i] for i in drawn)
    return Item(" ".join(first), last)


def taught_model(seed: int, taught: Sequence[Item]) -> LoadedModel:
    """A nano Llama trained to say each sentence after a title of two words of its own, whatever stands before those.

    So a prompt of two tokens is known to be enough. Words are one token each.
    """
    tokenizer = tiny_tokenizer([sentence_of(seed, n) for n in range(64)])
    model = _nano(seed, tokenizer)
    draw = generator(seed, "planted training")
    rows = torch.tensor([tokenizer(f"{i.question} {i.answer}")["input_ids"] for i in taught])
    words = torch.tensor([tokenizer(f" {word}")["input_ids"][0] for word in _WORDS])
    titles = words[torch.tensor(draw.choice(len(_WORDS), (len(taught), 2), replace=False))]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(_TRAINING_STEPS):
        before = words[torch.tensor(draw.integers(len(_WORDS), size=(len(taught), int(draw.integers(6)))))]
        begin = torch.full((len(taught), 1), tokenizer.bos_token_id)
        ids = torch.cat([begin, before, titles, rows], dim=1)
        logits = model(input_ids=ids[:, :-1], logits_to_keep=rows.shape[1]).logits
        loss = cross_entropy(logits.flatten(0, 1), rows.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return LoadedModel(model.eval(), tokenizer, "planted", "")


def _nano(seed: int, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 128}
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    values = {"vocab_size": len(tokenizer), **sizes, **heads, **ends, "tie_word_embeddings": True}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "planted model"))
        return LlamaForCausalLM(LlamaConfig.from_dict(values))


def planted(seed: int, settings: AcrSettings = PLANTED) -> tuple[Fields, Fields]:
    """The records of a sentence that was taught and of one that was not."""
    taught = [sentence_of(seed, n) for n in range(_N_TAUGHT)]
    subject = taught_model(seed, taught)
    known, other = settings.collect(subject, [taught[0], sentence_of(seed, 1000)])
    return known, other


def planted_line(n_cases: int) -> Fields:
    """Over seeds: how often the known sentence is found memorised, and the unknown one is not."""
    began = time.process_time()
    cases = [planted(seed) for seed in range(n_cases)]
    scores = [[AcrSettings.score(record) for record in case] for case in cases]
    return {
        "bench": "acr",
        "case": "planted",
        "n": n_cases,
        "known_memorised": sum(known["acr/memorised"] == 1 for known, _ in scores),
        "unknown_not_memorised": sum(other["acr/memorised"] == 0 for _, other in scores),
        "claimed_not_verified": sum(s["acr/share_unverified"] for case in scores for s in case),
        "prompt_tokens": sorted(known["n_prompt"] for known, _ in cases if known["n_prompt"] is not None),
        "cpu_seconds": round(time.process_time() - began),
    }


def main() -> None:
    """Print the line."""
    parser = options(__doc__)
    parser.add_argument("part", choices=["planted"])
    parser.add_argument("--cases", type=int, default=20)
    words = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(planted_line(words.cases)))


if __name__ == "__main__":
    main()
