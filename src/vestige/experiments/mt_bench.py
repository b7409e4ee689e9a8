"""MT-Bench (Zheng et al., 2306.05685): questions of two turns, and each answer graded from 1 to 10 by a judge.

What differs: answers are greedy for every category, and the judge sees no reference answers for maths and code.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.core.errors import InputError
from vestige.core.files import append_lines, json_line, read_json, read_log, write_json, write_jsonl
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.models.load import LoadedModel

HUB = "HuggingFaceH4/mt_bench_prompts"
"""The 80 questions; FastChat's question.jsonl has the same."""
AT_ONCE = 32
"""Answers that are graded and stored together. A stopped run grades the others alone."""


def mt_bench(
    model: str,
    questions: str,
    judge: str,
    output_dir: Path,
    answer_tokens: int = 1024,
    device: str = "auto",
    dtype: str | None = None,
) -> list[dict[str, float | str]]:
    """Ask both turns of each question, and grade each answer.

    Args:
        model: The model that is asked.
        questions: A file, or a data set of the hub, with two turns in the column `turns` or `prompt`.
        judge: The judge, as for `probe`. It sees the conversation before an answer.
        output_dir: The folder of result.json and of grades.jsonl, which has each conversation with its grade.
        answer_tokens: Longest answer, in tokens.
        device: Where the model and a local judge run.
        dtype: Number format of the weights.

    Returns:
        A row per turn: the mean grade, and the numbers of answers `graded` and `not graded`.

    Raises:
        InputError: A row has no two turns, or the judge graded no answer of a turn.
    """
    from vestige.api import requests
    from vestige.data.loaders import source_table
    from vestige.judges.base import Request
    from vestige.judges.local import grader_of
    from vestige.judges.spec import judge_spec
    from vestige.models import Reading
    from vestige.steps.subjects import asked_model

    done = output_dir / "result.json"
    if done.is_file():
        rows: list[dict[str, float | str]] = read_json(done)
        return rows
    turns = [_turns(row.values, questions) for row in source_table(questions, split="train", config=None).rows]
    output_dir.mkdir(parents=True, exist_ok=True)
    # An unreachable judge is an error before the model answers.
    grader = grader_of(judge_spec(judge), output_dir / "replies", device)
    answers = output_dir / "answers.json"
    if not answers.is_file():
        loaded = asked_model(requests.model_settings(model, Reading(device, dtype))).loaded
        firsts = _replies(loaded, [[turn] for turn, _ in turns], answer_tokens)
        talks = _talks(turns, firsts)
        # Answers are stored before grading: a judge may fail after an hour of answers.
        write_json(answers, [firsts, _replies(loaded, talks, answer_tokens)])
    firsts, seconds = read_json(answers)
    talks = _talks(turns, firsts)
    conversations = [("turn 1", talk[0], reply) for talk, reply in zip(talks, firsts, strict=True)]
    conversations += [("turn 2", _told(talk), reply) for talk, reply in zip(talks, seconds, strict=True)]
    log = output_dir / "grades.jsonl"
    # Only grades of complete groups are reused: a batch that was cut short would round differently.
    stored = read_log(log)
    graded = stored[: len(stored) // AT_ONCE * AT_ONCE]
    write_jsonl(log, graded)
    for start in range(len(graded), len(conversations), AT_ONCE):
        group = conversations[start : start + AT_ONCE]
        judged = grader.judge.judge([Request("quality", before, reply) for _, before, reply in group])
        for (turn, before, reply), judgement in zip(group, judged, strict=True):
            row = {"turn": turn, "question": before, "answer": reply}
            graded.append({**row, "grade": judgement.score, "failure": judgement.failure})
        append_lines(log, map(json_line, graded[start:]))
    rows = []
    for turn in ("turn 1", "turn 2"):
        of_turn = [row for row in graded if row["turn"] == turn]
        grades = [row["grade"] for row in of_turn if row["grade"] is not None]
        if not grades:
            reasons = {row["failure"] for row in of_turn}
            log.unlink()  # Another judge grades all answers.
            raise InputError(f"The judge graded no answer of {turn} ({', '.join(reasons)}). Take another judge.")
        counts = {"graded": len(grades), "not graded": len(of_turn) - len(grades)}
        rows.append({"turn": turn, "grade": sum(grades) / len(grades), **counts})
    write_json(done, rows)
    return rows


def _turns(row: Mapping[str, object], source: str) -> tuple[str, str]:
    turns = row.get("turns", row.get("prompt"))
    if not isinstance(turns, list | tuple) or len(turns) != 2 or not all(isinstance(turn, str) for turn in turns):
        raise InputError(f"A row of {one_line(source)} has no two texts in 'turns' or 'prompt'. Give MT-Bench's file.")
    return turns[0], turns[1]


def _talks(turns: list[tuple[str, str]], firsts: list[str]) -> list[list[str]]:
    """Each conversation up to its second question."""
    return [[first, reply, second] for (first, second), reply in zip(turns, firsts, strict=True)]


def _told(talk: list[str]) -> str:
    """A conversation before its last answer, as the judge reads it."""
    first, reply, second = talk
    return f"User: {first}\n\nAssistant: {reply}\n\nUser: {second}"


def _replies(loaded: "LoadedModel", talks: list[list[str]], most: int) -> list[str]:
    """Return the greedy reply to each conversation, or "" if it exceeds the model's context."""
    prompter = loaded.prompter
    prompts: dict[int, tuple[int, ...]] = {}
    for row, talk in enumerate(talks):
        messages = []
        for number, text in enumerate(talk):
            messages.append({"role": "assistant" if number % 2 else "user", "content": text})
        ids = prompter.ids_of(prompter.chat(messages, answered=False))
        if len(ids) + 1 < prompter.max_tokens:
            prompts[row] = ids
    replies = loaded.engine.generate(
        list(prompts.values()), end_ids=prompter.end_ids, max_new_tokens=most, context=prompter.max_tokens
    )
    texts = dict(zip(prompts, (prompter.decode(reply.ids) for reply in replies), strict=True))
    return [texts.get(row, "") for row in range(len(talks))]
