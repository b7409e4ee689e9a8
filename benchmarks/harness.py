"""Whether options are read as lm-evaluation-harness reads them: the same items, log-likelihoods and accuracies.

    python -m benchmarks.harness MODEL QUESTIONS --json [--limit 40] [--form choose]

QUESTIONS is any multiple-choice data that Vestige loads (MMLU, TruthfulQA, WMDP); the prompts are `choices`' with
`rendering=plain`. The form `choose` compares letters after the lettered question (as MMLU is asked), `text` the texts
of the options after the question (as TruthfulQA's MC1 is). The harness is `HFLM.loglikelihood` of lm-eval where it is
installed (`pip install lm_eval`), and its algorithm written anew (`benchmarks/peers/evaluation.py`) in any case.
"""

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Literal

import torch

from benchmarks import options
from benchmarks.peers import evaluation as peer
from vestige.data.loaders import load_items
from vestige.data.mcq import Choice
from vestige.evals.base import LETTERS, choose_prompt, plain_question
from vestige.evals.choices import ChoicesSettings
from vestige.models.load import LoadedModel, ModelSettings, load

Form = Literal["choose", "text"]
PLAIN = {"rendering": "plain", "place": "given", "too_few": "leave_out", "replies": False}
Likelihoods = Callable[[LoadedModel, Sequence[tuple[str, str]]], list[float]]
"""The summed log-probability (nats) of each continuation after its context, both as texts."""


def by_lm_eval(subject: LoadedModel, requests: Sequence[tuple[str, str]]) -> list[float]:
    """As lm-eval's Hugging Face backend says."""
    # Not everybody has it.
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model: Any = HFLM(pretrained=subject.model, tokenizer=subject.tokenizer, batch_size=16)
    asked = [Instance("loglikelihood", {}, arguments, n) for n, arguments in enumerate(requests)]
    return [value for value, _ in model.loglikelihood(asked, disable_tqdm=True)]


def by_its_algorithm(subject: LoadedModel, requests: Sequence[tuple[str, str]]) -> list[float]:
    """As its public code says: context and continuation are tokenised as one, and cut where the context ends."""
    pairs = []
    for context, continuation in requests:
        whole = subject.tokenizer(context + continuation, add_special_tokens=False)["input_ids"]
        n = len(subject.tokenizer(context, add_special_tokens=False)["input_ids"])
        pairs.append((tuple(whole[:n]), tuple(whole[n:])))
    return [value for value, _ in peer.loglikelihoods(subject.model, pairs)]


def harness_ways() -> dict[str, Likelihoods]:
    """The ways that there are here, by name."""
    ways: dict[str, Likelihoods] = {"lm-eval's algorithm": by_its_algorithm}
    if find_spec("lm_eval"):
        return {**ways, "lm-eval": by_lm_eval}
    return ways


def requests_of(asked: Sequence[Choice], form: Form) -> list[list[tuple[str, str]]]:
    """Context and continuation of each option of each question, with the space between before the continuation."""
    if form == "choose":
        prompts = [choose_prompt(c.question, c.options, topic="") for c in asked]
        return [[(p, f" {k}") for k in LETTERS[: len(c.options)]] for p, c in zip(prompts, asked, strict=True)]
    return [[(plain_question(c.question), f" {text.strip()}") for text in c.options] for c in asked]


def compared(subject: LoadedModel, asked: Sequence[Choice], form: Form, way: Likelihoods) -> dict[str, Any]:
    """How far the two are apart, and both accuracies."""
    settings = ChoicesSettings.build({**PLAIN, "texts": form == "text", "letters": form == "choose"})
    records = settings.collect(subject, asked)
    per_question = requests_of(asked, form)
    flat = iter(way(subject, [r for own in per_question for r in own]))
    apart, ours_right, theirs_right = 0.0, 0.0, 0
    metric = "choose/accuracy" if form == "choose" else "option_text_sum/accuracy"
    for record, choice, own in zip(records, asked, per_question, strict=True):
        theirs = [next(flat) for _ in own]
        if form == "choose":
            ours = record["letters"][0]["logp"]
        else:
            ours = [sum(text["logp"]) for text in record["texts"][: len(own)]]
        apart = max(apart, *(abs(a - b) for a, b in zip(ours, theirs, strict=True)))
        ours_right += ChoicesSettings.score(record)[metric]
        theirs_right += theirs.index(max(theirs)) == choice.answer
    n = len(asked)
    return {"n": n, "nats_apart": float(f"{apart:.2g}"), "ours": ours_right / n, "theirs": theirs_right / n}


def main() -> None:
    """Print a line for each way."""
    parser = options(__doc__, as_json=True)
    parser.add_argument("model")
    parser.add_argument("questions")
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--form", choices=["choose", "text"], default="choose")
    given = parser.parse_args()
    torch.set_num_threads(1)
    subject = load(ModelSettings(model=given.model, device="cpu"))
    items = load_items(given.questions, limit=given.limit)
    found = ChoicesSettings.build(PLAIN).build_questions(items, ())
    asked = [c for c in found.values() if isinstance(c, Choice)]
    for name, way in harness_ways().items():
        line = {"bench": "harness", "form": given.form, "peer": name, **compared(subject, asked, given.form, way)}
        print(json.dumps(line) if given.json else line, flush=True)


if __name__ == "__main__":
    main()
