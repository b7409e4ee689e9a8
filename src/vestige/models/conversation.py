"""Conversations of several turns, in the form in which the model is asked single questions (`prompts.Prompter`)."""

from collections.abc import Sequence

from vestige.core.errors import InputError
from vestige.core.text import one_line
from vestige.models.prompts import Prompter


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
