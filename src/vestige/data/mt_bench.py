"""MT-bench's questions: 80 conversations of two turns in eight categories, with reference answers for some.

Zheng et al., Judging LLM-as-a-judge with MT-bench and Chatbot Arena, 2306.05685; the files are those of FastChat
(`question.jsonl`, `reference_answer/<who>.jsonl`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vestige.core.errors import InputError
from vestige.core.files import read_jsonl
from vestige.core.text import one_line

TURNS = 2
WITH_REFERENCE = ("math", "reasoning", "coding")
"""Categories that are judged beside a reference answer, as FastChat has it."""


@dataclass(frozen=True)
class Conversation:
    """What a person says in both turns, and how somebody answered both, where the category is judged beside that."""

    id: str
    category: str
    turns: tuple[str, str]
    references: tuple[str, str] | None = None


def read_mt_bench(folder: Path, *, limit: int | None = None) -> tuple[Conversation, ...]:
    """The conversations in their order; with `limit` the first of each category, in the order of the file."""
    questions, answers = folder / "question.jsonl", sorted((folder / "reference_answer").glob("*.jsonl"))
    if not questions.is_file():
        raise InputError(f"{folder} holds no question.jsonl; give the folder of FastChat's data/mt_bench")
    if len(answers) != 1:
        raise InputError(f"{folder / 'reference_answer'} holds {len(answers)} files of reference answers; give one")
    references = _references(answers[0])
    found: dict[str, Conversation] = {}
    for number, row in enumerate(read_jsonl(questions), 1):
        one = _conversation(f"{questions}, record {number}", row, references)
        if one.id in found:
            raise InputError(f"{questions}, record {number}: the question {one_line(one.id)} comes twice")
        found[one.id] = one
    if not found:
        raise InputError(f"{questions} holds no questions")
    taken: dict[str, int] = {}
    kept = []
    for one in found.values():
        taken[one.category] = taken.get(one.category, 0) + 1
        if limit is None or taken[one.category] <= limit:
            kept.append(one)
    return tuple(kept)


def _conversation(where: str, row: Any, references: Mapping[str, tuple[str, str]]) -> Conversation:
    if not isinstance(row, Mapping) or not isinstance(row.get("category"), str) or row.get("question_id") is None:
        raise InputError(f"{where}: has no question_id or no category")
    id_, category = str(row["question_id"]), row["category"]
    turns = _two(where, row.get("turns"))
    if category not in WITH_REFERENCE:
        return Conversation(id_, category, turns)
    if id_ not in references:
        raise InputError(
            f"{where}: {category} is judged beside a reference answer, and there is none to {one_line(id_)}"
        )
    return Conversation(id_, category, turns, references[id_])


def _references(path: Path) -> dict[str, tuple[str, str]]:
    found = {}
    for number, row in enumerate(read_jsonl(path), 1):
        where = f"{path}, record {number}"
        choices = row.get("choices") if isinstance(row, Mapping) else None
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
            raise InputError(f"{where}: has no choices with turns")
        found[str(row.get("question_id"))] = _two(where, choices[0].get("turns"))
    return found


def _two(where: str, turns: Any) -> tuple[str, str]:
    fits = isinstance(turns, Sequence) and not isinstance(turns, str) and len(turns) == TURNS
    if not fits or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise InputError(f"{where}: has not two turns of text")
    return turns[0], turns[1]
