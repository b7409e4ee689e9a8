"""How fast questions with options are evaluated beside one pass for each measurement, as people do it today.

    python -m benchmarks.scoring --json [--rounds 5] [--only tiny smol]

Of each item: the probability of its answer, the rank of each of its tokens, a greedy reply of 24 tokens with its
ROUGE-1 recall, and the log-probabilities of four options, of which the answer is one. Ours are the evaluations `qa` and
`choices`, collected together as `vestige evaluate` does it, and their scores. The peer's four passes are written in the
manner of open-unlearning and lm-evaluation-harness (`benchmarks/peers/evaluation.py`). Both begin with the same texts
and the same tokeniser; both take one thread, in turn in one process, and a first round is dropped.

Ratios are of processor seconds, peer over ours, of the medians, with the least and the largest of the rounds. `equal`
says that losses and options' log-probabilities are at most `tolerance` apart (nats), replies, ROUGE and picks the same,
and ranks the same but for near-ties: no rank is off by more tokens than have a logit within `tolerance` of its own
token's, and 99 % are alike. Random weights put hundreds of logits into every tenth, so that a token has neighbours
which rounding passes (of 328 ranks of the tiny shape two are off by one); a rank that is off by anything else is wrong,
and one that is counted from another number would be off at most places. Ours in bfloat16 is information: what of it
agrees is in the line.
"""

import copy
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from benchmarks import options
from benchmarks.peers import evaluation as peer
from benchmarks.workload import SHAPES, in_turn, model_of, ratios
from vestige.core.items import Item
from vestige.core.seeds import generator
from vestige.core.text import Fields
from vestige.data.mcq import Choice
from vestige.evals.base import collected
from vestige.evals.choices import ChoicesSettings
from vestige.evals.qa import QASettings
from vestige.models.load import LoadedModel

TOLERANCE = 1e-4
NEW_TOKENS = 24
N_OPTIONS = 4
N_ITEMS = {"tiny": 32, "smol": 4}
ROUNDS = {"tiny": 5, "smol": 3}
_SPECIAL = ("<bos>", "<eos>", "Question:", "Answer:")


@dataclass(frozen=True)
class Case:
    """A shape with its items."""

    shape: str
    items: tuple[Item, ...]

    def subject(self, model: PreTrainedModel) -> LoadedModel:
        """The model with a tokeniser of one token a word."""
        vocabulary = [*_SPECIAL, *(f"w{n}" for n in range(len(_SPECIAL), SHAPES[self.shape]["vocab_size"]))]
        words = Tokenizer(WordLevel({word: n for n, word in enumerate(vocabulary)}, unk_token="<bos>"))
        words.pre_tokenizer = WhitespaceSplit()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<bos>", eos_token="<eos>")
        return LoadedModel(model.eval(), tokenizer, self.shape, "")


def case_of(shape: str) -> Case:
    """Questions of some 60 words and options of some 10, lognormal."""
    draw = generator(0, "scoring benchmark", shape)
    lengths = np.clip(draw.lognormal(np.log(60), 0.25, N_ITEMS[shape]), 30, 110).astype(int)

    def words(n: int) -> str:
        return " ".join(f"w{t}" for t in draw.integers(len(_SPECIAL), SHAPES[shape]["vocab_size"], n))

    def item(n: int) -> Item:
        question, *texts = (words(k) for k in (n, *_short(draw)))
        return Item(question, texts[0], perturbed=tuple(texts[1:]))

    return Case(shape, tuple(item(int(n)) for n in lengths))


def _short(draw: np.random.Generator) -> list[int]:
    return [int(n) for n in np.clip(draw.lognormal(np.log(10), 0.3, N_OPTIONS), 4, 24)]


def run_ours(case: Case, subject: LoadedModel) -> list[peer.Measured]:
    """Both evaluations from one reading, and their scores."""
    asking = QASettings(max_new_tokens=NEW_TOKENS)
    options = ChoicesSettings(options=N_OPTIONS, letters=False, max_new_tokens=NEW_TOKENS)
    asked = list(options.build_questions(case.items, ()).values())
    parts = [asking.to_read(subject, case.items), options.to_read(subject, asked)]
    found = []
    for answered, chosen in zip(*collected(subject, parts), strict=True):
        values = QASettings.score(answered), ChoicesSettings.score(chosen)
        assert "option_text_sum/accuracy" in values[1]
        losses = [*answered["logp"], answered["end_logp"]]
        ranks = tuple(round(rank) for rank in answered["ranks"])
        sums = tuple(sum(text["logp"]) for text in chosen["texts"])
        loss = -sum(losses) / len(losses)
        found.append(peer.Measured(loss, ranks, answered["reply"], values[0]["rouge1_recall"], sums))
    return found


def run_peer(case: Case, subject: LoadedModel) -> list[peer.Measured]:
    """The same from one pass each."""
    options = ChoicesSettings(options=N_OPTIONS)
    asked = options.build_questions(case.items, ())
    questions = []
    for item in case.items:
        answer = subject.prompter.encode(item.question, item.answer)
        choice = asked[item.id]
        assert isinstance(choice, Choice)
        texts = [subject.prompter.encode(item.question, text).answer_ids for text in choice.options]
        prompt, end = answer.ids[: answer.start], answer.end + 1
        questions.append(peer.Question(prompt, answer.ids[answer.start : end], tuple(texts), item.answer))
    return peer.measure(subject.model, subject.tokenizer, questions, max_new_tokens=NEW_TOKENS)


ARMS = {"ours float32": run_ours, "peer float32": run_peer, "ours bfloat16": run_ours}


def compared(case: Case, rounds: int) -> list[Fields]:
    """The lines of one case."""
    model = model_of(case.shape)
    narrow = copy.deepcopy(model).bfloat16()
    subjects = {name: case.subject(narrow if "bfloat16" in name else model) for name in ARMS}
    seconds: dict[str, list[float]] = {name: [] for name in ARMS}
    found: dict[str, list[peer.Measured]] = {}

    def timed(name: str) -> tuple[float, list[peer.Measured]]:
        start = time.process_time()
        measured = ARMS[name](case, subjects[name])
        return time.process_time() - start, measured

    for name, (taken, measured) in in_turn({name: partial(timed, name) for name in ARMS}, rounds):
        seconds[name].append(taken)
        found[name] = measured
    ties = near_ties(case, subjects["peer float32"])
    lines = []
    for name in ("ours float32", "ours bfloat16"):
        apart = _apart(found[name], found["peer float32"], ties)
        lines.append(
            {
                "bench": "scoring",
                "case": f"{case.shape}, n = {len(case.items)}, {name.removeprefix('ours ')}",
                "peer": "one pass each, float32",
                **ratios(seconds[name], seconds["peer float32"]),
                **apart,
                "tolerance": TOLERANCE,
                "items_per_second": round(len(case.items) / statistics.median(seconds[name]), 2),
                "way": subjects[name].way,
            }
        )
    return lines


@torch.inference_mode()
def near_ties(case: Case, subject: LoadedModel) -> list[int]:
    """For each token of each answer how many others have a logit within the tolerance of its own: one pass an item."""
    found = []
    for item in case.items:
        code = subject.prompter.encode(item.question, item.answer)
        logits = subject.model(torch.tensor([code.ids])).logits[0, code.start - 1 : code.stop - 1]
        own = logits.gather(-1, torch.tensor(code.answer_ids)[:, None])
        found += (((logits - own).abs() <= TOLERANCE).sum(-1) - 1).tolist()
    return found


def _apart(ours: Sequence[peer.Measured], theirs: Sequence[peer.Measured], ties: Sequence[int]) -> Fields:
    """How far two sets of results are from each other; `ties` are those of all ranks, in order."""
    pairs = list(zip(ours, theirs, strict=True))
    nats = max(
        max(abs(a.loss - b.loss), *(abs(x - y) for x, y in zip(a.options, b.options, strict=True))) for a, b in pairs
    )
    ranks = [(x, y) for a, b in pairs for x, y in zip(a.ranks, b.ranks, strict=True)]
    alike = sum(x == y for x, y in ranks) / len(ranks)
    off = max(abs(x - y) for x, y in ranks)
    explained = all(abs(x - y) <= n for (x, y), n in zip(ranks, ties, strict=True))
    same = sum((a.reply, a.rouge1_recall) == (b.reply, b.rouge1_recall) for a, b in pairs) / len(pairs)
    picks = sum(np.argmax(a.options) == np.argmax(b.options) for a, b in pairs) / len(pairs)
    equal = nats <= TOLERANCE and explained and alike >= 0.99 and same == picks == 1
    return {
        "equal": bool(equal),
        "nats_apart": float(f"{nats:.2g}"),
        "ranks_alike": round(alike, 3),
        "ranks_off": off,
        "replies_alike": round(same, 3),
        "picks_alike": round(picks, 3),
    }


def main() -> None:
    """Print the cases."""
    parser = options(__doc__, as_json=True)
    parser.add_argument("--rounds", type=int, help="5 for tiny, 3 for smol unless given")
    parser.add_argument("--only", nargs="*", choices=list(N_ITEMS), default=list(N_ITEMS), metavar="SHAPE")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for shape in asked.only:
        for line in compared(case_of(shape), asked.rounds or ROUNDS[shape]):
            if asked.json:
                print(json.dumps(line), flush=True)
            else:
                print(
                    f"{line['case']}: {line['ratio']} x {line['peer']} [{line['low']}, {line['high']}], equal: "
                    f"{line['equal']}, {line['items_per_second']} items/s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
