"""What a search for knowledge holes is held against: a forget set of questions, of harmful answers or of texts."""

from dataclasses import dataclass

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.text import one_line
from vestige.data.corpus import Corpus, NamedSplits, SourceSettings, items_of, named_splits, open_corpus, without
from vestige.data.loaders import n_first, parse_limit
from vestige.data.texts import Form, Passage, form_of, load_harmful, texts_in


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
    retain_source = settings.data if retain is None else retain
    forget_form, kept_form = form_of(forget), form_of(retain_source)
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
    texts = texts_in(forget, forget_form, n=n_forget, seed=seed)
    items = () if texts else _forgotten(empty, forget, forget_form, n=n_forget, seed=seed)
    kept_texts = texts_in(retain_source, kept_form, n=None, seed=seed)
    if settings.limit is not None:
        kept_texts = kept_texts[: n_first(parse_limit(settings.limit), len(kept_texts))]
    kept_items = () if kept_form != "items" else open_corpus(settings.model_copy(update={"data": retain_source})).items
    read = {p.id for p in texts}
    splits = {"forget": items, "retain": without(kept_items, items)}
    asked_splits = NamedSplits(forget, {name: part for name, part in splits.items() if part}, {})
    return ProbeSources(empty, asked_splits, texts, tuple(p for p in kept_texts if p.id not in read))


def _forgotten(corpus: Corpus, name: str, form: Form, *, n: int | None, seed: int) -> tuple[Item, ...]:
    if form == "harmful":
        return load_harmful(name, n=n, seed=seed).samples
    return items_of(corpus, name)
