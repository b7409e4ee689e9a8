"""Adjacent questions: benign, open ones about what the forget set mentions, and not about what it says.

Knowledge Holes (2511.00030, section 3.1 and appendix B.1): of each sample of the forget set k keywords, and one open
question for each. A language model writes them (`asking`), or templates do, about terms that set the text apart
(`keywords`); for graphs of contracts they are questions about other contracts (`neighbours`). Of the retain set they
are made alike, or its own questions are taken as they are.

What cannot be used is dropped and counted by reason. That a question is not answered by its own text is checked as far
as words go: no sentence of the text may hold its keyword with all its other words, or with a word that hints at the
answer.
"""

from collections.abc import Sequence
from typing import Literal

from vestige.core.seeds import generator
from vestige.data.uniform import shuffled
from vestige.judges.base import Writer
from vestige.probes.asking import adjacent_asked
from vestige.probes.keywords import Keyword, keywords, tokens
from vestige.probes.questions import (
    ANSWERED,
    Adjacent,
    AdjacentQuestion,
    AdjacentSettings,
    Desk,
    Source,
    source_text,
)
from vestige.probes.templates import TEMPLATES, Sentence, answered, sentences


def adjacent(
    sources: Sequence[Source],
    settings: AdjacentSettings,
    *,
    by: Literal["offline"] | Writer,
    seed: int,
    background: Sequence[str] = (),
) -> Adjacent:
    """Adjacent questions of items or passages, from templates or written by a language model.

    The seed and `background` are for templates; what a model writes follows from the model and the text.
    """
    if by == "offline":
        return adjacent_offline(sources, settings, seed=seed, background=background)
    return adjacent_asked(sources, settings, by)


def adjacent_offline(
    sources: Sequence[Source], settings: AdjacentSettings, *, seed: int, background: Sequence[str] = ()
) -> Adjacent:
    """Up to k questions of each source from templates; the seed and the source choose which.

    `background` are texts that keywords are held against beside the other sources.
    """
    texts = [source_text(s, settings.most_characters) for s in sources]
    found = keywords(texts, background=background, names=settings.names, numbers=settings.numbers)
    desk = Desk(sources)
    for source, text, ranked in zip(sources, texts, found, strict=True):
        said = sentences(text)
        n = 0
        for keyword in ranked:
            if n == settings.k:
                break
            n += _ask(desk, source, keyword, said, seed)
        desk.short(settings.k - n)
    return desk.result(n_sources=len(sources))


def _ask(desk: Desk, source: Source, keyword: Keyword, said: Sequence[Sentence], seed: int) -> int:
    """One question about a keyword, by the first template in the seed's order that the text does not answer."""
    templates = TEMPLATES[keyword.kind]
    for place in shuffled(generator(seed, "adjacent", source.id, keyword.text), len(templates)).tolist():
        template = templates[place]
        question = template.text.format(keyword=keyword.asked, bare=keyword.text)
        if answered([t.stem for t in tokens(question)], keyword.stems, said, template):
            desk.drop(ANSWERED)
        elif desk.admit(AdjacentQuestion(source.id, keyword.text, question)):
            return 1
    return 0
