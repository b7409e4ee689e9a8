"""MT-bench's answers: a model says both turns of each conversation, at the temperature of its category.

Zheng et al., 2306.05685; temperatures and the length of answers are those of the released code (FastChat, llm_judge).
An answer follows from the model, the conversation and the seed alone, not from the other conversations. Conversations
are rendered as single questions are (`prompts.Prompter`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from pydantic import NonNegativeInt, PositiveInt

from vestige.artifacts.bench import BenchItem, TaskRun
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.seeds import derive_seed
from vestige.core.settings import Settings
from vestige.core.text import one_line
from vestige.data.bench_rows import TURNS, Conversation
from vestige.judges.base import Judgement
from vestige.judges.mt_bench import VERSION, Turn
from vestige.judges.tasks import QUALITY_SCALE
from vestige.models.generation import Sampling
from vestige.models.load import LoadedModel
from vestige.models.prompts import Prompter

TASK = "mt_bench"
TEMPERATURES: Mapping[str, float] = {
    **dict.fromkeys(("writing", "roleplay"), 0.7),
    **dict.fromkeys(("stem", "humanities"), 0.1),
    **dict.fromkeys(("extraction", "math", "coding", "reasoning"), 0.0),
}
OTHERS = 0.7
"""The temperature of a category that MT-bench does not have, as in the released code."""
SCORE = "score"


class MtBenchSettings(Settings):
    """How conversations are held."""

    max_tokens: PositiveInt = 1024
    """Longest answer, in tokens."""
    per_category: PositiveInt | None = None
    """Ask only the first conversations of each category."""
    seed: NonNegativeInt = 0
    """Seed of sampled answers."""


@dataclass(frozen=True)
class Answered:
    """What the model said in both turns; None where it could not read what came before, which is no bad answer."""

    id: str
    answers: tuple[str | None, str | None]


def answer(subject: LoadedModel, asked: Sequence[Conversation], settings: MtBenchSettings) -> list[Answered]:
    """Both answers to each conversation, in order."""
    said: list[list[str | None]] = [[] for _ in asked]
    for turn in range(TURNS):
        for temperature in sorted({_temperature(c) for c in asked}):
            rows = [i for i, c in enumerate(asked) if _temperature(c) == temperature]
            found = _answers(subject, [(asked[i], said[i]) for i in rows], turn, temperature, settings)
            for i, text in zip(rows, found, strict=True):
                said[i].append(text)
    return [Answered(c.id, (own[0], own[1])) for c, own in zip(asked, said, strict=True)]


def _temperature(conversation: Conversation) -> float:
    return TEMPERATURES.get(conversation.category, OTHERS)


def _answers(
    subject: LoadedModel,
    begun: Sequence[tuple[Conversation, Sequence[str | None]]],
    turn: int,
    temperature: float,
    settings: MtBenchSettings,
) -> list[str | None]:
    prompter = subject.prompter
    ids: dict[int, tuple[int, ...]] = {}
    for i, (conversation, said) in enumerate(begun):
        words = _so_far(conversation, said, turn)
        if words is None:
            continue
        try:
            ids[i] = conversation_ids(prompter, words)
        except InputError:  # Longer than the model reads: counted, and no answer.
            continue
    seeds = tuple(derive_seed(settings.seed, TASK, begun[i][0].id, str(turn)) for i in ids)
    replies = subject.engine.generate(
        list(ids.values()),
        end_ids=prompter.end_ids,
        max_new_tokens=settings.max_tokens,
        context=subject.prompter.max_tokens,
        sampling=Sampling(temperature, 1.0, seeds) if temperature > 0 else None,
    )
    texts = dict(zip(ids, (prompter.decode(reply.ids) for reply in replies), strict=True))
    return [texts.get(i) for i in range(len(begun))]


def _so_far(conversation: Conversation, answers: Sequence[str | None], turn: int) -> list[str] | None:
    """What was said up to the user's words of this turn; None where an answer is missing."""
    before = answers[:turn]
    if any(text is None for text in before):
        return None
    asked = conversation.turns[: turn + 1]
    return [text for pair in zip_longest(asked, before) for text in pair if text is not None]


def turns_of(conversation: Conversation, answered: Answered, own: Answered | None) -> list[Turn | None]:
    """Both turns as they are judged; None where there is no answer to judge. `own` is the model compared with."""
    found: list[Turn | None] = []
    for turn in range(TURNS):
        before, said = _so_far(conversation, answered.answers, turn), answered.answers[turn]
        if before is None or said is None:
            found.append(None)
            continue
        references = () if conversation.references is None else conversation.references[: turn + 1]
        found.append(Turn((*before, said), references, (own.answers[turn] or "") if own is not None else ""))
    return found


def scored(
    asked: Sequence[Conversation], answered: Sequence[Answered], judgements: Sequence[Sequence[Judgement]]
) -> TaskRun:
    """Each turn with its rating: over all, over its turn, over its category; what was not rated is counted."""
    items, failures = [], dict[str, int]()
    for n, (conversation, own, judged) in enumerate(zip(asked, answered, judgements, strict=True)):
        content = content_id([conversation.id, *conversation.turns], length=32)
        for turn, judgement in enumerate(judged):
            values = {}
            if judgement.score is None:
                failures[judgement.failure] = failures.get(judgement.failure, 0) + 1
            else:
                own_names = (SCORE, f"{SCORE}/turn {turn + 1}", f"{SCORE}/{conversation.category}")
                values = dict.fromkeys(own_names, judgement.score)
            said = {"answer": own.answers[turn], "judgement": judgement.text, "failure": judgement.failure}
            items.append(BenchItem(TURNS * n + turn, content, values, said, cluster=conversation.id))
    categories = dict.fromkeys(conversation.category for conversation in asked)
    names = (SCORE, *(f"{SCORE}/turn {n + 1}" for n in range(TURNS)), *(f"{SCORE}/{c}" for c in categories))
    scale = (QUALITY_SCALE.low, QUALITY_SCALE.high)
    return TaskRun(
        task=TASK,
        version=str(VERSION),
        shots=0,
        items=tuple(items),
        units=dict.fromkeys(names, "1 to 10"),
        bounds=dict.fromkeys(names, (float(scale[0]), float(scale[1]))),
        failures=failures,
    )


def conversation_ids(prompter: Prompter, said: Sequence[str]) -> tuple[int, ...]:
    """Token ids after which the model answers; `said` is what user and model said in turn, the user first and last."""
    if len(said) % 2 == 0:
        raise ValueError(f"a conversation of {len(said)} turns does not end with the user's")
    messages = [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(said)]
    text = prompter.chat(messages, answered=False)
    ids = tuple(prompter.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    if len(ids) >= prompter.max_tokens:
        raise InputError(
            f"the conversation that begins {one_line(said[0], width=60)!r} takes {len(ids)} tokens and the model reads "
            f"{prompter.max_tokens}; lower --max-tokens or take a model with a longer context"
        )
    return ids
