"""The sources of a search for knowledge holes: a forget set of questions, harmful answers or texts."""

from collections.abc import Sequence
from dataclasses import dataclass

from vestige.core.errors import InputError
from vestige.core.items import ForgetSet, Item
from vestige.core.text import one_line
from vestige.data.corpus import Corpus, NamedSplits, SourceSettings, items_of, named_splits, open_corpus, without
from vestige.data.texts import Passage, form_of, load_harmful, texts_in


@dataclass(frozen=True)
class ProbeSources:
    """The forget and the retain set: items in `splits`, by split, and texts with them, each where there are any.

    `corpus` is the items' source. Of texts it holds none.
    """

    corpus: Corpus
    splits: NamedSplits
    forget_texts: tuple[Passage, ...] = ()
    retain_texts: tuple[Passage, ...] = ()

    @property
    def forget(self) -> tuple[Item | Passage, ...]:
        """Return the forget set."""
        return self.forget_texts or self.splits.splits["forget"]

    @property
    def retain(self) -> tuple[Item | Passage, ...]:
        """Return the known retain set."""
        return self.retain_texts or self.splits.splits.get("retain", ())


def probe_sources(
    settings: SourceSettings,
    forget: str,
    *,
    retain: str | None = None,
    n_forget: int | None = None,
    before: Sequence[ForgetSet] = (),
) -> ProbeSources:
    """The sets when `forget` is forgotten and the rest of the data, or what `retain` names, is kept.

    For texts and harmful data, `n_forget` items are drawn by `split_seed`, or all are used. Questions have no such
    number: a model forgets its whole forget set. Items in `before` are not retained (`named_splits`).
    """
    retain_source = settings.data if retain is None else retain
    forget_form, kept_form = form_of(forget), form_of(retain_source)
    if forget_form == "items":
        if n_forget is not None:
            raise InputError(
                f"--forget-n {n_forget} draws from texts and harmful answers, and {one_line(forget, width=60)} holds "
                "neither. Leave it out"
            )
        if kept_form == "items":
            corpus = open_corpus(settings)
            return ProbeSources(corpus, named_splits(corpus, forget, retain=retain, before=before))
    seed = settings.split_seed
    empty = Corpus(settings.data, settings, (), (), None)
    texts = texts_in(forget, forget_form, n=n_forget, seed=seed)
    items: tuple[Item, ...] = ()
    if forget_form == "harmful":
        items = load_harmful(forget, n=n_forget, seed=seed)
    elif not texts:
        items = items_of(empty, forget)
    kept_texts = settings.limited(texts_in(retain_source, kept_form, n=None, seed=seed))
    kept_items = () if kept_form != "items" else open_corpus(settings.model_copy(update={"data": retain_source})).items
    read = {p.id for p in texts}
    gone = set[str]().union(*(forget_set.items for forget_set in before))
    retained = without(kept_items, items)
    splits = {"forget": items, "retain": tuple(i for i in retained if i.id not in gone)}
    n_gone = len(retained) - len(splits["retain"])
    notes = (f"not kept: {n_gone} questions that were forgotten before",) if n_gone else ()
    named_sets = NamedSplits(forget, {name: part for name, part in splits.items() if part}, {}, notes)
    return ProbeSources(empty, named_sets, texts, tuple(p for p in kept_texts if p.id not in read))
