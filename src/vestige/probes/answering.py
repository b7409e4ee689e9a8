"""The parties of a probe: models, with their answers stored on disk, and a judge.

A model is in memory or behind an address. But for rounding an answer follows from the prompt and the seed, not from the
other prompts. Equal prompts of one call share one answer. An answer that did not come is None and never an empty text,
which would pass for a hole.

A kept answer is not asked for again. A killed run repeats only the requests under way: in memory a batch, for a server
the open requests. Missing or failed answers are not stored, and are requested again.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol, runtime_checkable

from vestige.artifacts.holes import LATENT_J
from vestige.artifacts.layout import ProbeFolder
from vestige.core.errors import InputError
from vestige.core.files import append_lines, json_line, read_log
from vestige.core.ids import content_id
from vestige.core.items import ItemTuple
from vestige.core.seeds import derive_seed
from vestige.core.text import Fields, Record, TextByName, TextMapping
from vestige.judges.base import Grader, Judge, Judgement, Request
from vestige.judges.grounded import GroundedJudge
from vestige.judges.local import grader_of
from vestige.judges.spec import GroundedSettings, JudgeSpec
from vestige.metrics.answers import contains, normalised
from vestige.models.embedder import Embedder
from vestige.models.generation import Reply, Sampling
from vestige.models.load import LoadedModel, PaidEngine, finite_logits
from vestige.probes.questions import AnswerSettings
from vestige.steps.subjects import Asked


@runtime_checkable
class Answerer(Protocol):
    """A model that answers prompts."""

    def answer(self, prompts: Sequence[str], *, seed: int) -> list[str | None]:
        """Return one answer to each prompt, in order, or None if there is none."""


_PLAIN_QUESTION = "What is the capital of France?"


@dataclass
class LocalAnswerer:
    """A model with its engine. A prompt that exceeds its context, or that its server refuses, has no answer."""

    loaded: LoadedModel
    settings: AnswerSettings = field(default_factory=AnswerSettings)

    def answer(self, prompts: Sequence[str], *, seed: int) -> list[str | None]:
        """One answer each, in order."""
        answers: TextByName = {}
        self.answer_each(prompts, answers.update, seed=seed)
        return [answers.get(prompt) for prompt in prompts]

    def answer_each(self, prompts: Sequence[str], keep: Callable[[TextMapping], None], *, seed: int) -> None:
        """Pass answers to `keep` by prompt, in portions, or one by one if they cost money.

        Raises:
            NotFinite: Logits are no numbers.
            InputError: A server refuses a plain question as well: then the settings are at fault, or the account.
        """
        if isinstance(self.loaded.engine, PaidEngine):
            return self._answer_paid(self.loaded.engine, prompts, keep, seed)
        distinct = list(dict.fromkeys(prompts))
        for start in range(0, len(distinct), PORTION):
            encoded = self._encoded(distinct[start : start + PORTION])
            with finite_logits(self.loaded):
                replies = self.loaded.engine.generate(list(encoded.values()), **self._how(list(encoded), seed))
            texts = (self.loaded.prompter.decode(reply.ids) for reply in replies)
            keep(dict(zip(encoded, texts, strict=True)))

    def _answer_paid(
        self, engine: PaidEngine, prompts: Sequence[str], keep: Callable[[TextMapping], None], seed: int
    ) -> None:
        encoded = self._encoded(prompts)
        sent, refused = list(encoded), list[str]()

        def take(n: int, reply: Reply | None) -> None:
            if reply is None:
                refused.append(sent[n])
            else:
                keep({sent[n]: self.loaded.prompter.decode(reply.ids)})

        engine.generate_each(list(encoded.values()), take, **self._how(sent, seed))
        # A single refusal is the prompt's fault. If a plain question is refused too, the settings or the account are
        # wrong.
        if refused:
            plain = self.loaded.prompter.prompt(_PLAIN_QUESTION)
            self.loaded.engine.generate([plain], **self._how([_PLAIN_QUESTION], seed))

    def _encoded(self, prompts: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Return the tokens of each prompt that fits into the context. Equal prompts appear once."""
        encoded = {}
        for prompt in dict.fromkeys(prompts):
            with contextlib.suppress(InputError):
                # Without a template, an empty prompt has no tokens and cannot be sent.
                if ids := self.loaded.prompter.prompt(prompt):
                    encoded[prompt] = ids
        return encoded

    def _how(self, prompts: Sequence[str], seed: int) -> Fields:
        """Return the engine's settings for these prompts."""
        prompter, temperature = self.loaded.prompter, self.settings.temperature
        # Each prompt has its own seed, so other prompts do not change its answer.
        seeds = tuple(derive_seed(seed, "answer", prompt) for prompt in prompts)
        return {
            "end_ids": prompter.end_ids,
            "max_new_tokens": self.settings.max_tokens,
            "context": prompter.max_tokens,
            "sampling": Sampling(temperature, 1.0, seeds) if temperature else None,
        }


VERSION = 3
"""The version of stored lines. Lines of another version are ignored."""
PORTION = 64
"""Prompts that are answered together and kept as one line: the most that a kill can cost.

Answers that are paid for are kept one by one.
"""


@dataclass
class KeptAnswers:
    """Stores the answers of `inner` in `folder`. `identity` covers everything that can change an answer."""

    inner: LocalAnswerer
    folder: Path
    identity: Record

    def answer(self, prompts: Sequence[str], *, seed: int) -> list[str | None]:
        """Return one answer each, in order. Stored answers are reused."""
        path = self.folder / f"{content_id({'version': VERSION, 'asked': dict(self.identity), 'seed': seed})}.jsonl"
        stored: TextByName = {}
        for portion in read_log(path):
            stored |= portion["answers"]
        missing = [prompt for prompt in dict.fromkeys(prompts) if prompt not in stored]

        def keep(new: TextMapping) -> None:
            append_lines(path, [json_line({"answers": new})])
            stored.update(new)

        self.inner.answer_each(missing, keep, seed=seed)
        return [stored.get(prompt) for prompt in prompts]


def answerer(who: Asked, settings: AnswerSettings, folder: ProbeFolder) -> Answerer:
    """Return a model as an answerer with stored answers."""
    return KeptAnswers(LocalAnswerer(who.loaded, settings), folder.answers, {"model": who.id, **settings.identity()})


def grounded_grader(target: Asked, embedder: Embedder, settings: GroundedSettings) -> Grader:
    """Return the judge that grades by the target's own answers."""
    if not target.loaded.here:
        raise InputError(f"--judge grounded reads the target's own likelihoods, and {target.name} is behind an address")
    judge = GroundedJudge(target.loaded, embedder, settings.own_tokens, settings.own_samples)
    return Grader(judge, {"judge": "grounded", "target": target.id, "embedder": embedder.digest, **judge.identity()})


@dataclass(frozen=True)
class KnownAnswersJudge:
    """Gives a judge that reads `truth` the true answer, for data with one answer to each question (`normalised`).

    A question is valid where the data ask it, in either wording, and J is 10 where it is answered wrongly.
    """

    judge_told: Judge
    items: ItemTuple

    @property
    def name(self) -> str:
        """The name in tables."""
        return f"{self.judge_told.name}, with known answers"

    @property
    def digest(self) -> str:
        """The content id of all known answers."""
        return content_id(self._truths, length=32)

    def judge(self, requests: Sequence[Request]) -> list[Judgement]:
        """One judgement each, in order."""
        with_truths = [replace(r, truth=r.truth or self._truths.get(normalised(r.question), "")) for r in requests]
        # The validity of a question in the data needs no judge.
        for_judge = [r for r in with_truths if r.task != "validity"]
        judgements = iter(self.judge_told.judge(for_judge) if for_judge else [])
        return [
            Judgement(float(self._asks(r))) if r.task == "validity" else self._with_truth(r, next(judgements))
            for r in with_truths
        ]

    @cached_property
    def _truths(self) -> TextByName:
        truths: TextByName = {}
        for item in self.items:
            truths.setdefault(normalised(item.question), item.answer)
            if item.paraphrase:
                truths.setdefault(normalised(item.paraphrase), item.answer)
        return truths

    def _asks(self, request: Request) -> bool:
        return normalised(request.question) in self._truths

    def _with_truth(self, request: Request, judgement: Judgement) -> Judgement:
        if request.task != "reward" or judgement.score is None:
            return judgement
        if not self._asks(request):
            return Judgement(0.0, {**judgement.values, "valid": 0.0})
        if contains(request.answer, request.truth):
            return replace(judgement, values={**judgement.values, "valid": 1.0})
        # A J of 10 means gibberish alone (`judges.tasks.reward`), so the parts must agree with it.
        return Judgement(LATENT_J, {**judgement.values, "valid": 1.0, "gibberish": 1.0})


def told(grader: Grader, items: ItemTuple) -> Grader:
    """The judge, with the true answers of these items."""
    judge = KnownAnswersJudge(grader.judge, items)
    return Grader(judge, {**grader.identity, "known_answers": judge.digest}, grader.writer)


@dataclass(frozen=True)
class Participants:
    """The models, embedder and judge of a probe, each loaded at first use."""

    take_target: Callable[[], Asked]
    take_unlearned: Callable[[], Asked]
    take_grader: Callable[["Participants"], Grader]
    take_embedder: Callable[[], Embedder]
    answers: AnswerSettings
    seed: int

    @cached_property
    def target(self) -> Asked:
        """The target."""
        return self.take_target()

    @cached_property
    def unlearned(self) -> Asked:
        """The unlearned model."""
        return self.take_unlearned()

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder of prompts and answers."""
        return self.take_embedder()

    @cached_property
    def grader(self) -> Grader:
        """The judge, with all that can change a verdict."""
        return self.take_grader(self)

    def graded_by(self, judge: JudgeSpec, replies: Path, device: str = "auto") -> Grader:
        """Return the judge of a spec. `replies` stores a server's replies. A grounded judge uses the target."""
        if isinstance(judge.settings, GroundedSettings):
            return grounded_grader(self.target, self.embedder, judge.settings)
        return grader_of(judge, replies, device)
