"""Guessers that see options, or questions and what the retain set says, and never a forget item's answer.

Each gives every option of every question a score; the greatest is its pick. They learn from retain items alone.
Axes: N questions, K options, D features.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize

from vestige.core.items import Item
from vestige.data.mcq import Choice
from vestige.data.soundness.texts import Alike, Rarity, rarity, words
from vestige.metrics.answers import normalised

BUCKETS = 512
"""Character trigrams are counted by hash: few enough to learn from some hundred options."""
RIDGE = 1.0
NEIGHBOURS = 5

Scores = Float[np.ndarray, " K"]
Guesser = Callable[[Choice], Scores]


def longest(choice: Choice) -> Scores:
    """The option with the most characters."""
    return np.array([float(len(o)) for o in choice.options])


def shortest(choice: Choice) -> Scores:
    """The option with the fewest characters."""
    return -longest(choice)


def like_the_question(choice: Choice) -> Scores:
    """The option that shares most with its question: the share of its character tetragrams that stand there."""
    asked = _grams(choice.question, 4)
    return np.array([_share(_grams(o, 4), asked) for o in choice.options])


def _share(own: Counter[str], other: Counter[str]) -> float:
    return sum(own[g] for g in own if g in other) / max(1, own.total())


def _grams(text: str, n: int) -> Counter[str]:
    padded = f" {normalised(text)} "
    return Counter(padded[k : k + n] for k in range(max(1, len(padded) - n + 1)))


def frequent_answer(retain: Sequence[Item]) -> Guesser:
    """The option that is the answer of most retain items of the same kind (group and attribute)."""
    kinds: dict[tuple[str | None, str | None], Counter[str]] = {}
    for item in retain:
        kinds.setdefault((item.group, item.attribute), Counter())[normalised(item.answer)] += 1

    def guess(choice: Choice) -> Scores:
        counts = kinds.get((choice.group, choice.attribute), Counter())
        return np.array([float(counts[normalised(o)]) for o in choice.options])

    return guess


def options_only(taught: Sequence[Choice]) -> Guesser:
    """A conditional logit over each option's looks beside the others', fitted to the retain questions' options.

    Looks: length, words, digits, capitals, punctuation, what is shared with the other options, hashed trigrams.
    """
    features = [_features(c.options) for c in taught]
    rows = np.concatenate(features)
    scale = np.maximum(rows.std(axis=0), 1e-6)
    scale[-BUCKETS:] = np.maximum(scale[-BUCKETS:], 0.05)
    weights = _conditional_logit(rows / scale, [len(f) for f in features], [c.answer for c in taught])

    def guess(choice: Choice) -> Scores:
        scores: Scores = _features(choice.options) / scale @ weights
        return scores

    return guess


def _features(options: Sequence[str]) -> Float[np.ndarray, "K D"]:
    grams = [_grams(o, 3) for o in options]
    rows = []
    for n, (text, own) in enumerate(zip(options, grams, strict=True)):
        others = [_share(own, g) for k, g in enumerate(grams) if k != n]
        looks = [len(text), len(text.split()), sum(c.isdigit() for c in text), sum(c.isupper() for c in text)]
        looks += [sum(not c.isalnum() and not c.isspace() for c in text)]
        hashed = np.zeros(BUCKETS)
        for gram, count in own.items():
            hashed[zlib.crc32(gram.encode("utf-8", "surrogatepass")) % BUCKETS] += count
        rows.append([*np.log1p(looks), max(others), min(others), *hashed / np.linalg.norm(hashed)])
    table = np.array(rows)
    # Only what differs between the options of one question says which is right.
    beside = table - table.mean(axis=0)
    first = np.argsort(np.argsort(table[:, 0])) / max(1, len(options) - 1) - 0.5
    return np.column_stack([first, beside])


def _conditional_logit(
    rows: Float[np.ndarray, "M D"], sizes: Sequence[int], right: Sequence[int]
) -> Float[np.ndarray, " D"]:
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    gold = starts + np.asarray(right)

    def loss(weights: Float[np.ndarray, " D"]) -> tuple[float, Float[np.ndarray, " D"]]:
        scores = rows @ weights
        scores = scores - np.repeat(np.maximum.reduceat(scores, starts), sizes)
        total = np.add.reduceat(np.exp(scores), starts)
        p = np.exp(scores) / np.repeat(total, sizes)
        value = float(np.log(total).sum() - scores[gold].sum() + RIDGE / 2 * weights @ weights)
        return value, rows.T @ p - rows[gold].sum(axis=0) + RIDGE * weights

    found = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    weights: Float[np.ndarray, " D"] = found.x
    return weights


def nearest_question(retain: Sequence[Item], rare: Rarity) -> Guesser:
    """The option that is most like the answers of the retain questions most like its own (5 of them, by likeness)."""
    alike, answers = Alike([i.question for i in retain], rare), [frozenset(words(i.answer)) for i in retain]

    def guess(choice: Choice) -> Scores:
        row = next(alike.rows([choice.question]))
        nearest = np.argsort(-row, kind="stable")[:NEIGHBOURS]
        return np.array(
            [
                sum(float(row[n]) ** 3 * _jaccard(frozenset(words(o)), answers[n]) for n in nearest)
                for o in choice.options
            ]
        )

    return guess


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    return len(first & second) / max(1, len(first | second))


@dataclass(frozen=True)
class _Together:
    """How often words of questions and words of answers stand in one retain item."""

    pairs: Counter[tuple[str, str]]
    questions: Rarity
    answers: Rarity

    def lift(self, asked: str, answered: str) -> float:
        """Log of how often the two stand together over how often they would if one had nothing to do with the other.

        One of either is added, so that rare words say little.
        """
        expected = self.questions.counts.get(asked, 0) * self.answers.counts.get(answered, 0) / self.questions.n
        return float(np.log((self.pairs[asked, answered] + 1) / (expected + 1)))


def question_words(retain: Sequence[Item]) -> Guesser:
    """The option whose words go with those of the question in retain items: what a shared template gives away."""
    pairs: Counter[tuple[str, str]] = Counter()
    for item in retain:
        answered = set(words(item.answer))
        pairs.update((a, b) for a in set(words(item.question)) for b in answered)
    known = _Together(pairs, rarity([i.question for i in retain]), rarity([i.answer for i in retain]))

    def guess(choice: Choice) -> Scores:
        asked = sorted(set(words(choice.question)))
        scores = [
            sum(known.lift(a, b) for a in asked for b in sorted(set(words(o)))) / max(1, len(set(words(o))))
            for o in choice.options
        ]
        return np.array(scores)

    return guess


def places(choices: Sequence[Choice]) -> list[Int[np.ndarray, " K"]]:
    """How often each place is right, for each number of options."""
    sizes = sorted({len(c.options) for c in choices})
    return [np.bincount([c.answer for c in choices if len(c.options) == k], minlength=k) for k in sizes]
