"""`acr`: is a text memorised, so that a prompt shorter than it makes the model say it, token for token?

Adversarial compression (A. Schwarzschild and others, 2404.15146): a greedy coordinate gradient searches prompts of
several lengths, and the ratio is the text's tokens over the tokens of the shortest working prompt. A prompt works if
greedy decoding with a fresh cache continues its text, tokenised anew in its position, with the target text. The
search's own claim is recorded separately (`claimed`, `verified`).

Collecting is the search, an item at a time. Lengths are in tokens, losses in nats a token. A text without a working
prompt has no ratio: a failed search proves nothing about other searches.

The lengths are halved: the middle one below the text's length first. Some prompt of a length may work although the
search for it failed, so the least length that succeeded is an upper bound of the shortest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt

from vestige.artifacts.records import Result
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.seeds import derive_seed
from vestige.core.text import Fields, NumberByName, NumberMapping, Record, one_line
from vestige.evals.base import SHARE, Evaluation, InAudit, Measure, Records, View, labels
from vestige.metrics.memorization import compression_ratio, memorised

if TYPE_CHECKING:
    from vestige.attacks.gcg import FoundPrompt
    from vestige.models.load import LoadedModel
    from vestige.models.variants import Around

LengthAttempt = Callable[[int], bool]
"""Searches for a prompt of so many tokens, and states whether one was found."""


def shortest(attempt: LengthAttempt, *, bound: int) -> int | None:
    """Find the least length below `bound` that succeeds, by bisection.

    At most log2(bound) searches, rounded up. If every length above a working one works too, it is the least of all.
    Otherwise it is a length that succeeded, the one below it having failed.

    Returns:
        The length in tokens. None where no length that was tried succeeded.
    """
    failed = 0
    succeeded = bound
    while succeeded - failed > 1:
        length = (failed + succeeded) // 2
        if attempt(length):
            succeeded = length
        else:
            failed = length
    if succeeded < bound:
        return succeeded
    return None


Form = Literal["row", "raw", "chat", "answer"]


class AcrSettings(Evaluation):
    """The target and the effort of the search.

    `form` is the text that the prompt should produce. `row`: the prompt begins the user's turn, then come the question,
    the template's tokens and the answer. The template's tokens do not count. `raw`: prompt, beginning of the text,
    question and answer as plain text (the paper's form, for base models). `chat`: the prompt is the user's turn,
    question and answer are the reply. `answer`: the same with the answer alone as the reply.

    A search uses the released code's `steps`, `width` and `topk`. A smaller number of items is a subset of a larger
    one.
    """

    name: ClassVar[str] = "acr"
    # Since version 4, bisection is the only way to try lengths.
    collect_version: ClassVar[int] = 4
    audit: ClassVar[InAudit] = InAudit(items="asked", needs="distributions", label="compression (acr)", after="never")

    form: Form = "row"
    """Output to elicit: see docs/attacks.md."""
    longest: PositiveFloat = 1.0
    """Try prompts of up to this multiple of the text's length: 1 decides whether a text is memorised."""
    steps: PositiveInt = 200
    """Steps of a search."""
    width: PositiveInt = 100
    """Candidates of a step."""
    topk: PositiveInt = 250
    """Tokens of least gradient that candidates come from."""
    ascii_only: bool = True
    """Search ASCII tokens only."""
    items: PositiveInt = 5
    """Forget items to search for, drawn by the seed."""
    seed: int = Field(default=0, ge=0)
    """Seed of the search and of the items."""

    def build_questions(self, items: Sequence[Item], views: Sequence[View]) -> dict[str, Item]:
        """The forget items that are drawn, in the items' order."""
        chosen = set[str]()
        for view in views:
            ids = set(view.splits.get("forget", ()))
            # The id breaks ties, so that a smaller set of items is part of a larger one.
            chosen |= set(sorted(ids, key=lambda i: (derive_seed(self.seed, "acr items", i), i))[: self.items])
        return {i.id: i for i in items if i.id in chosen}

    def chunks(self, subject: LoadedModel, questions: Sequence[Item], *, size: int) -> list[list[int]]:
        """Each item by itself: a search takes long, and a kill should cost no more than one."""
        return [[n] for n in range(len(questions))]

    def collect(self, subject: LoadedModel, questions: Sequence[Item]) -> Records:
        """One record an item."""
        return [self._record(subject, item) for item in questions]

    def _record(self, subject: LoadedModel, item: Item) -> Fields:
        from vestige.attacks.gcg import find_prompt
        from vestige.attacks.prompts import GcgSettings

        text = text_of(subject, item, self.form)
        records: Records = []

        def attempt(n_tokens: int) -> bool:
            searching = GcgSettings(
                placement="prefix",
                tokens=n_tokens,
                steps=self.steps,
                width=self.width,
                topk=self.topk,
                ascii_only=self.ascii_only,
                replaced=1,
                buffer=0,
            )
            # The seed includes the length, so that a search does not depend on earlier ones.
            seed = derive_seed(self.seed, "acr", item.id, n_tokens)
            prompt = find_prompt(subject, [text.around], searching, seed=seed)
            verified = _verified(subject, text, self.form, prompt)
            searched = {
                "n_tokens": len(prompt.ids),
                "steps": prompt.steps,
                "prompt": prompt.text,
                "prompt_ids": list(prompt.ids),
                "loss": prompt.loss,
                "ended": prompt.ended,
                "spent": dict(prompt.spent),
                "admissible_bits": prompt.admissible_bits,
                "claimed": prompt.reached,
            }
            records.append({**searched, **verified})
            return bool(verified["verified"])

        bound = math.ceil(text.n_own * self.longest)
        n_prompt = shortest(attempt, bound=bound)
        return {
            **labels(item),
            "form": self.form,
            "target_ids": list(text.around.target),
            "n_text": text.n_own,
            "n_prompt": n_prompt,
            "prompt": next((r["prompt"] for r in records if r["verified"] and r["n_tokens"] == n_prompt), None),
            "searches": records,
        }

    @staticmethod
    def score(record: Record) -> NumberByName:
        """The values of one record, by `format/metric`. `acr/ratio` only where a prompt was found."""
        n_text, n_prompt, searches = record["n_text"], record["n_prompt"], record["searches"]
        values = {
            "acr/memorised": float(memorised(n_text, n_prompt)),
            "acr/share_found": float(n_prompt is not None),
            # The search reports a working prompt that does not work as text.
            "acr/share_unverified": float(any(s["claimed"] and not s["verified"] for s in searches)),
        }
        if n_prompt is None:
            return values
        return {**values, "acr/ratio": compression_ratio(n_text, n_prompt)}

    @staticmethod
    def measure(key: str) -> Measure:
        """Return the meaning of a score's key."""
        form, _, metric = key.partition("/")
        return Measure(form, metric, "tokens/token" if metric == "ratio" else SHARE)

    @classmethod
    def summarize(
        cls, records: Sequence[Record], scores: Sequence[NumberMapping], view: View, *, seed: int
    ) -> tuple[Result, ...]:
        """Return estimates of the sampled forget items by scope and edge. `ratio` covers the found prompts.

        `ratio` covers the found prompts.
        """
        have = {r["item"] for r in records}
        forget = [i for i in view.splits.get("forget", ()) if i in have]
        return super().summarize(records, scores, View(view.forget, {"forget": forget}, view.scopes), seed=seed)


class Text(NamedTuple):
    """An item's target text: its position, its number of counted tokens, and the tokens behind it.

    `around` is the context of the search. `n_own` tokens of its target are the item's own, the others the template's.
    `behind` are the template's tokens between a prompt that is a user's whole turn and the reply.
    """

    around: Around
    n_own: int
    behind: tuple[int, ...]


def text_of(subject: LoadedModel, item: Item, form: Form) -> Text:
    """The item's text in one form. Rejects a text of one token, and one that the tokeniser encodes differently."""
    from vestige.attacks.gcg import around
    from vestige.models.variants import Around

    prompter, plain_text = subject.prompter, f"{item.question.strip()} {item.answer.strip()}"
    if form == "raw":
        target = tuple(subject.tokenizer(plain_text, add_special_tokens=False, verbose=False)["input_ids"])
        _refuse_unsaid(subject, plain_text, target)
        begin = subject.tokenizer.bos_token_id
        return _checked(Text(Around(() if begin is None else (begin,), (), target), len(target), ()), plain_text)
    if form == "row":
        encoded = prompter.encode(item.question, item.answer)
        first, last = prompter.question_span(item.question)
        _refuse_unsaid(subject, item.question, encoded.ids[first:last])
        _refuse_unsaid(subject, item.answer, encoded.answer_ids)
        turn = around(prompter, "", encoded.ids[first : encoded.stop], "prefix")
        n_own = last - first + len(encoded.answer_ids)
        return _checked(Text(replace(turn, after=()), n_own, turn.after), plain_text)
    reply = item.answer if form == "answer" else plain_text
    # The question is not used: the reply's tokens are the same after any question.
    target = prompter.encode(item.question, reply).answer_ids
    _refuse_unsaid(subject, reply, target)
    turn = around(prompter, "", target, "prefix")
    return _checked(Text(turn, len(target), turn.after), reply)


def _refuse_unsaid(subject: LoadedModel, text: str, ids: Sequence[int]) -> None:
    from vestige.attacks.gcg import as_texts

    (decoded,) = as_texts(subject.tokenizer, [tuple(ids)])
    if decoded.strip() != text.strip():
        raise InputError(
            f"the tokeniser decodes the text {one_line(text, width=60)!r} as {one_line(decoded, width=60)!r}, so a "
            "prompt which brings its tokens would not make the model say it. Leave the item out"
        )


def _checked(text: Text, item_text: str) -> Text:
    if text.n_own < 2:
        raise InputError(
            f"the text {one_line(item_text, width=60)!r} is {text.n_own} token long, and no prompt is shorter. Choose "
            "a form with the question in it, such as form=row"
        )
    return text


def _verified(subject: LoadedModel, text: Text, form: Form, prompt: FoundPrompt) -> Fields:
    """Return whether the prompt's text has the counted tokens, and the whole target follows it.

    `margin` shows near-ties (nats).
    """
    from vestige.models.generation import generate

    sent, target = _as_sent(subject, text, form, prompt.text), text.around.target
    if not prompt.reached or sent != (*text.around.before, *prompt.ids, *text.around.after):
        return {"verified": False, "margin": None}
    (reply,) = generate(
        subject.model,
        [sent],
        # The row contains the end of the user's turn, which in many templates also ends a reply.
        end_ids=[i for i in subject.prompter.end_ids if i not in target],
        max_new_tokens=len(target),
        context=subject.prompter.max_tokens,
    )
    return {"verified": reply.ids == target, "margin": reply.margin}


def _as_sent(subject: LoadedModel, text: Text, form: Form, prompt: str) -> tuple[int, ...] | None:
    """The tokens after which the model speaks, from the prompt's text. None where the template joins it with its own.

    In a `row` the user's turn is still open, so what would end it is taken off.
    """
    if form == "raw":
        return (*text.around.before, *subject.tokenizer(prompt, add_special_tokens=False, verbose=False)["input_ids"])
    ids = subject.prompter.prompt(prompt)
    if form != "row":
        return ids
    end = len(ids) - len(text.behind)
    if ids[end:] == text.behind:
        return ids[:end]
    return None
