"""All checks of a data set that need no model, from two splits to what each check found.

Forget items that the retain set has too are counted: two questions are compared by all their wordings, and one that
stands whole in a longer one is a near-duplicate of it, however rare the words around it. What cannot be seen so is left
to guessers: they see options, or questions and what the retain set says, and never a forget item's answer. Each gives
every option of every question a score; the greatest is its pick. They learn from retain items alone.
Axes: N questions, K options, D features, M options of all questions.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.items import Item, Scope
from vestige.core.seeds import generator
from vestige.core.text import one_line
from vestige.data.corpus import NamedSplits
from vestige.data.findings import (
    Alike,
    Check,
    GuessOutcome,
    Rarity,
    SoundnessSettings,
    above_own_options,
    best_constant,
    by_guesser,
    counted,
    picks,
    plain,
    same_names,
    subject_words,
    words,
)
from vestige.data.mcq import Choice, Unasked, choices_of
from vestige.metrics.answers import normalised
from vestige.metrics.information import need_rate_distortion
from vestige.metrics.intervals import wilson
from vestige.metrics.leaks import COMMON_WORDS

LEAST_ITEMS = 5
"""With fewer forget items no number of options lets chance be told from a leak."""
LEAST_TAUGHT = 20
"""Retain items with options below which nothing is learned from them."""
LONG = 5
"""Words beside the commonest from which on an answer that stands twice is no coincidence."""
BUCKETS = 512
"""Character trigrams are counted by hash: few enough to learn from some hundred options."""
RIDGE = 1.0
NEIGHBOURS = 5

Scores = Float[np.ndarray, " K"]
Guesser = Callable[[Choice], Scores]


def copied(forget: Sequence[Item], retain: Sequence[Item]) -> Check:
    """Forget items whose question, in any of its wordings, a retain item asks word by word."""
    retained = {plain(text) for item in retain for text in _wordings(item)}
    ids = [i.id for i in forget if any(plain(text) in retained for text in _wordings(i))]
    sentence = f"{len(ids)} of {len(forget)} forget questions stand in the retain set, punctuation and case aside"
    return counted("copied questions", sentence, ids, len(forget))


def near_duplicates(forget: Sequence[Item], retain: Sequence[Item], settings: SoundnessSettings) -> Check:
    """Forget items whose question is nearly that of a retain item, without being its copy."""
    # A copy is told once.
    copies = {*copied(forget, retain).leaking}
    questions = [(i.id, text) for i in forget if i.id not in copies for text in _wordings(i)]
    rare = Rarity.of([i.question for i in (*forget, *retain)])
    texts = [text for item in retain for text in _wordings(item)]
    ids = _near(questions, texts, rare, settings.near, contained=settings.held)
    sentence = (
        f"{len(ids)} of {len(forget)} forget questions have a weighted Jaccard index of {settings.near} or more "
        f"with a retain question, or {settings.held} of their own weight in it"
    )
    return counted("near-duplicate questions", sentence, ids, len(forget))


def copied_answers(forget: Sequence[Item], retain: Sequence[Item], settings: SoundnessSettings) -> Check:
    """Forget items whose answer, of five words or more beside the commonest, is that of a retain item or nearly so."""
    retained = [i.answer for i in retain if _is_long(i.answer)]
    answers = [(i.id, i.answer) for i in forget if _is_long(i.answer)]
    ids = _near(answers, retained, Rarity.of([i.answer for i in (*forget, *retain)]), settings.near)
    sentence = (
        f"{len(ids)} of {len(answers)} forget answers of {LONG} words or more beside the commonest have a weighted "
        f"Jaccard index of {settings.near} or more with a retain answer"
    )
    return counted("copied answers", sentence, ids, len(forget))


def _is_long(answer: str) -> bool:
    # The commonest words make no sentence of a name: many contracts share "The State of New York".
    return sum(word not in COMMON_WORDS for word in words(answer)) >= LONG


def _wordings(item: Item) -> tuple[str, ...]:
    """The question, and what asks the same."""
    return (item.question,) if item.paraphrase is None else (item.question, item.paraphrase)


def _near(
    texts_of: Iterable[tuple[str, str]], texts: Sequence[str], rare: Rarity, least: float, *, contained: float = 2.0
) -> list[str]:
    """The ids of the items with a text alike to one of these, or of which one holds the share `contained`."""
    # By default, 2, nothing is contained: a share is 1 at most.
    alike, ids = Alike(texts, rare), dict[str, None]()
    for id_, text in texts_of:
        overlap = alike.overlap(text)
        near = np.flatnonzero((overlap.jaccard >= least) | (overlap.contained >= contained)).tolist()
        # Questions of one template about two subjects are alike too, and ask for two facts.
        if any(same_names(text, texts[n]) for n in near):
            ids[id_] = None
    return list(ids)


def _entailed(forget: Sequence[Item], scopes: Mapping[str, Scope]) -> Check:
    """Forget items whose answer a retained contract states; those that can be guessed are told beside."""
    ids = [i.id for i in forget if scopes.get(i.id) == "entailed"]
    guessable = sum(scopes.get(i.id) == "guessable" for i in forget)
    sentence = (
        f"{len(ids)} of {len(forget)} forget answers are stated by retained contracts, and {guessable} more "
        "are names that the retain set has"
    )
    return counted("entailed answers", sentence, ids, len(forget))


def longest(choice: Choice) -> Scores:
    """The option with the most characters."""
    return np.array([float(len(o)) for o in choice.options])


def like_the_question(choice: Choice) -> Scores:
    """The option that shares most with its question: the share of its character tetragrams that stand there."""
    question = _grams(choice.question, 4)
    return np.array([_share(_grams(o, 4), question) for o in choice.options])


def _share(grams: Counter[str], reference: Counter[str]) -> float:
    return sum(grams[g] for g in grams if g in reference) / max(1, grams.total())


def _grams(text: str, n: int) -> Counter[str]:
    padded = f" {normalised(text)} "
    return Counter(padded[k : k + n] for k in range(max(1, len(padded) - n + 1)))


def given_away(retain: Sequence[Item], rare: Rarity) -> Guesser:
    """The options that stand in retain items about the same subject."""
    # Blanks around it, so that an option is found in it as whole words alone.
    texts = [f" {plain(f'{i.question} {i.answer}')} " for i in retain]
    about: dict[str, list[int]] = {}
    for number, text in enumerate(texts):
        for word in dict.fromkeys(text.split()):
            about.setdefault(word, []).append(number)

    def guess(choice: Choice) -> Scores:
        near = {n for word in subject_words(choice.question, rare) for n in about.get(word, ())}
        return np.array([float(any(f" {plain(o)} " in texts[n] for n in near)) for o in choice.options])

    return guess


def frequent_answer(retain: Sequence[Item]) -> Guesser:
    """The option that is the answer of most retain items of the same kind (group and attribute)."""
    counts = Counter((i.group, i.attribute, normalised(i.answer)) for i in retain)
    return lambda choice: np.array(
        [float(counts[choice.group, choice.attribute, normalised(o)]) for o in choice.options]
    )


def options_only(choices: Sequence[Choice]) -> Guesser:
    """A conditional logit over each option's looks beside the others', fitted to the retain questions' options.

    Looks: length, words, digits, capitals, punctuation, what is shared with the other options, hashed trigrams.
    """
    features = [_features(c.options) for c in choices]
    rows = np.concatenate(features)
    # So that the ridge weighs a length in letters like a share; a trigram that is rare is not blown up.
    scale = np.maximum(rows.std(axis=0), 1e-6)
    scale[-BUCKETS:] = np.maximum(scale[-BUCKETS:], 0.05)
    weights = _conditional_logit(rows / scale, [len(f) for f in features], [c.answer for c in choices])
    return lambda choice: _features(choice.options) / scale @ weights


def _features(options: Sequence[str]) -> Float[np.ndarray, "K D"]:
    grams = [_grams(o, 3) for o in options]
    rows = []
    for n, (text, trigrams) in enumerate(zip(options, grams, strict=True)):
        shares = [_share(trigrams, g) for k, g in enumerate(grams) if k != n]
        looks = [len(text), len(text.split()), sum(c.isdigit() for c in text), sum(c.isupper() for c in text)]
        looks += [sum(not c.isalnum() and not c.isspace() for c in text)]
        hashed = np.zeros(BUCKETS)
        for gram, count in trigrams.items():
            # Not `hash`, which is another one in every process.
            hashed[zlib.crc32(gram.encode("utf-8", "surrogatepass")) % BUCKETS] += count
        rows.append([*np.log1p(looks), max(shares), min(shares), *hashed / np.linalg.norm(hashed)])
    table = np.array(rows)
    rank = np.argsort(np.argsort(table[:, 0])) / max(1, len(options) - 1) - 0.5
    # Only what differs between the options of one question says which is right.
    return np.column_stack([rank, table - table.mean(axis=0)])


def _conditional_logit(
    rows: Float[np.ndarray, "M D"], sizes: Sequence[int], right: Sequence[int]
) -> Float[np.ndarray, " D"]:
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    # Rows of all questions lie end to end, since they have different numbers of options.
    gold = starts + np.asarray(right)

    def loss(weights: Float[np.ndarray, " D"]) -> tuple[float, Float[np.ndarray, " D"]]:
        scores = rows @ weights
        # Without its maximum a question's exponentials cannot overflow, and the loss is the same.
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
    alike, answers = Alike([i.question for i in retain], rare), [{*words(i.answer)} for i in retain]

    def guess(choice: Choice) -> Scores:
        row = alike.overlap(choice.question).jaccard
        nearest = np.argsort(-row, kind="stable")[:NEIGHBOURS].tolist()
        options = [{*words(o)} for o in choice.options]
        # Cubed, so that one question that is asked almost alike outweighs four that are not.
        weighted = [(float(row[n]) ** 3, answers[n]) for n in nearest]
        return np.array([sum(w * (len(o & a) / max(1, len(o | a))) for w, a in weighted) for o in options])

    return guess


def question_words(retain: Sequence[Item]) -> Guesser:
    """The option whose words go with those of the question in retain items: what a shared template gives away.

    Two words go together by the log of how often they do so over how often they would if one had nothing to do with the
    other; one of either is added, so that rare words say little.
    """
    pairs: Counter[tuple[str, str]] = Counter()
    for item in retain:
        answered = {*words(item.answer)}
        pairs.update((a, b) for a in {*words(item.question)} for b in answered)
    asked, answers = (Rarity.of(texts).counts for texts in zip(*((i.question, i.answer) for i in retain), strict=True))

    def lift(a: str, b: str) -> float:
        expected = asked.get(a, 0) * answers.get(b, 0) / len(retain)
        return float(np.log((pairs[a, b] + 1) / (expected + 1)))

    def guess(choice: Choice) -> Scores:
        terms = sorted({*words(choice.question)})
        options = [sorted({*words(o)}) for o in choice.options]
        return np.array([sum(lift(a, b) for a in terms for b in o) / max(1, len(o)) for o in options])

    return guess


@dataclass(frozen=True)
class Material:
    """A data set as it is checked, and how: both splits, what the graph says, and each split's questions with options.

    `unasked` says of a forget item without options why it has none. `beside` are forget questions with the true answer
    and some of the alternatives that were given to it as options.
    """

    forget: tuple[Item, ...]
    retain: tuple[Item, ...]
    scopes: Mapping[str, Scope]
    asked: tuple[Choice, ...]
    taught: tuple[Choice, ...]
    unasked: str
    beside: tuple[Choice, ...]
    settings: SoundnessSettings
    seed: int


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
    forget_choices = [choice_of[i.id] for i in forget]
    teaching = retain
    if len(retain) > settings.most_taught:
        sample = generator(seed, "taught").choice(len(retain), settings.most_taught, replace=False)
        teaching = tuple(retain[n] for n in sorted(sample.tolist()))
    return Material(
        forget,
        retain,
        splits.scopes,
        asked=tuple(c for c in forget_choices if isinstance(c, Choice)),
        taught=tuple(c for c in choices_of(teaching, drawing).values() if isinstance(c, Choice)),
        unasked=next((c.reason for c in forget_choices if isinstance(c, Unasked)), "has none"),
        beside=tuple(_beside(i, settings, seed) for i in forget if i.alternatives and i.id not in splits.drawn),
        settings=settings,
        seed=seed,
    )


def _beside(item: Item, settings: SoundnessSettings, seed: int) -> Choice:
    """The answer, at a place that is drawn, among alternatives that are drawn."""
    rng = generator(seed, "beside alternatives", item.id)
    options = [item.alternatives[n] for n in rng.permutation(len(item.alternatives))[: settings.options - 1].tolist()]
    place = int(rng.integers(0, len(options) + 1))
    options.insert(place, item.answer)
    return Choice(
        item.id,
        item.question,
        tuple(options),
        place,
        source="perturbed",
        edge=item.edge,
        group=item.group,
        attribute=item.attribute,
    )


class _GuesserCheck(NamedTuple):
    """A guesser with its check's name, and what it does in words; `either` tries its opposite too."""

    name: str
    sentence: str
    guess: Guesser
    either: bool = False

    def check(self, choices: Sequence[Choice], checked: Material) -> Check:
        """What it gets; of a guesser and its opposite the better, whose p-value counts twice."""
        outcome, sentence = _outcome(self.guess, choices, checked), self.sentence
        if self.either:
            opposite = _outcome(lambda choice: -self.guess(choice), choices, checked)
            if opposite.p < outcome.p:
                outcome, sentence = opposite, f"the opposite of {sentence}"
            outcome = outcome._replace(p=min(1.0, 2 * outcome.p))
        return by_guesser(self.name, sentence, choices, outcome)


def _outcome(guess: Guesser, choices: Sequence[Choice], checked: Material) -> GuessOutcome:
    edges = [c.edge for c in choices if c.edge is not None]
    return above_own_options(
        [picks(guess(c)) for c in choices],
        [c.answer for c in choices],
        edges if len(edges) == len(choices) else None,
        seed=checked.seed,
        draws=checked.settings.permutations,
    )


_LENGTH = _GuesserCheck("length of options", "picking the longest option", longest, either=True)


def _tests(retain: Sequence[Item], rare: Rarity) -> list[_GuesserCheck]:
    """Those that know the retain set, and nothing of options."""
    return [
        _GuesserCheck("answer in the question", "picking what is most like the question", like_the_question),
        _GuesserCheck("frequent answers", "picking what like items answer most", frequent_answer(retain)),
        _GuesserCheck("nearest question", "answering as similar questions are", nearest_question(retain, rare)),
        _GuesserCheck("question words", "picking words that go with the question's", question_words(retain)),
    ]


def without_model(checked: Material) -> tuple[tuple[Check, ...], tuple[str, ...]]:
    """All checks that apply, and in sentences which do not."""
    forget, retain, asked, settings = checked.forget, checked.retain, checked.asked, checked.settings
    checks, left_out = [copied(forget, retain), near_duplicates(forget, retain, settings)], []
    if any(_is_long(i.answer) for i in forget):
        checks.append(copied_answers(forget, retain, settings))
    else:
        left_out.append(
            f"copied answers: no answer has {LONG} words beside the commonest, and shorter ones coincide by chance"
        )
    if checked.scopes:
        checks.append(_entailed(forget, checked.scopes))
    else:
        left_out.append("entailed answers: the data has no graph, or only a part of it is used")
    if len(asked) < LEAST_ITEMS:
        why = f"{len(asked)} forget items can be asked with options, where {LEAST_ITEMS} are needed: an item "
        return (*checks, Check("options and questions", undecided=why + checked.unasked)), tuple(left_out)
    places = [(c, len(c.options), c.answer) for c in asked if c.source == "given"]
    if len(places) >= LEAST_ITEMS:
        checks.append(_always_the_same("position of the right option", places, checked))
    else:
        left_out.append("position of the right option: the data gives no options, and drawn ones are balanced")
    options_of = {c.item: tuple(sorted(map(normalised, c.options))) for c in asked}
    counts = Counter(options_of.values())
    labels = [
        (c, options, options.index(normalised(c.options[c.answer])))
        for c in asked
        if counts[options := options_of[c.item]] >= LEAST_ITEMS
    ]
    if labels:
        checks.append(_always_the_same("balance of labels", labels, checked))
    else:
        left_out.append(f"balance of labels: no {LEAST_ITEMS} forget questions have the same options")
    rare = Rarity.of([i.question for i in (*forget, *retain)])
    about = "picking what stands in retain items about the same subject"
    tests = [_GuesserCheck("answers given away", about, given_away(retain, rare)), _LENGTH, *_tests(retain, rare)]
    checks += [test.check(asked, checked) for test in tests]
    if len(checked.taught) >= LEAST_TAUGHT:
        looks = _GuesserCheck("options alone", "picking by looks, without the question", options_only(checked.taught))
        checks.append(looks.check(asked, checked))
    else:
        why = f"{len(checked.taught)} retain items can be asked with options; to learn from them takes {LEAST_TAUGHT}"
        checks.append(Check("options alone", undecided=why))
    return tuple(checks), tuple(left_out)


OF_ALTERNATIVES = "alternatives: "
"""How the names of checks begin that are about the alternatives to the forget questions."""


def of_alternatives(checked: Material) -> tuple[Check, ...]:
    """Whether the true answers can be told from their alternatives by looks, or by what the retain set says.

    Each guesser's pick is tried and its opposite, since a truth that is always the last would hide what a model knows.
    Looks are learned from one half of these questions and tried on the other.
    """
    if not checked.beside:
        return ()
    if len(checked.beside) < LEAST_ITEMS:
        why = f"{len(checked.beside)} forget questions have alternatives, and {LEAST_ITEMS} are needed"
        return (Check(f"{OF_ALTERNATIVES}looks", undecided=why),)
    rare = Rarity.of([i.question for i in (*checked.forget, *checked.retain)])
    tests = [_LENGTH._replace(name="length"), *_tests(checked.retain, rare)]
    # Retain items have no alternatives to learn from.
    halves = checked.beside[::2], checked.beside[1::2]
    if len(halves[1]) >= LEAST_TAUGHT // 2:
        first, second = map(options_only, halves)
        learned = {c.item: guess for half, guess in zip(halves, (second, first), strict=True) for c in half}
        tests.append(_GuesserCheck("looks", "picking by looks alone", lambda choice: learned[choice.item](choice)))
    return tuple(
        test._replace(name=OF_ALTERNATIVES + test.name, either=True).check(checked.beside, checked) for test in tests
    )


def _always_the_same(name: str, labelled: Sequence[tuple[Choice, Hashable, int]], checked: Material) -> Check:
    """Whether one label (a place, an option that all have) of a group of questions is right more often than others.

    What the best constant guess gets stands above what it gets by chance, as a share of all questions that are asked:
    where five of a hundred share their options, little hangs on these.
    """
    groups: dict[Hashable, list[int]] = {}
    for choice, group, label in labelled:
        groups.setdefault(group, [0] * len(choice.options))[label] += 1
    choices = [choice for choice, _, _ in labelled]
    hits = np.array([label == int(np.argmax(groups[group])) for _, group, label in labelled], dtype=float)
    p, hits_by_chance = best_constant(groups.values(), seed=checked.seed, draws=checked.settings.permutations)
    n, n_asked, accuracy, chance = len(hits), len(checked.asked), float(hits.mean()), hits_by_chance / len(hits)
    low, high, interval = wilson(int(hits.sum()), n)
    value, low, high = ((share - chance) * n / n_asked for share in (accuracy, low, high))
    effect = Estimate("accuracy above chance", "share", value, low, high, n_asked, interval)
    options = round(float(np.median([len(c.options) for c in choices])))
    bits = need_rate_distortion(1, min(1.0, max(0.0, 1 / options + accuracy - chance)), options)
    outcome = GuessOutcome(p, effect, accuracy, chance, bits, hits - chance)
    sentence = f"always picking what is right most often, in {n} of {n_asked} questions of as many or the same options"
    return by_guesser(name, sentence, choices, outcome)
