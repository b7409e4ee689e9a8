"""All checks of a data set that need no model, from two splits to their findings.

Guessers see options, or questions and what the retain set says, and never a forget item's answer. Each gives every
option of every question a score; the greatest is its pick. They learn from retain items alone.
Axes: N questions, K options, D features.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize

from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.items import Item, Scope, digest_of
from vestige.core.seeds import generator
from vestige.core.text import one_line
from vestige.data import findings
from vestige.data.corpus import NamedSplits
from vestige.data.findings import (
    ABOVE_CHANCE,
    LEAST_ITEMS,
    LEAST_TAUGHT,
    Alike,
    Check,
    ConstantGuess,
    Outcome,
    Rarity,
    SoundnessSettings,
    above_own_options,
    best_constant,
    by_guesser,
    edges_of,
    picks,
    rarity,
    undecided,
    words,
)
from vestige.data.mcq import Choice, Unasked, choices_of
from vestige.metrics.answers import normalised
from vestige.metrics.information import need_rate_distortion
from vestige.metrics.intervals import wilson

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
    question_grams = _grams(choice.question, 4)
    return np.array([_share(_grams(o, 4), question_grams) for o in choice.options])


def _share(grams: Counter[str], reference: Counter[str]) -> float:
    return sum(grams[g] for g in grams if g in reference) / max(1, grams.total())


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


def options_only(choices: Sequence[Choice]) -> Guesser:
    """A conditional logit over each option's looks beside the others', fitted to the retain questions' options.

    Looks: length, words, digits, capitals, punctuation, what is shared with the other options, hashed trigrams.
    """
    features = [_features(c.options) for c in choices]
    rows = np.concatenate(features)
    scale = np.maximum(rows.std(axis=0), 1e-6)
    scale[-BUCKETS:] = np.maximum(scale[-BUCKETS:], 0.05)
    weights = _conditional_logit(rows / scale, [len(f) for f in features], [c.answer for c in choices])

    def guess(choice: Choice) -> Scores:
        scores: Scores = _features(choice.options) / scale @ weights
        return scores

    return guess


def _features(options: Sequence[str]) -> Float[np.ndarray, "K D"]:
    grams = [_grams(o, 3) for o in options]
    rows = []
    for n, (text, option_grams) in enumerate(zip(options, grams, strict=True)):
        shares = [_share(option_grams, g) for k, g in enumerate(grams) if k != n]
        looks = [len(text), len(text.split()), sum(c.isdigit() for c in text), sum(c.isupper() for c in text)]
        looks += [sum(not c.isalnum() and not c.isspace() for c in text)]
        hashed = np.zeros(BUCKETS)
        for gram, count in option_grams.items():
            hashed[zlib.crc32(gram.encode("utf-8", "surrogatepass")) % BUCKETS] += count
        rows.append([*np.log1p(looks), max(shares), min(shares), *hashed / np.linalg.norm(hashed)])
    table = np.array(rows)
    # Only what differs between the options of one question says which is right.
    centred = table - table.mean(axis=0)
    first = np.argsort(np.argsort(table[:, 0])) / max(1, len(options) - 1) - 0.5
    return np.column_stack([first, centred])


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

    optimum = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    weights: Float[np.ndarray, " D"] = optimum.x
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

    def lift(self, question_word: str, answer_word: str) -> float:
        """Log of how often the two stand together over how often they would if one had nothing to do with the other.

        One of either is added, so that rare words say little.
        """
        expected = (
            self.questions.counts.get(question_word, 0) * self.answers.counts.get(answer_word, 0) / self.questions.n
        )
        return float(np.log((self.pairs[question_word, answer_word] + 1) / (expected + 1)))


def question_words(retain: Sequence[Item]) -> Guesser:
    """The option whose words go with those of the question in retain items: what a shared template gives away."""
    pairs: Counter[tuple[str, str]] = Counter()
    for item in retain:
        answered = set(words(item.answer))
        pairs.update((a, b) for a in set(words(item.question)) for b in answered)
    pairs_seen = _Together(pairs, rarity([i.question for i in retain]), rarity([i.answer for i in retain]))

    def guess(choice: Choice) -> Scores:
        question_terms = sorted(set(words(choice.question)))
        scores = [
            sum(pairs_seen.lift(a, b) for a in question_terms for b in sorted(set(words(o))))
            / max(1, len(set(words(o))))
            for o in choice.options
        ]
        return np.array(scores)

    return guess


def places(choices: Sequence[Choice]) -> list[Int[np.ndarray, " K"]]:
    """How often each place is right, for each number of options."""
    sizes = sorted({len(c.options) for c in choices})
    return [np.bincount([c.answer for c in choices if len(c.options) == k], minlength=k) for k in sizes]


@dataclass(frozen=True)
class Material:
    """A data set as it is checked: both splits, what the graph says, and the questions with options of each split.

    `unasked` says of a forget item without options why it has none. `beside` are forget questions with the true answer
    and some of the alternatives that were given to it as options.
    """

    forget: tuple[Item, ...]
    retain: tuple[Item, ...]
    scopes: Mapping[str, Scope]
    asked: tuple[Choice, ...]
    taught: tuple[Choice, ...]
    unasked: str
    beside: tuple[Choice, ...] = ()

    @property
    def digest(self) -> str:
        """Content id of both splits in their order."""
        return digest_of(self.forget, self.retain)


def material(splits: NamedSplits, settings: SoundnessSettings, *, seed: int) -> Material:
    """What the checks read of the splits; too little of either is refused.

    Wrong options of retain items come from retain items alone, so that no guesser is taught with forget answers.
    """
    forget, retain = splits.splits["forget"], splits.splits.get("retain", ())
    source = f"the forget set {one_line(splits.forget, width=60)!r}"
    if not retain:
        raise InputError(
            f"{source} is the whole data set, so there is nothing that could give it away; name a part of it"
        )
    if len(forget) < LEAST_ITEMS:
        raise InputError(
            f"{source} has {len(forget)} items, of which nothing can be told from chance; name at least {LEAST_ITEMS}"
        )
    drawing = settings.drawing(seed)
    choice_of = choices_of((*forget, *retain), drawing)
    forget_choices = tuple(c for i in forget if isinstance(c := choice_of[i.id], Choice))
    unasked = next((c.reason for i in forget if isinstance(c := choice_of[i.id], Unasked)), "")
    some = list(retain)
    if len(some) > settings.most_taught:
        sample = generator(seed, "taught").choice(len(some), settings.most_taught, replace=False)
        some = [some[n] for n in sorted(sample.tolist())]
    retained_choices = tuple(c for c in choices_of(some, drawing).values() if isinstance(c, Choice))
    beside_alternatives = tuple(
        _beside(item, settings, seed) for item in forget if item.alternatives and item.id not in splits.drawn
    )
    return Material(forget, retain, splits.scopes, forget_choices, retained_choices, unasked, beside_alternatives)


def _beside(item: Item, settings: SoundnessSettings, seed: int) -> Choice:
    """The answer, at a place that is drawn, among alternatives that are drawn."""
    rng = generator(seed, "beside alternatives", item.id)
    order = rng.permutation(len(item.alternatives))[: settings.options - 1].tolist()
    wrong, position = [item.alternatives[n] for n in order], int(rng.integers(0, len(order) + 1))
    options = (*wrong[:position], item.answer, *wrong[position:])
    return Choice(
        item.id,
        item.question,
        options,
        position,
        source="perturbed",
        edge=item.edge,
        group=item.group,
        attribute=item.attribute,
    )


def without_model(
    checked: Material, settings: SoundnessSettings, *, seed: int
) -> tuple[tuple[Check, ...], tuple[str, ...]]:
    """All checks that apply, and in sentences which do not."""
    forget, retain = checked.forget, checked.retain
    rare = rarity([i.question for i in (*forget, *retain)])
    checks = [findings.copied(forget, retain), findings.near_duplicates(forget, retain, settings)]
    left_out = []
    if any(len(words(i.answer)) >= findings.LONG for i in forget):
        checks.append(findings.copied_answers(forget, retain, settings))
    else:
        left_out.append(f"copied answers: no answer has {findings.LONG} words, and shorter ones coincide by chance")
    if checked.scopes:
        checks.append(findings.entailed(forget, checked.scopes))
    else:
        left_out.append("entailed answers: the data has no graph, or only a part of it is used")
    if len(checked.asked) < LEAST_ITEMS:
        why = f"{len(checked.asked)} forget items can be asked with options, where {LEAST_ITEMS} are needed: an item "
        checks.append(undecided("options and questions", f"{why}{checked.unasked or 'has none'}"))
        return tuple(checks), tuple(left_out)
    checks.append(findings.given_away(checked.asked, retain, rare, settings, seed))
    given_choices = [c for c in checked.asked if c.source == "given"]
    if len(given_choices) >= LEAST_ITEMS:
        checks.append(_position(given_choices, len(checked.asked), settings, seed))
    else:
        left_out.append("position of the right option: the data gives no options, and drawn ones are balanced")
    same = _same_options(checked.asked)
    if same:
        checks.append(_labels(same, len(checked.asked), settings, seed))
    else:
        left_out.append(f"balance of labels: no {LEAST_ITEMS} forget questions have the same options")
    return (*checks, *_guessed(checked, rare, settings, seed)), tuple(left_out)


def of_alternatives(checked: Material, settings: SoundnessSettings, *, seed: int) -> tuple[Check, ...]:
    """Whether the true answers can be told from their alternatives by looks, or by what the retain set says.

    Each guesser's pick is tried and its opposite, since a truth that is always the last would hide what a model knows.
    Looks are learned from one half of these questions and tried on the other.
    """
    if not checked.beside:
        return ()
    if len(checked.beside) < LEAST_ITEMS:
        why = f"{len(checked.beside)} forget questions have alternatives, and {LEAST_ITEMS} are needed"
        return (undecided(f"{OF_ALTERNATIVES}looks", why),)
    rare = rarity([i.question for i in (*checked.forget, *checked.retain)])
    guessers = [_Guesser("length", "picking the longest", longest), *_guessers(checked.retain, rare)]
    halves = checked.beside[::2], checked.beside[1::2]
    if min(map(len, halves)) >= LEAST_TAUGHT // 2:
        fitted = [options_only(half) for half in halves]
        learned = {c.item: fitted[1 - n] for n, half in enumerate(halves) for c in half}
        guessers.append(_Guesser("looks", "picking by looks alone", lambda choice: learned[choice.item](choice)))
    return tuple(_either(g, checked.beside, settings, seed) for g in guessers)


def _either(guesser: "_Guesser", choices: Sequence[Choice], settings: SoundnessSettings, seed: int) -> Check:
    """A guesser or its opposite, whichever does better."""
    both = {guesser.said: guesser.guess, f"the opposite of {guesser.said}": lambda choice: -guesser.guess(choice)}
    return _better(f"{OF_ALTERNATIVES}{guesser.name}", both, choices, settings, seed)


def _better(
    name: str, guessers: Mapping[str, Guesser], choices: Sequence[Choice], settings: SoundnessSettings, seed: int
) -> Check:
    """The better of two guessers, by what they do in words; its p-value counts twice."""
    outcomes = {sentence: _outcome(guess, choices, settings, seed) for sentence, guess in guessers.items()}
    sentence, best = min(outcomes.items(), key=lambda pair: pair[1].p)
    return by_guesser(name, sentence, choices, best._replace(p=min(1.0, 2 * best.p)))


OF_ALTERNATIVES = "alternatives: "
"""How the names of checks begin that are about the alternatives to the forget questions."""


def _guessed(checked: Material, rare: Rarity, settings: SoundnessSettings, seed: int) -> list[Check]:
    """The checks by guessers."""
    guessers = _guessers(checked.retain, rare)
    if len(checked.taught) >= LEAST_TAUGHT:
        looks = options_only(checked.taught)
        guessers.append(_Guesser("options alone", "picking by looks, without the question", looks))
    lengths = {"picking the longest option": longest, "picking the shortest option": shortest}
    checks = [
        _better("length of options", lengths, checked.asked, settings, seed),
        *(
            by_guesser(g.name, g.said, checked.asked, _outcome(g.guess, checked.asked, settings, seed))
            for g in guessers
        ),
    ]
    if len(checked.taught) < LEAST_TAUGHT:
        why = f"{len(checked.taught)} retain items can be asked with options; to learn from them takes {LEAST_TAUGHT}"
        checks.append(undecided("options alone", why))
    return checks


def _guessers(retain: Sequence[Item], rare: Rarity) -> "list[_Guesser]":
    """Those that know the retain set, and nothing of options."""
    return [
        _Guesser("answer in the question", "picking what is most like the question", like_the_question),
        _Guesser("frequent answers", "picking what like items answer most", frequent_answer(retain)),
        _Guesser("nearest question", "answering as similar questions are", nearest_question(retain, rare)),
        _Guesser("question words", "picking words that go with the question's", question_words(retain)),
    ]


class _Guesser(NamedTuple):
    """A guesser with its check's name, and what it does in words; retain items are all that it has learned from."""

    name: str
    said: str
    guess: Guesser


def _outcome(guess: Guesser, choices: Sequence[Choice], settings: SoundnessSettings, seed: int) -> Outcome:
    values = [picks(guess(c)) for c in choices]
    right = [c.answer for c in choices]
    return above_own_options(values, right, edges_of(choices), seed=seed, draws=settings.permutations)


def _position(choices: Sequence[Choice], n_asked: int, settings: SoundnessSettings, seed: int) -> Check:
    counts = places(choices)
    common = {len(c): int(c.argmax()) for c in counts}
    hits = np.array([c.answer == common[len(c.options)] for c in choices], dtype=float)
    guess = best_constant([c.tolist() for c in counts], seed=seed, draws=settings.permutations)
    outcome = _constant(hits, choices, guess, n_asked)
    sentence = f"always picking place {', '.join(str(position + 1) for position in sorted(set(common.values())))}"
    return by_guesser("position of the right option", sentence, choices, outcome)


def _same_options(choices: Sequence[Choice]) -> dict[tuple[str, ...], list[Choice]]:
    """Questions with the same options, in whatever order, where there are enough of them."""
    groups: dict[tuple[str, ...], list[Choice]] = {}
    for choice in choices:
        groups.setdefault(tuple(sorted(normalised(o) for o in choice.options)), []).append(choice)
    return {options: same for options, same in groups.items() if len(same) >= LEAST_ITEMS}


def _labels(
    groups: Mapping[tuple[str, ...], Sequence[Choice]], n_asked: int, settings: SoundnessSettings, seed: int
) -> Check:
    labelled: list[Choice] = []
    counts, hits = [], []
    for options, same in groups.items():
        labels = [options.index(normalised(c.options[c.answer])) for c in same]
        label_counts = np.bincount(labels, minlength=len(options))
        counts.append(label_counts.tolist())
        hits += [float(label == label_counts.argmax()) for label in labels]
        labelled += same
    guess = best_constant(counts, seed=seed, draws=settings.permutations)
    outcome = _constant(np.array(hits), labelled, guess, n_asked)
    share = f"the {len(labelled)} of {n_asked} questions that share their options"
    sentence = f"always picking the option that is right most often, in {share}"
    return by_guesser("balance of labels", sentence, labelled, outcome)


def _constant(hits: Float[np.ndarray, " N"], choices: Sequence[Choice], guess: ConstantGuess, n_asked: int) -> Outcome:
    """What the best constant guess gets above what it gets by chance, as a share of all questions that are asked.

    A verdict is about all of them: where five of a hundred questions share their options, little hangs on these.
    """
    n, accuracy = len(hits), float(hits.mean())
    chance, options = guess.hits_by_chance / n, round(float(np.median([len(c.options) for c in choices])))
    low, high, interval_name = wilson(int(hits.sum()), n)
    value, low, high = ((share - chance) * n / n_asked for share in (accuracy, low, high))
    effect = Estimate(ABOVE_CHANCE, "share", value, low, high, n_asked, interval_name)
    bits = need_rate_distortion(1, min(1.0, max(0.0, 1 / options + accuracy - chance)), options)
    return Outcome(guess.p, effect, accuracy, chance, bits, hits - chance)
