"""Forget items that the retain set has too, or whose answers it gives away.

Two questions are compared by all their wordings (paraphrases too). Words count by how rare they are among all
questions, and near-duplicates name the same names and numbers: items of one template about two things are not alike.
A question that stands whole in a longer one is a near-duplicate of it, however rare the words around it.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from vestige.core.items import Item, Scope
from vestige.data.mcq import Choice
from vestige.data.soundness.findings import Check, SoundnessSettings, by_guesser, counted, undecided
from vestige.data.soundness.nulls import above_own_options, picks
from vestige.data.soundness.texts import Alike, Rarity, plain, rarity, same_names, subject_words, words

LONG = 5
"""Words from which on an answer that stands twice is no coincidence."""


def copied(forget: Sequence[Item], retain: Sequence[Item]) -> Check:
    """Forget items whose question, in any of its wordings, a retain item asks word by word."""
    known = {plain(t) for i in retain for t in wordings(i)}
    found = {i.id: 1.0 for i in forget if any(plain(t) in known for t in wordings(i))}
    said = f"{len(found)} of {len(forget)} forget questions stand in the retain set, punctuation and case aside"
    return counted("copied questions", said, found, len(forget))


def near_duplicates(forget: Sequence[Item], retain: Sequence[Item], settings: SoundnessSettings) -> Check:
    """Forget items whose question is nearly that of a retain item, without being its copy."""
    gone = copied(forget, retain).leaking
    others = [t for i in retain for t in wordings(i)]
    mine = [(i.id, t) for i in forget if i.id not in gone for t in wordings(i)]
    rare = rarity([i.question for i in (*forget, *retain)])
    found = _near(mine, others, rare, settings.near, held=settings.held)
    said = (
        f"{len(found)} of {len(forget)} forget questions have a weighted Jaccard index of {settings.near} or more with "
        f"a retain question, or {settings.held} of their own weight in it"
    )
    return counted("near-duplicate questions", said, found, len(forget))


def copied_answers(forget: Sequence[Item], retain: Sequence[Item], settings: SoundnessSettings) -> Check:
    """Forget items whose answer, of five words or more, is that of a retain item or nearly so."""
    others = [i.answer for i in retain if len(words(i.answer)) >= LONG]
    mine = [(i.id, i.answer) for i in forget if len(words(i.answer)) >= LONG]
    found = _near(mine, others, rarity([i.answer for i in (*forget, *retain)]), settings.near)
    said = (
        f"{len(found)} of {len(mine)} forget answers of {LONG} words or more have a weighted Jaccard index of "
        f"{settings.near} or more with a retain answer"
    )
    return counted("copied answers", said, found, len(forget))


def wordings(item: Item) -> tuple[str, ...]:
    """The question, and what asks the same."""
    return (item.question,) if item.paraphrase is None else (item.question, item.paraphrase)


def _near(
    mine: Sequence[tuple[str, str]], others: Sequence[str], rare: Rarity, least: float, *, held: float | None = None
) -> dict[str, float]:
    """The items alike to another text, by how much; also those that another text holds, where `held` says how far."""
    found: dict[str, float] = {}
    if not others:
        return found
    for (id_, text), overlap in zip(mine, Alike(others, rare).overlaps([t for _, t in mine]), strict=True):
        near = np.where(overlap.jaccard >= least, overlap.jaccard, 0.0)
        if held is not None:
            near = np.maximum(near, np.where(overlap.held >= held, overlap.held, 0.0))
        alike = [n for n in np.flatnonzero(near).tolist() if same_names(text, others[n])]
        if alike:
            found[id_] = max(float(near[alike].max()), found.get(id_, 0.0))
    return found


def entailed(forget: Sequence[Item], scopes: Mapping[str, Scope]) -> Check:
    """Forget items whose answer a retained contract states; those that can be guessed are told beside."""
    found = {i.id: 1.0 for i in forget if scopes.get(i.id) == "entailed"}
    guessable = sum(scopes.get(i.id) == "guessable" for i in forget)
    said = (
        f"{len(found)} of {len(forget)} forget answers are stated by retained contracts, and {guessable} more are "
        "names that the retain set has"
    )
    return counted("entailed answers", said, found, len(forget))


def given_away(
    choices: Sequence[Choice], retain: Sequence[Item], rare: Rarity, settings: SoundnessSettings, seed: int
) -> Check:
    """Whether right options stand in retain items about the same subject more often than the wrong ones beside them."""
    name = "answers given away"
    if not choices:
        return undecided(name, "no options can be drawn, so what stands there by chance cannot be told")
    texts = [f" {plain(t)} " for t in (f"{i.question} {i.answer}" for i in retain)]
    about: dict[str, list[int]] = {}
    for number, text in enumerate(texts):
        for word in dict.fromkeys(text.split()):
            about.setdefault(word, []).append(number)
    values = []
    for choice in choices:
        near = {n for w in subject_words(choice.question, rare) for n in about.get(w, ())}
        given = [any(f" {plain(o)} " in texts[n] for n in near) for o in choice.options]
        values.append(picks(np.array(given, dtype=float)))
    outcome = above_own_options(
        values,
        [c.answer for c in choices],
        edges_of(choices),
        seed=seed,
        draws=settings.permutations,
    )
    return by_guesser(name, "picking what stands in retain items about the same subject", choices, outcome)


def edges_of(choices: Sequence[Choice]) -> list[str] | None:
    """The edges of the questions; None where one has none."""
    edges = [c.edge for c in choices if c.edge is not None]
    return edges if len(edges) == len(choices) else None
