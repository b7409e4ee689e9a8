"""What a search for knowledge holes is held against: a forget set of questions, of harmful answers or of texts.

What a file holds is seen from its columns: a `text` and no question is a text in each row (the WMDP bio corpus), an
answer with a label of safety is harmful data (PKU-SafeRLHF), and files of Wikitext are known by their endings. Of the
hub's data sets only those of the paper are known. Everything else is items, as everywhere.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.text import one_line
from vestige.data import harmful, wikitext
from vestige.data.columns import RECOGNISED
from vestige.data.corpus import Corpus, NamedSplits, SourceSettings, items_of, named_splits, open_corpus, without
from vestige.data.loaders import n_first, parse_limit
from vestige.data.passages import BIO_CORPUS, Passage, load_passages, local_file
from vestige.data.tables import FORMS, column_names
from vestige.data.wikitext import load_wikitext

Form: TypeAlias = Literal["items", "harmful", "texts", "wikitext"]
_HUB: dict[str, Form] = {BIO_CORPUS: "texts", wikitext.HUB: "wikitext", harmful.SAFE_RLHF: "harmful"}
_TEXT = "text"


@dataclass(frozen=True)
class ProbeSources:
    """The forget and the retain set: items in `splits`, by split, and texts beside them, each where there are any.

    `corpus` is what the items come from; of texts it holds none.
    """

    corpus: Corpus
    splits: NamedSplits
    forget_texts: tuple[Passage, ...] = ()
    retain_texts: tuple[Passage, ...] = ()

    @property
    def forget(self) -> tuple[Item | Passage, ...]:
        """What is forgotten."""
        return self.forget_texts or self.splits.splits["forget"]

    @property
    def retain(self) -> tuple[Item | Passage, ...]:
        """What is known to be kept."""
        return self.retain_texts or self.splits.splits.get("retain", ())


def probe_sources(
    settings: SourceSettings, forget: str, *, retain: str | None = None, n_forget: int | None = None
) -> ProbeSources:
    """The sets when `forget` is forgotten and the rest of the data, or what `retain` names, is kept.

    Of texts and harmful data `n_forget` are drawn by `split_seed`, or all taken. Questions have no such number: of
    them a model forgets all that it was made to forget.
    """
    kept = settings.data if retain is None else retain
    forget_form, kept_form = form_of(forget), form_of(kept)
    if forget_form == "items":
        if n_forget is not None:
            raise InputError(
                f"--forget-n {n_forget} draws from texts and harmful answers, and {one_line(forget, width=60)} holds "
                "neither; leave it out"
            )
        if kept_form == "items":
            corpus = open_corpus(settings)
            return ProbeSources(corpus, named_splits(corpus, forget, retain=retain))
    seed = settings.split_seed
    empty = Corpus(settings.data, settings, (), (), None)
    texts = _texts(forget, forget_form, n=n_forget, seed=seed)
    items = () if texts else _forgotten(empty, forget, forget_form, n=n_forget, seed=seed)
    kept_texts = _texts(kept, kept_form, n=None, seed=seed)
    if settings.limit is not None:
        kept_texts = kept_texts[: n_first(parse_limit(settings.limit), len(kept_texts))]
    kept_items = () if kept_form != "items" else open_corpus(_read_as(settings, kept)).items
    read = {p.id for p in texts}
    splits = {"forget": items, "retain": without(kept_items, items)}
    named = NamedSplits(forget, {name: own for name, own in splits.items() if own}, {})
    return ProbeSources(empty, named, texts, tuple(p for p in kept_texts if p.id not in read))


def form_of(name: str) -> Form:
    """What a file or a data set of the hub holds; "items" too where it is none of both, but a selector, say."""
    path = local_file(name)
    if path is None:
        return _HUB.get(name.partition("@")[0], "items")
    if path.suffix in wikitext.FILES:
        return "wikitext"
    names = column_names(path) if path.suffix.lower() in FORMS else frozenset()
    if harmful.is_form(names):
        return "harmful"
    return "texts" if _TEXT in names and not names & RECOGNISED else "items"


def _read_as(settings: SourceSettings, data: str) -> SourceSettings:
    """The same way of reading, of other data."""
    return settings.model_copy(update={"data": data})


def _texts(name: str, form: Form, *, n: int | None, seed: int) -> tuple[Passage, ...]:
    if form == "wikitext":
        return load_wikitext(name, n=n, seed=seed).samples
    return load_passages(name, n=n, seed=seed).samples if form == "texts" else ()


def _forgotten(corpus: Corpus, name: str, form: Form, *, n: int | None, seed: int) -> tuple[Item, ...]:
    if form == "harmful":
        return harmful.load_harmful(name, n=n, seed=seed).samples
    return items_of(corpus, name)
