"""Latent probing: a policy learns to ask what the unlearned model answers badly (2511.00030, section 3.2).

An iteration: the policy writes questions, the model answers, a judge grades (J, 0..10, higher for a worse answer),
what is like earlier questions costs (`rewards`), everything is logged, and the policy learns. D_RL is what has J = 10.

A search that was killed goes on by the same call: the policy as it was last kept writes the same questions again, and
what the log holds of them is neither asked nor judged anew. `baselines` runs the same loop without learning.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from pydantic import PositiveInt
from transformers import PreTrainedTokenizerBase

from vestige.artifacts.holes import LATENT_J, Attempt, read_attempts
from vestige.artifacts.layout import ProbeFolder
from vestige.artifacts.records import read_rows
from vestige.core.errors import InputError
from vestige.core.files import append_lines, drop_torn_line, json_line
from vestige.core.seeds import derive_seed, generator
from vestige.judges.base import Judge, Judgement, Request
from vestige.metrics.answers import is_empty
from vestige.models.products import on_threads
from vestige.probes.answering import Answerer
from vestige.probes.rewards import Embeds, RewardSettings, Seen, neutral, reward
from vestige.training.policy.rollouts import Rollouts, sample
from vestige.training.policy.updates import Policy, collapsed

LATENT = "latent"
NO_ANSWER = "no answer"
"""The failure of an attempt to which the model, not the judge, said nothing."""
_HEADING = "Ask questions:"


class LatentSettings(RewardSettings):
    """`n_iterations` of the policy's rollouts, each begun by `n_examples` seeds; the policy is kept every `keep_every`.

    50 iterations of 128 rollouts are the paper's; the examples are Curiosity's, 2 to 3 (2402.19464).
    """

    n_iterations: PositiveInt = 50
    n_examples: PositiveInt = 3
    keep_every: PositiveInt = 1


@dataclass(frozen=True)
class Cast:
    """Who takes part: the policy with its tokeniser, the model that is asked, its judge, and who embeds questions."""

    policy: Policy
    tokenizer: PreTrainedTokenizerBase
    asked: Answerer
    judge: Judge
    embedder: Embeds | None = None


class Opening(NamedTuple):
    """What a policy goes on from, and the seeds that stand in it."""

    seed: str
    text: str


@dataclass(frozen=True)
class Search:
    """A way to search: its name, how the rollouts of an iteration (from 1 on) begin, and whether the policy learns."""

    source: str
    openings: Callable[[int], list[Opening]]
    learns: bool


class Iteration(NamedTuple):
    """What became of an iteration, for whoever watches. `n_latent` counts D_RL so far; `numbers` are the update's.

    `collapsed` says in a sentence why the policy is of no more use; empty while it is. Nothing stops for it.
    """

    number: int
    n_attempts: int
    n_judged: int
    n_latent: int
    numbers: Mapping[str, float]
    collapsed: str


OnIteration = Callable[[Iteration], None]


def unwatched(_: Iteration) -> None:
    """Nobody watches."""


def probe(
    cast: Cast,
    seeds: Sequence[str],
    settings: LatentSettings,
    *,
    seed: int,
    folder: ProbeFolder,
    on_iteration: OnIteration = unwatched,
) -> list[Attempt]:
    """All attempts of the search, which begin from `seeds` (D_adj); those in the folder are taken from there."""
    refuse_poor_seeds(seeds, settings.n_examples)
    policy = cast.policy.settings
    group = policy.group_size if policy.estimator == "grpo" else 1

    def openings(iteration: int) -> list[Opening]:
        # Neighbours of a group share an opening: GRPO compares replies to one prompt.
        return [listed(seeds, settings.n_examples, seed, iteration, row // group) for row in range(policy.n_rollouts)]

    return run(Search(LATENT, openings, learns=True), cast, settings, seed=seed, folder=folder, watch=on_iteration)


def refuse_poor_seeds(seeds: Sequence[str], n_examples: int) -> None:
    """Refuse fewer seeds than an opening shows, and seeds without words."""
    if len(set(seeds)) < n_examples or any(is_empty(s) for s in seeds):
        raise InputError(
            f"a search begins from {n_examples} different questions at a time, and {len(set(seeds))} are given or one "
            "is empty; give more seeds or lower n_examples"
        )


def listed(seeds: Sequence[str], n: int, seed: int, iteration: int, row: int) -> Opening:
    """A numbered list of `n` seeds, drawn for this row, and the next number."""
    distinct = sorted(set(seeds))
    drawn = generator(seed, "latent seeds", iteration, row).choice(len(distinct), n, replace=False)
    examples = [on_a_line(distinct[i]) for i in drawn]
    return Opening("\n".join(examples), f"{listed_questions(examples)}\n{n + 1}.")


def listed_questions(questions: Sequence[str]) -> str:
    """Questions as a numbered list under its heading, which a policy goes on with."""
    return "\n".join([_HEADING, *[f"{number}. {question}" for number, question in enumerate(questions, 1)]])


def on_a_line(text: str) -> str:
    """A seed as one entry of a list; a line break in it would begin another."""
    return " ".join(text.split())


def d_rl(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts with J = 10."""
    return [a for a in attempts if a.j == LATENT_J]


def run(
    search: Search, cast: Cast, settings: LatentSettings, *, seed: int, folder: ProbeFolder, watch: OnIteration
) -> list[Attempt]:
    """Search, or go on where the folder's search ended."""
    drop_torn_line(folder.attempts)
    drop_torn_line(folder.iterations)
    logged = read_attempts(folder)
    told = list(read_rows(folder.iterations, Iteration)) if folder.iterations.exists() else []
    if search.learns and folder.policy.exists():
        cast.policy.restore(folder.policy)
    elif cast.policy.n_steps:
        raise InputError(f"the policy has learnt for {cast.policy.n_steps} iterations already; begin with a fresh one")
    campaign = _Campaign(search, cast, settings, seed, folder, Seen(cast.embedder), _stops(cast.tokenizer))
    attempts: list[Attempt] = []
    with on_threads(cast.policy.settings.threads):
        for number in range(1, settings.n_iterations + 1):
            before = [a for a in logged if a.iteration == number]
            if number <= cast.policy.n_steps:
                if len(before) != cast.policy.settings.n_rollouts:
                    raise InputError(
                        f"{folder.attempts} lacks attempts of iteration {number}, from which the policy in "
                        f"{folder.policy} has learnt; delete both and search anew"
                    )
                campaign.seen.novelty([a.prompt for a in before])
                attempts += before
                if number <= len(told):
                    watch(told[number - 1])
                continue
            rollouts, new = campaign.attempts(number, before)
            attempts += new
            numbers = cast.policy.step(rollouts, [a.reward for a in new]) if search.learns else {}
            done = _iteration(number, new, attempts, numbers, collapsed(rollouts, cast.policy.settings))
            if number > len(told):
                append_lines(folder.iterations, [json_line(done._asdict())])
            if search.learns and (number % settings.keep_every == 0 or number == settings.n_iterations):
                cast.policy.save(folder.policy)
            watch(done)
    return attempts


def _iteration(
    number: int, new: Sequence[Attempt], attempts: Sequence[Attempt], numbers: Mapping[str, float], why: str
) -> Iteration:
    return Iteration(number, len(new), sum(a.j is not None for a in new), len(d_rl(attempts)), numbers, why)


@dataclass(frozen=True)
class _Campaign:
    """A search under way: what it was asked, what it has seen, and where it is logged."""

    search: Search
    cast: Cast
    settings: LatentSettings
    seed: int
    folder: ProbeFolder
    seen: Seen
    stop_ids: tuple[int, ...]

    def attempts(self, number: int, before: Sequence[Attempt]) -> tuple[Rollouts, list[Attempt]]:
        """The attempts of an iteration, all of them in the log; those `before` are there already."""
        openings = self.search.openings(number)
        rollouts = self._rollouts(openings, number)
        prompts = [question_of(self.cast.tokenizer, reply) for reply in rollouts.replies]
        # Before anybody is paid for what is not going to be logged.
        self._refuse_another(before, [replace(b, prompt=p) for b, p in zip(before, prompts, strict=False)])
        drafts = self._judged(openings, prompts, number, before)
        novelty = self.seen.novelty(prompts)
        worth = [None if d.j is None else reward(d.j, n, self.settings) for d, n in zip(drafts, novelty, strict=True)]
        if all(w is None for w in worth):
            raise InputError(
                f"none of the {len(drafts)} answers of iteration {number} was judged ({drafts[0].failure}, the first); "
                "look at the judge and run the same command again"
            )
        filled = neutral(worth, group_size=self._group)
        done = [replace(d, novelty=n, reward=w) for d, n, w in zip(drafts, novelty, filled, strict=True)]
        self._refuse_another(before, done[: len(before)])
        append_lines(self.folder.attempts, [json_line(asdict(attempt)) for attempt in done[len(before) :]])
        return rollouts, done

    def _refuse_another(self, logged: Sequence[Attempt], anew: Sequence[Attempt]) -> None:
        if list(logged) != list(anew):
            differs = next((a.id for a, b in zip(logged, anew, strict=False) if a != b), logged[-1].id)
            raise InputError(
                f"{self.folder.attempts} holds another search than this: with these settings, this seed and this "
                f"machine attempt {differs} comes out otherwise; choose another folder"
            )

    @property
    def _group(self) -> int:
        policy = self.cast.policy.settings
        return policy.group_size if self.search.learns and policy.estimator == "grpo" else policy.n_rollouts

    def _rollouts(self, openings: Sequence[Opening], number: int) -> Rollouts:
        policy = self.cast.policy.settings
        return sample(
            self.cast.policy,
            [tuple(self.cast.tokenizer(opening.text)["input_ids"]) for opening in openings],
            n_tokens=policy.n_tokens,
            temperature=policy.temperature,
            top_p=policy.top_p,
            stop_ids=self.stop_ids,
            seed=derive_seed(self.seed, "latent rollouts", number),
        )

    def _judged(
        self, openings: Sequence[Opening], prompts: Sequence[str], number: int, before: Sequence[Attempt]
    ) -> list[Attempt]:
        """Attempts without novelty and reward. An empty prompt is not valid, and nobody is asked about it."""
        # All of an iteration that the log has a part of, since rounding follows from what is computed together.
        due = range(len(prompts) if len(before) < len(prompts) else 0)
        left = [row for row in due if not is_empty(prompts[row])]
        answers = self.cast.asked.answer(
            [prompts[row] for row in left], seed=derive_seed(self.seed, "latent answers", number)
        )
        said = dict(zip(left, answers, strict=True))
        answered = {row: answer for row, answer in said.items() if answer is not None}
        judgements = self.cast.judge.judge([Request("reward", prompts[row], a) for row, a in answered.items()])
        verdicts = dict(zip(answered, judgements, strict=True))
        self._refuse_limit(judgements)
        drafts = []
        for row, (opening, prompt) in enumerate(zip(openings, prompts, strict=True)):
            draft = _draft(f"{self.search.source}-{number}-{row}", number, self.search.source, opening.seed, prompt)
            if row < len(before):
                # What follows from the search itself is made anew, so that the log can be compared with it.
                drafts.append(replace(before[row], id=draft.id, seed=draft.seed, prompt=prompt, source=draft.source))
            elif row in said:
                drafts.append(_with_verdict(draft, said[row], verdicts.get(row)))
            else:
                drafts.append(replace(draft, valid=False, j=0.0))
        return drafts

    def _refuse_limit(self, judgements: Sequence[Judgement]) -> None:
        """What was not judged for want of money may be judged another day, so it is not put down as a failure."""
        if any(j.failure == "limit" for j in judgements):
            raise InputError(
                f"the limits of {self.cast.judge.name} are used up; raise them and run the same command again, which "
                "pays for nothing twice"
            )


def question_of(tokenizer: PreTrainedTokenizerBase, reply: Sequence[int]) -> str:
    """The question that a reply holds: its first line, as far as the first question mark."""
    text = tokenizer.decode(list(reply), skip_special_tokens=True)
    assert isinstance(text, str)
    line = next(iter(text.strip().splitlines()), "")
    question, mark, _ = line.partition("?")
    return (question + mark).strip()


def _stops(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Tokens after which a question is over: those with a question mark or a line break, and the end of the text."""
    texts = ((i, tokenizer.decode([i])) for i in range(len(tokenizer)))
    found = [i for i, text in texts if "?" in text or "\n" in text]
    end = tokenizer.eos_token_id
    return tuple(found if end is None or end in found else [*found, end])


def _draft(id_: str, number: int, source: str, seed: str, prompt: str) -> Attempt:
    return Attempt(
        id=id_,
        iteration=number,
        source=source,
        seed=seed,
        prompt=prompt,
        answer="",
        valid=None,
        gibberish=None,
        c=None,
        j=None,
        failure="",
        novelty={},
        reward=0.0,
    )


def _with_verdict(draft: Attempt, answer: str | None, judgement: Judgement | None) -> Attempt:
    if answer is None or judgement is None:
        return replace(draft, failure=NO_ANSWER)
    if judgement.score is None:
        return replace(draft, answer=answer, failure=judgement.failure)
    values = judgement.values
    return replace(
        draft,
        answer=answer,
        valid=bool(values["valid"]),
        gibberish=bool(values["gibberish"]),
        c=int(values["c"]),
        j=judgement.score,
    )
