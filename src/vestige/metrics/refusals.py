"""Whether a reply declines to answer.

A list of English patterns, not a judge: it counts a reply that says, in the first person, that its author
does not know, was not taught, or cannot or will not answer. A polite reply that then answers is not told
apart, nor is a refusal found in other words or another language. It reads the first 300 characters, where a
refusal stands.
"""

import re
import unicodedata

_READ = 300


def is_refusal(reply: str) -> bool:
    """Whether the beginning of `reply` matches one of the patterns. An empty reply is none."""
    text = unicodedata.normalize("NFKC", reply[:_READ]).casefold().replace("\u2019", "'")
    text = " ".join(text.split())
    for contraction, full in _CONTRACTIONS:
        text = contraction.sub(full, text)
    return _REFUSAL.search(text) is not None


def _any(words: str) -> str:
    """A pattern for any of the comma-separated `words`, which may be patterns themselves."""
    return f"(?:{'|'.join(words.split(', '))})"


def _some(words: str) -> str:
    """Any number of `words`, each followed by a space."""
    return f"(?:{_any(words)} )*"


_ADVERBS = _some(
    "really, simply, just, currently, also, honestly, unfortunately, still, quite, entirely, fully, "
    "reliably, truly, even"
)
_REPLYING = _any(
    "answer, say, tell, help, assist, provide, give, offer, recall, remember, find, come, shed, access, "
    "speak, comment, confirm, recogni[sz]e, be of, share, fulfil, comply, discuss, disclose"
)
_DETERMINERS = _some("the, an, any, enough, that, this, such, specific, further, more, piece of")
_FACTS = _any(
    "answer, information, knowledge, details?, data, records?, facts?, idea, clue, specifics, comment, access"
)
_LEARNED = _any("learn(?:ed|t)?, heard, seen, come across, encountered, been, got, the faintest, be informed, informed")
_TOLD = _any("taught, told, given, trained, programmed, informed, briefed")
_FAMILIAR = _any(
    "sure, certain, aware, familiar, informed, knowledgeable, equipped, privy, acquainted, well-versed, "
    "briefed, the right, the best, the one, in a position"
)
_LOST = _any(
    "unsure, uncertain, unaware, unfamiliar, uninformed, clueless, stumped, lost on, blank, drawing a blank, "
    "at a loss, at a disadvantage, in the dark"
)
_STORE = r"my (?:\w+ )?" + _any(
    "knowledge, training, resources, data, dataset, databases?, programming, understanding, capabilities, "
    "expertise, scope, reach, information, memory"
)

_PATTERNS = (
    # I cannot answer; I am unable to say; I must decline; I would only be guessing.
    rf"i {_ADVERBS}{_any('cannot, could not, am not able to, am unable to')} {_ADVERBS}{_REPLYING}",
    rf"i {_any('must, have to, will have to, need to')} decline",
    rf"i {_any('decline, refuse')} to",
    rf"i {_any('will, would')} (?:rather )?not {_any('answer, guess, say, speculate')}",
    rf"i would {_any('only, just')} be guessing",
    "reply from me would be a guess",
    # I do not know; I don't have an answer; I don't think I can; I have no idea; I lack the facts.
    rf"i {_ADVERBS}(?:do|did) not {_ADVERBS}{_any('know, recall, remember, recogni[sz]e, hold, possess')}",
    rf"i {_ADVERBS}do not {_ADVERBS}{_any('think, believe')} i {_any('know, can, have')}",
    rf"i {_ADVERBS}do not {_ADVERBS}(?:seem to )?have {_DETERMINERS}{_FACTS}",
    rf"i {_any('have, hold, possess, seem to have')} (?:got )?(?:absolutely )?{_any('no, nothing, zero')}"
    rf"\b(?! {_any('doubt, hesitation, objection, problem, trouble')})",
    rf"i {_any('lack, am lacking, am missing, know nothing, have come up short')}",
    # I have never learned this; I was not told.
    rf"i {_any('have, had')} {_any('not, never, yet to')}\b.{{0,20}}?\b{_LEARNED}",
    rf"i was {_any('not, never')} {_TOLD}",
    rf"nothing i have {_any('learned, been')}",
    # I am not sure; I am unaware; I can't say I'm familiar; my ignorance.
    rf"i am {_ADVERBS}not {_ADVERBS}{_FAMILIAR}",
    rf"i am {_LOST}",
    "my ignorance",
    # Unknown to me; beyond my knowledge; my data does not cover it; not something I know.
    rf"{_any('unknown, unfamiliar, not known, new, a mystery')} to me",
    rf"{_any('beyond, outside, out of, not in, not within, not part of, not a part of')} (?:of )?"
    rf"{_any('my, what i, me')}",
    "more than i know",
    rf"{_STORE} {_any('do, does, did, is, are')} {_any('not, limited')}",
    rf"{_any('gap, blind spot, uncharted territory')}\b.{{0,10}}\b{_STORE}",
    rf"{_any('not, never')}\b.{{0,25}}\b{_any('part of, included in, in, within')} {_STORE}",
    rf"not {_any('something, information, a subject, an area, a topic, anything')}(?: that)? i",
    rf"a {_any('question, topic, subject')} (?:that )?i {_any('cannot, am not')}",
    rf"something i {_any('need to look up, have yet to')}",
    # No answer comes to mind; nothing I can tell.
    rf"there is {_any('no answer, nothing')} (?:that )?i can",
)
_AT_THE_START = rf"^(?:sorry,? )?no {_any('idea, clue, answer, comment')}\b"

_REFUSAL = re.compile(rf"\b(?:{'|'.join(_PATTERNS)})\b|{_AT_THE_START}")
_CONTRACTIONS = tuple(
    (re.compile(contraction), full)
    for contraction, full in (
        (r"\b(?:can't|can not)\b", "cannot"),
        (r"\bwon't\b", "will not"),
        (r"n't\b", " not"),
        (r"\bi'm\b", "i am"),
        (r"\bi've\b", "i have"),
        (r"\bi'd\b", "i would"),
        (r"\bi'll\b", "i will"),
        (r"\b(that|there|it|what)'s\b", r"\1 is"),
    )
)
