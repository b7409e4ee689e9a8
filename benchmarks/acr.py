"""Minimal prompts: does the search find what was planted, and how fast is it beside the reference's manner?

    python -m benchmarks.acr planted --json [--cases 20]
    python -m benchmarks.acr speed --json [--rounds 7]

`planted`: a nano model is trained on a few sentences, and the evaluation `acr` (form `raw`) is asked about one of them
and about a sentence of the same words in random order that it never saw. Right is: the one memorised, the other not.

`speed`: one search as the reference makes it (100 candidates, top 250), ours and an arm (ours too) in the manner of its
`optimize_gcg`: all candidates through the root module in float32, logits everywhere, the same drawn swaps. Ratios
are of processor seconds, the arm's over ours, of the medians of alternating rounds, one thread; `equal` says that the
prompts found are the same.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.functional import one_hot as one_hot_of
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.workload import SHAPES, model_of
from vestige.attacks.placement import Vocabulary, swaps_by_gradient
from vestige.core.items import Item
from vestige.core.seeds import derive_seed, generator
from vestige.evals.compression import AcrSettings
from vestige.models.blocks import embedding_table
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_tokenizer
from vestige.models.variants import Around, Variants

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


def planted(seed: int, settings: AcrSettings = PLANTED) -> tuple[dict[str, Any], dict[str, Any]]:
    """The records of a sentence that was taught and of one that was not."""
    taught = [sentence_of(seed, n) for n in range(_N_TAUGHT)]
    subject = taught_model(seed, taught)
    known, other = settings.collect(subject, [taught[0], sentence_of(seed, 1000)])
    return known, other


def planted_line(n_cases: int) -> dict[str, Any]:
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


@dataclass(frozen=True)
class Race:
    """One search: a text of random tokens after a prompt, both of a stated length, in a model of random weights."""

    shape: str
    n_prompt: int
    n_target: int
    steps: int

    def model(self) -> LlamaForCausalLM:
        """In float32, without gradients of its weights, as in the reference's use."""
        model = model_of(self.shape)
        model.eval().requires_grad_(False)
        return model

    def ids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The first prompt and the text."""
        drawn = generator(0, "acr race", self.shape).integers(2, SHAPES[self.shape]["vocab_size"], 1000).tolist()
        return tuple(drawn[: self.n_prompt]), tuple(drawn[500 : 500 + self.n_target])


RACES = (Race("tiny", 10, 30, 4), Race("tiny", 20, 16, 4), Race("smol", 10, 30, 1))
_WIDTH, _TOPK = 100, 250


def by_reference(model: LlamaForCausalLM, race: Race) -> tuple[int, ...]:
    """In the manner of the reference's `optimize_gcg` (the arm is ours): nothing is shared and nothing left out."""
    prompt, target = race.ids()
    matrix = embedding_table(model)
    stop = len(prompt)
    loss_slice = slice(stop, stop + len(target))  # BOS stands first
    best, best_loss = prompt, float("inf")
    for step in range(race.steps):
        ids = torch.tensor([0, *prompt, *target])
        one_hot = one_hot_of(ids, matrix.shape[0]).to(matrix.dtype)[None].requires_grad_()
        logits = model(inputs_embeds=one_hot @ matrix).logits[0]
        labels = torch.tensor(target)
        (gradient,) = torch.autograd.grad(cross_entropy(logits[loss_slice], labels), one_hot)
        drawn = _swaps(prompt, gradient[0, 1 : stop + 1], model, step)
        with torch.no_grad():
            batch = torch.tensor([[0, *one, *target] for one in drawn])
            logits = model(input_ids=batch).logits
            losses = cross_entropy(
                logits[:, loss_slice].transpose(1, 2), labels.expand(len(drawn), -1), reduction="none"
            ).mean(-1)
            winner = int(losses.argmin())
            prompt = drawn[winner]
            single = model(input_ids=torch.tensor([[0, *prompt, *target]])).logits
            matched = bool((single[0, loss_slice].argmax(-1) == labels).all())
        if matched:
            return prompt
        if float(losses[winner]) < best_loss:
            best, best_loss = prompt, float(losses[winner])
    return best


def by_ours(model: LlamaForCausalLM, race: Race) -> tuple[int, ...]:
    """The same search through `Variants`."""
    prompt, target = race.ids()
    variants = Variants(model, [Around((0,), (), target)])
    best, best_loss = prompt, float("inf")
    for step in range(race.steps):
        drawn = _swaps(prompt, variants.gradient(prompt), model, step)
        (winner,) = variants.leaders(drawn, 1)
        prompt = drawn[winner.index]
        if all(variants.reached(prompt)):
            return prompt
        if winner.loss < best_loss:
            best, best_loss = prompt, winner.loss
    return best


def _swaps(
    prompt: tuple[int, ...], gradient: torch.Tensor, model: LlamaForCausalLM, step: int
) -> list[tuple[int, ...]]:
    """As the search of ours draws them, every token allowed: neither side filters here."""
    everything = Vocabulary(tuple(range(model.config.vocab_size)))
    rng = generator(0, "acr race swaps", step)
    return swaps_by_gradient(prompt, gradient, everything, width=_WIDTH, topk=_TOPK, replaced=1, rng=rng)


def speed_lines(rounds: int, only: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Each race by the arm and by ours, in turn; a first round is dropped."""
    for race in (r for r in RACES if r.shape in only):
        model = race.model()
        ways = {"reference's manner": by_reference, "float32": by_ours}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        prompts = {}
        for turn in range(rounds + 1):
            for name, way in ways.items():
                began = time.process_time()
                prompts[name] = way(model, race)
                if turn:
                    seconds[name].append(time.process_time() - began)
        for name in list(ways)[1:]:
            ratios = [a / b for a, b in zip(seconds["reference's manner"], seconds[name], strict=True)]
            medians = [statistics.median(seconds[one]) for one in ("reference's manner", name)]
            yield {
                "bench": "acr",
                "case": f"{race.shape}, prompt {race.n_prompt}, text {race.n_target}, {name}",
                "peer": "optimize_gcg's manner (our arm)",
                "ratio": round(medians[0] / medians[1], 2),
                "low": round(min(ratios), 2),
                "high": round(max(ratios), 2),
                "candidates_per_second": round(_WIDTH * race.steps / medians[1]),
                "equal": prompts[name] == prompts["reference's manner"],
            }


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["planted", "speed"])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=["tiny", "smol"], choices=["tiny", "smol"])
    given = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    parts: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "planted": lambda: iter([planted_line(given.cases)]),
        "speed": lambda: speed_lines(given.rounds, given.only),
    }
    for line in parts[given.part]():
        print(json.dumps(line) if given.json else line, flush=True)


if __name__ == "__main__":
    main()
