"""A searched prompt in an attack's step: the resumable search, the verified replies, bits and costs.

The search works on tokens and reports its success. That is not believed: the prompt's text is put into the questions it
was searched on as it is deployed, the chat is rendered and read anew, and the model replies from a fresh cache.

Lengths in bits are under the attacked model, of the prompt's tokens straight after the head of the chat.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vestige.artifacts.layout import AttackFolder
from vestige.artifacts.records import (
    CODE_BOUND,
    SEEN_BOUND,
    TOKENS_BOUND,
    KeptPrompt,
    PromptPart,
    SampleReply,
    read_prompt,
    write_prompt,
)
from vestige.attacks.enhanced import EnhancedSettings, find_prefix, samples_of
from vestige.attacks.gcg import (
    FoundPrompt,
    GcgSettings,
    Placement,
    SearchState,
    around,
    deployed,
    find_prompt,
    inner_texts,
    target_of,
    tokens_at,
)
from vestige.attacks.planning import Attack, attack_of
from vestige.core.errors import InputError
from vestige.core.progress import OnShare
from vestige.core.store import load as load_record
from vestige.core.store import save
from vestige.evals.base import Evaluation
from vestige.metrics.gains import code_length
from vestige.models.generation import generate
from vestige.models.load import LoadedModel
from vestige.models.prompts import Encoded
from vestige.models.scoring import logits_budget, score_answers
from vestige.steps.evaluate import Subject, loaded_subject

VERSION = 4
"""Raised when the same search would come out as another prompt or other bits. Since 4 a bfloat16 screen can choose."""


@dataclass(frozen=True)
class AttackRequest:
    """One attack, its evaluations, the forget set's selector, the seed.

    A search for a prefix has a `guide`, the target, whose words it is to bring.
    """

    attack: Attack
    evals: Mapping[str, Evaluation]
    forget: str
    seed: int
    guide: Subject | None = None


class _Wanted(NamedTuple):
    """The tokens that the prompt is to bring after a question."""

    question: str
    ids: tuple[int, ...]


def search_identity(search: AttackRequest, subject: Subject) -> dict[str, Any]:
    """Return everything except the attack's plan and the subject that decides the found prompt."""
    plan, guide = search.attack.plan, search.guide
    if attack_of(plan).guided != (guide is not None):
        raise InputError(
            f"the attack {plan.name!r} makes the model reply like the target and needs it. Name it with --target"
            if guide is None
            else f"the attack {plan.name!r} brings the answers in the data and has no use for a target. Leave it out"
        )
    if guide is not None and guide.made.digest.reads != subject.made.digest.reads:
        raise InputError(
            f"{guide.spec.name} and {subject.spec.name} have different tokenisers or chat templates, so no prompt is "
            "the same for both. Take a target of the same family"
        )
    guide_id = None if guide is None else [guide.made.digest.id, guide.spec.settings.get("dtype", "float32")]
    return {"search": {"version": VERSION, "guide": guide_id}}


def prompt_found(search: AttackRequest, folder: AttackFolder, loaded: LoadedModel, on_share: OnShare) -> KeptPrompt:
    """Return the prompt in the folder, or search it now. A stopped search continues."""
    if not folder.prompt.exists():
        write_prompt(folder, _measured(search, loaded, _find(search, folder, loaded, on_share)))
    folder.search.unlink(missing_ok=True)
    on_share(1.0)
    return read_prompt(folder)


@dataclass(frozen=True)
class _Result:
    placement: Placement
    targets: tuple[_Wanted, ...]
    prompt: FoundPrompt


def _find(search: AttackRequest, folder: AttackFolder, loaded: LoadedModel, on_share: OnShare) -> _Result:
    plan, keeper = search.attack.plan, KeptSearch(folder.search)
    where = f"settings of the attack {plan.name}"

    def tell(done: int, of: int) -> None:
        on_share(done / of)

    if search.guide is None:
        gcg = GcgSettings.build(plan.settings, where=where)
        items, placement = search.attack.shown, gcg.placement
        answers = [(i.question, target_of(loaded.prompter, i.question, i.answer, placement)) for i in items]
        targets = tuple(_Wanted(question, ids) for question, ids in answers)
        texts = [around(loaded.prompter, w.question, w.ids, gcg.placement) for w in targets]
        prompt = find_prompt(loaded, texts, gcg, seed=search.seed, keeper=keeper, on_step=tell)
        return _Result(placement, targets, prompt)
    prefix = EnhancedSettings.build(plan.settings, where=where)
    # The target attacked itself is one model in memory.
    same = loaded.digest() == search.guide.made.digest
    if same:
        guide = loaded
    else:
        guide = loaded_subject(search.guide)
    samples = samples_of(guide, [i.question for i in search.attack.shown], prefix)
    prompt = find_prefix(loaded, guide, samples, prefix, seed=search.seed, keeper=keeper, on_step=tell)
    targets = tuple(_Wanted(s.question, s.forced) for s in samples)
    return _Result("prefix", targets, prompt)


@dataclass(frozen=True)
class KeptSearch:
    """A search's state in a file, whole or absent. `prompt_search.search` continues from its `state`."""

    path: Path

    def load(self) -> SearchState | None:
        """The state after the last step that was done. None where there was none."""
        if self.path.exists():
            return load_record(self.path, SearchState)
        return None

    def save(self, state: SearchState) -> None:
        """Put the state after a step in the place of the one before it."""
        save(self.path, state)


def _measured(search: AttackRequest, loaded: LoadedModel, result: _Result) -> KeptPrompt:
    prompt = result.prompt
    first = result.targets[0]
    head = _head(loaded, first.question)
    stands = around(loaded.prompter, first.question, first.ids, result.placement)
    cut = {point: tokens_at(prompt.ids, point, seed=search.seed) for point in search.attack.plan.points}
    texts = inner_texts(loaded.tokenizer, list(cut.values()), spaced=stands.spaced)
    bits = _code_lengths(loaded, [(head, ids) for ids in (prompt.ids, *cut.values())])
    answer_bits = _seen_bits(search.attack, loaded, result)
    bounds = {TOKENS_BOUND: len(prompt.ids) * prompt.admissible_bits, CODE_BOUND: bits[0]}
    bounds |= {} if answer_bits is None else {SEEN_BOUND: answer_bits}
    samples = _replies(loaded, result)
    return KeptPrompt(
        text=prompt.text,
        ids=prompt.ids,
        placement=result.placement,
        loss=prompt.loss,
        claimed=prompt.reached,
        verified=all(s.verified for s in samples),
        ended=prompt.ended,
        steps=prompt.steps,
        admissible_bits=prompt.admissible_bits,
        spent={**prompt.spent, "items_shown": len(search.attack.shown)},
        seen_bits=answer_bits,
        bounds_bits=bounds,
        samples=samples,
        points={
            point: PromptPart(text, ids, length)
            for (point, ids), text, length in zip(cut.items(), texts, bits[1:], strict=True)
        },
    )


def prompt_bits(loaded: LoadedModel, prompt: KeptPrompt) -> dict[str, float]:
    """Return the code length of a prompt at each stage, under a model that may differ from its own."""
    head = _head(loaded, prompt.samples[0].question)
    lengths = _code_lengths(loaded, [(head, part.ids) for part in prompt.points.values()])
    return dict(zip(prompt.points, lengths, strict=True))


def _head(loaded: LoadedModel, question: str) -> tuple[int, ...]:
    """Return the chat's header before a prompt in first position."""
    # Which target follows changes nothing before it.
    head = around(loaded.prompter, question, (0,), "prefix").before
    if not head:
        raise InputError("the prompts of this model begin with no token of their own, so prompts cannot be measured")
    return head


def _code_lengths(loaded: LoadedModel, texts: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[float]:
    """Return the bits of each text after its context. Nothing takes no bits."""
    # Nothing ends a text, so its last token is named as what does.
    rows = [
        Encoded((*before, *ids), len(before), stop, stop - 1)
        for before, ids in texts
        if ids and (stop := len(before) + len(ids))
    ]
    scores = iter(score_answers(loaded.model, rows, token_budget=logits_budget(loaded.model)))
    return [code_length(np.array(next(scores).logp)) if ids else 0.0 for _, ids in texts]


def _seen_bits(attack: Attack, loaded: LoadedModel, result: _Result) -> float | None:
    """All that a search over texts saw of the answers. None where it saw more."""
    settings = attack_of(attack.plan)
    if isinstance(settings, EnhancedSettings) and settings.distance > 0:
        return None
    texts = [(loaded.prompter.prompt(w.question), w.ids) for w in result.targets]
    return sum(_code_lengths(loaded, texts))


def _replies(loaded: LoadedModel, result: _Result) -> tuple[SampleReply, ...]:
    """Return the model's replies to the search's questions with the prompt's text and without, and the goals."""
    prompter, searched = loaded.prompter, result.prompt
    questions = [target.question for target in result.targets]
    prompts = [prompter.prompt(deployed(question, searched.text, result.placement)) for question in questions]
    plain = [prompter.prompt(deployed(question, "", result.placement)) for question in questions]
    replies = generate(
        loaded.model,
        prompts + plain,
        end_ids=prompter.end_ids,
        max_new_tokens=max(len(w.ids) for w in result.targets),
        context=prompter.max_tokens,
    )
    samples = []
    for n, (target, prompt) in enumerate(zip(result.targets, prompts, strict=True)):
        scored = around(prompter, target.question, target.ids, result.placement)
        reply_ids, unprompted = (
            # The first tokens of a reply, the one that ended it included.
            (*reply.ids, *(prompter.end_ids[:1] if reply.finish == "stop" else ()))[: len(target.ids)]
            for reply in (replies[n], replies[len(prompts) + n])
        )
        samples.append(
            SampleReply(
                question=target.question,
                wanted=prompter.decode(target.ids),
                replied=prompter.decode(reply_ids),
                verified=reply_ids == target.ids,
                same_tokens=prompt == (*scored.before, *searched.ids, *scored.after),
                plain=prompter.decode(unprompted),
                plain_right=unprompted == target.ids,
            )
        )
    return tuple(samples)
