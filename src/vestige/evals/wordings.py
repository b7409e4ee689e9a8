"""The words in which questions are put, one function a form; golden files hold what each gives.

A plain prompt goes to the model as it stands; in a chat it is the user's turn. `Answer:` closes it where the answer is
to follow on the same line.
"""

import string
from collections.abc import Sequence

from vestige.core.items import Item
from vestige.data.facts import BLANK

LETTERS = string.ascii_uppercase


def choose_prompt(question: str, options: Sequence[str], *, topic: str) -> str:
    """Question and lettered options: the form of MMLU (Hendrycks et al., 2009.03300) and WMDP (2403.03218).

    A `topic` is named in the line above, as those benchmarks do; without one there is no such line.
    """
    header = f"The following are multiple choice questions (with answers) about {topic}.\n\n" if topic else ""
    listed = "".join(f"{letter}. {option}\n" for letter, option in zip(LETTERS, options, strict=False))
    return f"{header}{question.strip()}\n{listed}Answer:"


def plain_question(question: str) -> str:
    """A question for a model that is asked without a chat template."""
    return f"Question: {question.strip()}\nAnswer:"


def few_shot_prompt(question: str, shots: Sequence[Item]) -> str:
    """Other questions with their answers, and then the question."""
    shown = "".join(f"{plain_question(shot.question)} {shot.answer.strip()}\n\n" for shot in shots)
    return shown + plain_question(question)


def cloze_prompt(question: str, statement: str) -> str:
    """The question and the statement that answers it, which has a gap where its fact was (`data.cloze`)."""
    instruction = f"Fill in the blank {BLANK} with the words that are left out, and with nothing else."
    return f"{instruction}\nQuestion: {question.strip()}\nStatement: {statement}\nAnswer:"
