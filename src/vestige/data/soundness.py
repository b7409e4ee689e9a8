"""Checks of a data set without a model: can somebody without the forget set answer its questions?

- Counted: forget items whose question, long answer, number or address is in the retain set, and answers that retained
  contracts state.
- Tested: a guesser that sees the options and not the question. It learns from the retain items how right options look.

Axes: N questions, K options, D features, M options of all questions.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from vestige.artifacts.audits import Soundness
from vestige.artifacts.layout import RunFolder
from vestige.core.errors import InputError
from vestige.core.estimates import to_json
from vestige.core.files import locked
from vestige.core.items import Item, Scope
from vestige.core.seeds import generator
from vestige.core.store import write_sealed
from vestige.core.text import TextTuple, one_line
from vestige.data.corpus import NamedSplits
from vestige.data.facts import facts_of
from vestige.data.findings import (
    Check,
    SoundnessSettings,
    above_own_options,
    by_guesser,
    counted,
    picks,
    plain,
    undecided,
    words,
)
from vestige.data.mcq import Choice, Unasked, choices_of
from vestige.metrics.answers import normalised
from vestige.metrics.leaks import COMMON_WORDS

LEAST_ITEMS = 5
"""With fewer forget items, no number of options separates a leak from chance."""
LEAST_TAUGHT = 20
"""Retain items with options below which nothing is learned from them."""
LONG = 5
"""Above this number of words, without the commonest words, two equal answers are no coincidence."""
BUCKETS = 512
"""The number of hash buckets for character trigrams: few enough to learn from some hundred options."""
RIDGE = 1.0

Scores = Float[np.ndarray, " K"]
Guesser = Callable[[Choice], Scores]


# Counted checks


def copied(forget: Sequence[Item], retain: Sequence[Item]) -> Check:
    """Find the forget items whose question, in any of its wordings, a retain item asks word by word."""
    retained: set[str] = set()
    for item in retain:
        retained.update(map(plain, _wordings(item)))
    ids = [item.id for item in forget if not retained.isdisjoint(map(plain, _wordings(item)))]
    sentence = f"{len(ids)} of {len(forget)} forget questions stand in the retain set, punctuation and case aside"
    return counted("copied questions", sentence, ids, len(forget))


def copied_answers(forget: Sequence[Item], retain: Sequence[Item]) -> Check:
    """Find the forget items whose long answer equals a retain item's, word by word."""
    retained = {plain(item.answer) for item in retain}
    long = [item for item in forget if _is_long(item.answer)]
    ids = [item.id for item in long if plain(item.answer) in retained]
    sentence = (
        f"{len(ids)} of {len(long)} forget answers of {LONG} words or more beside the commonest are those of a retain "
        "item"
    )
    return counted("copied answers", sentence, ids, len(forget))


_RARE = re.compile(
    r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|\b\d{1,5}[a-z]?,? (?:[^\W\d]+ ){1,3}(?:street|st|road|rd|avenue|ave|lane|ln|drive|dr|square|way)\b"
    r"|\b[^\W\d]*(?:straße|strasse|str\.|weg|gasse|platz|laan|straat) \d{1,5}\b"
    r"|(?<!\d)(?!(?:1[89]|20)\d\d\W{1,2}(?:1[89]|20)\d\d\b)\d(?:(?:,(?=\d{3})|[ ()./-]{0,2})\d){4,}",
    re.IGNORECASE,
)
"""E-mails, street addresses, and numbers of five digits or more that are not round."""


def rare_tokens(text: str) -> set[str]:
    """The numbers and addresses that two texts hardly share by chance.

    Example:
        >>> sorted(rare_tokens("Write to ann@port.example, 42 North Quay Street, or call 123-4567; it costs $250,000."))
        ['1234567', '42northquaystreet', 'annportexample']
    """
    tokens = (re.sub(r"\W", "", token).casefold() for token in _RARE.findall(text))
    return {token for token in tokens if not re.fullmatch(r"\d{1,3}0+", token)}


def stated_tokens(forget: Sequence[Item], retain: Sequence[Item]) -> Check:
    """Find the forget items with a number or an address in the answer, and not the question, that a retain item has."""
    stated = rare_tokens("\n".join(f"{item.question}\n{item.answer}" for item in retain))
    ids = [item.id for item in forget if stated & (rare_tokens(item.answer) - rare_tokens(item.question))]
    sentence = (
        f"{len(ids)} of {len(forget)} forget answers have a long number, an address or an e-mail of a retain item"
    )
    return counted("stated numbers and addresses", sentence, ids, len(forget))


def _is_long(answer: str) -> bool:
    # Common words do not make a name a sentence: many contracts share "The State of New York".
    return sum(word not in COMMON_WORDS for word in words(answer)) >= LONG


def _wordings(item: Item) -> TextTuple:
    if item.paraphrase is None:
        return (item.question,)
    return item.question, item.paraphrase


def _entailed(forget: Sequence[Item], scopes: Mapping[str, Scope]) -> Check:
    """Forget items whose answer a retained contract states. Guessable items are listed next to these."""
    ids = [item.id for item in forget if scopes.get(item.id) == "entailed"]
    guessable = sum(scopes.get(item.id) == "guessable" for item in forget)
    sentence = (
        f"{len(ids)} of {len(forget)} forget answers are stated by retained contracts, and {guessable} more "
        "are names that the retain set has"
    )
    return counted("entailed answers", sentence, ids, len(forget))


# The guesser


def options_only(choices: Sequence[Choice]) -> Guesser:
    """A conditional logit on the looks of each option next to the others, fitted to the options of `choices`.

    Looks: place, length, words, digits, capitals, punctuation, overlap with the other options, hashed trigrams.
    """
    features = [_features(choice) for choice in choices]
    rows = np.concatenate(features)
    # The ridge then weighs a length in letters like a share, and rare trigrams are not amplified.
    scale = np.maximum(rows.std(axis=0), 1e-6)
    scale[-BUCKETS:] = np.maximum(scale[-BUCKETS:], 0.05)
    sizes = [len(part) for part in features]
    weights = _conditional_logit(rows / scale, sizes, [choice.answer for choice in choices])
    return lambda choice: _features(choice) / scale @ weights


_PLACES = 10


def _features(choice: Choice) -> Float[np.ndarray, "K D"]:
    options = choice.options
    grams = [_trigrams(option) for option in options]
    rows = []
    for n, text in enumerate(options):
        shares = [_share(grams[n], other) for k, other in enumerate(grams) if k != n]
        signs = sum(not c.isalnum() and not c.isspace() for c in text)
        digits = sum(c.isdigit() for c in text)
        capitals = sum(c.isupper() for c in text)
        looks = np.log1p([len(text), len(text.split()), digits, capitals, signs])
        place = np.zeros(_PLACES)
        # If only the right option is known, the data do not determine its place.
        if choice.source == "given" and n < _PLACES:
            place[n] = 1
        hashed = np.zeros(BUCKETS)
        for gram, count in grams[n].items():
            # `hash` differs between processes.
            hashed[zlib.crc32(gram.encode("utf-8", "surrogatepass")) % BUCKETS] += count
        rows.append([*looks, max(shares), min(shares), *place, *hashed / np.linalg.norm(hashed)])
    table = np.array(rows)
    rank = np.argsort(np.argsort(table[:, 0])) / max(1, len(options) - 1) - 0.5
    # Only differences between the options of one question matter.
    return np.column_stack([rank, table - table.mean(axis=0)])


def _trigrams(text: str) -> Counter[str]:
    padded = f" {normalised(text)} "
    return Counter(padded[k : k + 3] for k in range(max(1, len(padded) - 2)))


def _share(grams: Counter[str], reference: Counter[str]) -> float:
    return sum(count for gram, count in grams.items() if gram in reference) / max(1, grams.total())


def _conditional_logit(
    rows: Float[np.ndarray, "M D"], sizes: Sequence[int], right: Sequence[int]
) -> Float[np.ndarray, " D"]:
    """The weights w that minimise -sum log softmax(rows w)[right] + RIDGE |w|^2 / 2, a softmax for each question."""
    # The rows of all questions are concatenated, since the numbers of options differ.
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    gold = starts + np.asarray(right)
    weights, furthest = np.zeros(rows.shape[1]), 1.0
    while furthest > 1e-7:
        scores = rows @ weights
        # Subtracting each question's maximum prevents overflow.
        p = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), sizes))
        p /= np.repeat(np.add.reduceat(p, starts), sizes)
        slope = rows.T @ p - rows[gold].sum(axis=0) + RIDGE * weights
        means = np.add.reduceat(rows * p[:, None], starts)
        curvature = (rows.T * p) @ rows - means.T @ means + RIDGE * np.eye(len(weights))
        step = np.linalg.solve(curvature, slope)
        furthest = float(np.ptp(rows @ step))
        # Newton's step is shortened where the curvature may change within it, so that the loss always falls.
        weights -= step * np.log1p(furthest) / max(furthest, 1e-300)
    return weights


# A whole data set


def check_data(run: RunFolder, splits: NamedSplits, settings: SoundnessSettings, *, seed: int) -> Soundness:
    """Check a data set and write soundness.json in the run."""
    with locked(run.path / ".soundness.lock", patience_seconds=0):
        checks, left_out = check_splits(splits, settings, seed=seed)
        # Several forget questions may ask for one fact in other words.
        forget = splits.splits["forget"]
        n_facts = len(forget) - len(facts_of(forget))
        soundness = Soundness(
            forget=splits.forget,
            lines=tuple(check.line for check in checks),
            settings={**settings.identity(), "seed": seed},
            digest=splits.digest,
            left_out=left_out,
            leaking={check.line.check: check.leaking for check in checks if check.line.sound is False},
            figures={"forget facts": float(n_facts)} if n_facts < len(forget) else {},
            needs="; ".join(check.needs for check in checks if check.needs),
        )
        write_sealed(run.soundness, to_json(soundness))
    return soundness


def check_splits(splits: NamedSplits, settings: SoundnessSettings, *, seed: int) -> tuple[tuple[Check, ...], TextTuple]:
    """Make all checks that apply, and list in sentences those that do not.

    Wrong options of retain items come from retain items alone, so that no guesser learns from forget answers.

    Raises:
        InputError: The forget set is the whole data set, or has fewer than five items.
    """
    forget, retain = splits.splits["forget"], splits.splits.get("retain", ())
    source = f"the forget set {one_line(splits.forget, width=60)!r}"
    if not retain:
        raise InputError(f"{source} is the whole data set, so no other data could reveal it. Name a part")
    if len(forget) < LEAST_ITEMS:
        raise InputError(f"{source} has {len(forget)} items, too few to exclude chance. Name at least {LEAST_ITEMS}")
    checks = [copied(forget, retain)]
    left_out = []
    if any(_is_long(item.answer) for item in forget):
        checks.append(copied_answers(forget, retain))
    else:
        left_out.append(
            f"copied answers: no answer has {LONG} words beside the commonest, and shorter ones coincide by chance"
        )
    if splits.scopes:
        checks.append(_entailed(forget, splits.scopes))
    else:
        # Companies of compiled contracts share addresses, which the entailed answers account for.
        checks.append(stated_tokens(forget, retain))
        left_out.append("entailed answers: the data has no graph, or only a part of it is used")
    checks.append(_by_options(forget, retain, settings, seed))
    return tuple(checks), tuple(left_out)


def _by_options(forget: Sequence[Item], retain: Sequence[Item], settings: SoundnessSettings, seed: int) -> Check:
    """Whether the form or the place of the right option reveals it."""
    drawing = settings.drawing(seed)
    choice_of = choices_of((*forget, *retain), drawing)
    asked: list[Choice] = []
    reasons: list[str] = []
    for item in forget:
        choice = choice_of[item.id]
        if isinstance(choice, Unasked):
            reasons.append(choice.reason)
        else:
            asked.append(choice)
    if len(asked) < LEAST_ITEMS:
        why = f"{len(asked)} forget items can be asked with options, where {LEAST_ITEMS} are needed: an item "
        return undecided("options and questions", why + reasons[0])
    if len(retain) > settings.most_taught:
        sample = generator(seed, "taught").choice(len(retain), settings.most_taught, replace=False)
        retain = [retain[n] for n in sorted(sample.tolist())]
    taught = [choice for choice in choices_of(retain, drawing).values() if isinstance(choice, Choice)]
    if len(taught) < LEAST_TAUGHT:
        why = f"{len(taught)} retain items can be asked with options; to learn from them takes {LEAST_TAUGHT}"
        return undecided("options alone", why)
    guess = options_only(taught)
    edges = [choice.edge for choice in asked if choice.edge is not None]
    outcome = above_own_options(
        [picks(guess(choice)) for choice in asked],
        [choice.answer for choice in asked],
        edges if len(edges) == len(asked) else None,
        seed=seed,
        draws=settings.permutations,
    )
    return by_guesser("options alone", "picking by looks, without the question", asked, outcome, settings)
