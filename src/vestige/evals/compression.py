"""`acr`: is a text memorised, so that a prompt shorter than it makes the model say it, token for token?

Adversarial compression (A. Schwarzschild and others, 2404.15146): a greedy coordinate gradient looks for prompts of
several lengths (`attacks.minimal_prompt`), and the ratio is the text's tokens over those of the shortest that works. It
works where its text, tokenised anew and put where it is to stand, is followed by the text in greedy decoding with a
fresh cache; that the search says so is kept apart (`claimed`, `verified`).

Collecting is the search, an item at a time. Lengths are in tokens, losses in nats a token. What was not found has no
ratio: a failed search shows that this search failed, and no more.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt

from vestige.artifacts.records import Result
from vestige.attacks.gcg import FoundPrompt, GcgSettings, find_prompt
from vestige.attacks.minimal_prompt import SCHEDULES
from vestige.attacks.placement import around
from vestige.attacks.vocabulary import as_texts
from vestige.attacks.warm_start import Start, warm_start
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.seeds import derive_seed, generator
from vestige.core.settings import Settings
from vestige.core.text import one_line
from vestige.evals.base import Record, View
from vestige.evals.summing import SHARE, Measure, results
from vestige.metrics.compression import compression_ratio, memorised
from vestige.models.generation import generate
from vestige.models.load import LoadedModel
from vestige.models.variants import Around

NAME = "acr"
COLLECT_VERSION = 1
"""Raised when the same model and item would give another record."""
SUMMARY_VERSION = 1
"""Raised when the same records would give other estimates."""

Form = Literal["row", "raw", "chat", "answer"]


class AcrSettings(Settings):
    """What is searched for, and with how much.

    `form` is what the prompt must bring: `row`, prompt at the start of the user's turn, then the question, what the
    template puts between, and the answer, of which the template's own tokens are not counted; `raw`, prompt after the
    beginning of the text, then question and answer as plain text (the paper's, for base models); `chat`, the prompt as
    the user's turn, question and answer as the reply; `answer`, the same with the answer alone as the reply.

    `schedule` is `bisection` or the released code's `stepwise`. Prompts shorter than `longest` texts are tried: 1 for
    whether a text is memorised, 5 as in the released code. A search has `steps` of `width` candidates from the `topk`
    tokens of least gradient at each place: its figures too. With `warm` a search begins at a longer prompt that was
    found or at what a shorter, failed one came to (`attacks.warm_start`), else at random tokens. `items` forget items
    of each forget set are asked about, drawn by `seed`; those of fewer are among those of more.
    """

    form: Form = "row"
    schedule: Literal["bisection", "stepwise"] = "bisection"
    longest: PositiveFloat = 1.0
    steps: PositiveInt = 200
    width: PositiveInt = 100
    topk: PositiveInt = 250
    ascii_only: bool = True
    screen: Literal["none", "bfloat16"] = "none"
    warm: bool = False
    items: PositiveInt = 5
    seed: int = Field(default=0, ge=0)


SETTINGS = AcrSettings


def asked(items: Sequence[Item], views: Sequence[View], settings: AcrSettings) -> dict[str, Item]:
    """The forget items that are drawn, in the items' order."""
    forget = [view.splits.get("forget", ()) for view in views]
    chosen = {i for ids in forget for i in drawn(ids, settings.items, seed=settings.seed)}
    return {i.id: i for i in items if i.id in chosen}


def drawn(ids: Sequence[str], n: int, *, seed: int) -> list[str]:
    """`n` of the items by the seed, all where there are fewer; those of a smaller `n` are among them."""
    return sorted(set(ids), key=lambda i: (derive_seed(seed, "acr items", i), i))[:n]


def digest(asked: Mapping[str, Item]) -> str:
    """Content id of the items and of the labels that records carry."""
    return content_id([[i.id, i.group, i.attribute] for i in asked.values()], length=32)


def chunks(subject: LoadedModel, asked: Sequence[Item], *, size: int) -> list[list[int]]:
    """Each item by itself: a search takes long, and a kill should cost no more than one."""
    return [[n] for n in range(len(asked))]


def collect(subject: LoadedModel, asked: Sequence[Item], settings: AcrSettings) -> list[dict[str, Any]]:
    """One record an item."""
    return [_record(subject, item, settings) for item in asked]


class Text(NamedTuple):
    """What a prompt must bring of one item: where it stands, how many tokens count, and what stands behind it.

    `around` is what is searched in; `n_own` tokens of its target are the item's own, the others the template's.
    `behind` are the template's tokens between a prompt that is a user's whole turn and the reply.
    """

    around: Around
    n_own: int
    behind: tuple[int, ...]


def text_of(subject: LoadedModel, item: Item, form: Form) -> Text:
    """The item's text in one form. Refused: a text of one token, and one that the tokeniser says otherwise."""
    prompter, said = subject.prompter, f"{item.question.strip()} {item.answer.strip()}"
    if form == "raw":
        target = tuple(subject.tokenizer(said, add_special_tokens=False, verbose=False)["input_ids"])
        _refuse_unsaid(subject, said, target)
        begin = subject.tokenizer.bos_token_id
        return _checked(Text(Around(() if begin is None else (begin,), (), target), len(target), ()), said)
    if form == "row":
        encoded = prompter.encode(item.question, item.answer)
        first, last = prompter.question_span(item.question)
        _refuse_unsaid(subject, item.question, encoded.ids[first:last])
        _refuse_unsaid(subject, item.answer, encoded.answer_ids)
        turn = around(prompter, "", encoded.ids[first : encoded.stop], "prefix")
        own = last - first + len(encoded.answer_ids)
        return _checked(Text(replace(turn, after=()), own, turn.after), said)
    reply = item.answer if form == "answer" else said
    # The question is not read: the reply's tokens are the same behind any.
    target = prompter.encode(item.question, reply).answer_ids
    _refuse_unsaid(subject, reply, target)
    turn = around(prompter, "", target, "prefix")
    return _checked(Text(turn, len(target), turn.after), reply)


def _refuse_unsaid(subject: LoadedModel, text: str, ids: Sequence[int]) -> None:
    (said,) = as_texts(subject.tokenizer, [tuple(ids)])
    if said.strip() != text.strip():
        raise InputError(
            f"the tokeniser says the text {one_line(text, width=60)!r} as {one_line(said, width=60)!r}, so that a "
            "prompt which brings its tokens would not make the model say it; leave the item out"
        )


def _checked(text: Text, said: str) -> Text:
    if text.n_own < 2:
        raise InputError(
            f"the text {one_line(said, width=60)!r} is {text.n_own} token long, and no prompt is shorter; choose a "
            "form with the question in it, such as form=row"
        )
    return text


def _record(subject: LoadedModel, item: Item, settings: AcrSettings) -> dict[str, Any]:
    text = text_of(subject, item, settings.form)
    searches: list[dict[str, Any]] = []
    prompts: list[FoundPrompt] = []

    def attempt(n_tokens: int, steps: int) -> bool:
        # Of the length too, so that without warm starts a search does not depend on those before it.
        seed = derive_seed(settings.seed, "acr", item.id, n_tokens)
        start = _start(subject, text, prompts if settings.warm else (), settings, n_tokens, seed)
        prompts.append(
            find_prompt(subject, [text.around], _searching(settings, n_tokens, steps, start.text), seed=seed)
        )
        verified = _verified(subject, text, settings.form, prompts[-1])
        searches.append({"granted_steps": steps, **_told(prompts[-1], start), **verified})
        return bool(verified["verified"])

    minimal = SCHEDULES[settings.schedule](
        attempt, bound=math.ceil(text.n_own * settings.longest), steps=settings.steps
    )
    return {
        "item": item.id,
        "question": item.question,
        "answer": item.answer,
        "edge": item.edge,
        "group": item.group,
        "attribute": item.attribute,
        "form": settings.form,
        "target_ids": list(text.around.target),
        "n_text": text.n_own,
        "n_prompt": minimal.n_tokens,
        "prompt": next((s["prompt"] for s in searches if s["verified"] and s["n_tokens"] == minimal.n_tokens), None),
        "searches": searches,
    }


def _start(
    subject: LoadedModel, text: Text, earlier: Sequence[FoundPrompt], settings: AcrSettings, n_tokens: int, seed: int
) -> Start:
    if not earlier:
        return Start("", {})
    rng = generator(seed, "warm start")
    return warm_start(subject, text.around, earlier, n_tokens, ascii_only=settings.ascii_only, rng=rng)


def _searching(settings: AcrSettings, n_tokens: int, steps: int, initial: str) -> GcgSettings:
    return GcgSettings(
        placement="prefix",
        tokens=n_tokens,
        steps=steps,
        width=settings.width,
        topk=settings.topk,
        ascii_only=settings.ascii_only,
        screen=settings.screen,
        initial=initial,
        replaced=1,
        buffer=0,
        restarts=1,
    )


def _told(found: FoundPrompt, start: Start) -> dict[str, Any]:
    """What a record keeps of one search; what its start cost is in what was spent."""
    spent = {name: n + start.spent.get(name, 0) for name, n in found.spent.items()}
    return {
        "n_tokens": len(found.ids),
        "steps": found.steps,
        "initial": start.text,
        "prompt": found.text,
        "prompt_ids": list(found.ids),
        "loss": found.loss,
        "ended": found.ended,
        "spent": spent,
        "admissible_bits": found.admissible_bits,
        "claimed": found.reached,
    }


def _verified(subject: LoadedModel, text: Text, form: Form, found: FoundPrompt) -> dict[str, Any]:
    """Whether the prompt's text is the tokens that are counted, and the whole target follows it.

    `margin` tells of near-ties (nats).
    """
    prompt, target = _as_sent(subject, text, form, found.text), text.around.target
    if not found.reached or prompt != (*text.around.before, *found.ids, *text.around.after):
        return {"verified": False, "margin": None}
    (reply,) = generate(
        subject.model,
        [prompt],
        # In a row stands what ends the user's turn, which in many templates ends a reply too.
        end_ids=[i for i in subject.prompter.end_ids if i not in target],
        max_new_tokens=len(target),
        context=subject.prompter.max_tokens,
    )
    return {"verified": reply.ids == target, "margin": reply.margin}


def _as_sent(subject: LoadedModel, text: Text, form: Form, prompt: str) -> tuple[int, ...] | None:
    """The tokens after which the model speaks, from the prompt's text; None where the template joins it with its own.

    In a `row` the user's turn is still open, so what would end it is taken off.
    """
    if form == "raw":
        return (*text.around.before, *subject.tokenizer(prompt, add_special_tokens=False, verbose=False)["input_ids"])
    ids = subject.prompter.prompt(prompt)
    if form != "row":
        return ids
    end = len(ids) - len(text.behind)
    return ids[:end] if ids[end:] == text.behind else None


def score(record: Record) -> dict[str, float]:
    """The values of one record, by `format/metric`; `acr/ratio` only where a prompt was found."""
    n_text, n_prompt, searches = record["n_text"], record["n_prompt"], record["searches"]
    values = {
        "acr/memorised": float(memorised(n_text, n_prompt)),
        "acr/share_found": float(n_prompt is not None),
        # A prompt that the search took for one that works, and that does not as text.
        "acr/share_unverified": float(any(s["claimed"] and not s["verified"] for s in searches)),
    }
    return values if n_prompt is None else {**values, "acr/ratio": compression_ratio(n_text, n_prompt)}


def _measure(key: str) -> Measure:
    form, _, metric = key.partition("/")
    return Measure(form, metric, "tokens/token" if metric == "ratio" else SHARE)


def summarize(
    records: Sequence[Record], scores: Sequence[Mapping[str, float]], view: View, *, seed: int
) -> tuple[Result, ...]:
    """The estimates of the forget items that were drawn, of every scope and edge; `ratio` is of those found."""
    have = {r["item"] for r in records}
    forget = [i for i in view.splits.get("forget", ()) if i in have]
    return results(records, scores, View(view.forget, {"forget": forget}, view.scopes), _measure, seed=seed)
