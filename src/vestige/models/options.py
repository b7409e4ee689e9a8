"""The options of a question under a model: their letters after one pass, and how letters and texts become a pick.

Four readings of one question (Inconclusive, 2506.00688, section 3, distinguishes two of these readings only in words):

- CHOOSE: the letter that is likeliest among the letters;
- `option_vocab`: the right letter, if it is likeliest in the whole vocabulary;
- `option_text_sum`: the option whose text is likeliest after the question, log-probabilities summed over its tokens;
- `option_text_mean`: the same per token.

A reading gives each option a share of the pick: all of it to the likeliest, equal shares to ties, so that a model
without knowledge is at chance.

A letter's token is the last one that it has as the answer to this very prompt. Tokens that all letters begin with (a
space of its own) count as the prompt's. An option's tokens are those that it has as the answer to the question. The
token that ends the turn is kept apart and not part of a reading.

Texts are read by `models.reading`. Log-probabilities are in nats, in float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.core.text import one_line, system_of
from vestige.models.forward import logits_at, padded_passes
from vestige.models.prompts import Encoded, Prompter
from vestige.models.reading import Asking, Prompted, Way, following, read, way_of
from vestige.models.scoring import TOKEN_BUDGET, AnswerScore

SEPARATOR = " "
"""Between a plain prompt and its continuation."""


@dataclass(frozen=True)
class LetterScore:
    """The next token after one prompt: the log-probabilities of the letters, and the most likely token of all.

    `n_top` counts the tokens that are as likely as `top`.
    """

    logp: tuple[float, ...]
    top: int
    top_logp: float
    n_top: int


def encode_plain(prompter: Prompter, prompt: str, continuation: str) -> Encoded:
    """Token ids of `prompt` and `continuation` with a space between, without a chat template, as benchmarks do it."""
    # Without a template there is no system role.
    prompt = "\n\n".join(part for part in system_of(prompt) if part)
    tokenizer, text = prompter.tokenizer, f"{prompt}{SEPARATOR}{continuation.strip()}"
    where = f"the prompt {one_line(prompt[-60:], width=60)!r}"
    prompter.read(text, where)
    before = tuple(tokenizer(prompt, verbose=False)["input_ids"])
    whole = tuple(tokenizer(text, verbose=False)["input_ids"])
    if whole[: len(before)] != before or len(whole) == len(before):
        raise InputError(
            f"{where}: the tokeniser joins its last word with {one_line(continuation, width=40)!r}, so the "
            "continuation has no first token. Take the chat rendering"
        )
    if len(whole) >= prompter.max_tokens:
        raise InputError(f"{where} takes {len(whole)} tokens and the model reads {prompter.max_tokens}. Shorten it")
    return Encoded((*whole, prompter.end_ids[0]), len(before), len(whole), len(whole))


@dataclass(frozen=True)
class LetterPrompt:
    """Token ids after which a letter comes, and the letters' tokens."""

    prompt: tuple[int, ...]
    letters: tuple[int, ...]


def letter_prompt(prompter: Prompter, encoded: Sequence[Encoded], letters: Sequence[str]) -> LetterPrompt:
    """The prompt and the token of each letter, from the letters encoded as answers to one prompt.

    If every letter begins with the same tokens, such as a separate space, those tokens belong to the prompt.
    """
    tokens = [e.answer_ids for e in encoded]
    n_shared = len(tokens[0]) - 1
    for own, letter in zip(tokens, letters, strict=True):
        if own[:n_shared] != tokens[0][:n_shared] or len(own) != n_shared + 1 or prompter.decode(own) != letter:
            raise InputError(
                f"the tokeniser makes {list(own)} of the answer {letter!r}, where one token is needed to choose by "
                "letters. Leave the letters out"
            )
    ids = tuple(own[-1] for own in tokens)
    if len(set(ids)) < len(ids):
        raise InputError(f"the tokeniser gives one token to several of the letters {', '.join(letters)}")
    return LetterPrompt(encoded[0].ids[: encoded[0].start + n_shared], ids)


@torch.inference_mode()
def score_letters(
    model: PreTrainedModel, prompts: Sequence[LetterPrompt], *, token_budget: int = TOKEN_BUDGET
) -> list[LetterScore]:
    """Return the next letters after each prompt, in order."""
    scores: dict[int, LetterScore] = {}
    for rows, ids in padded_passes([p.prompt for p in prompts], model.device, token_budget=token_budget):
        ends = torch.tensor([len(prompts[i].prompt) - 1 for i in rows], device=ids.device)
        # The head sees each place once, for all rows of the pass.
        places, which = ends.unique(return_inverse=True)
        logits = logits_at(model, ids, places)
        logp = logits[torch.arange(len(rows), device=ids.device), which].log_softmax(-1)
        best = logp.max(-1)
        tops = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        n_top = (logp == best.values[:, None]).sum(-1).tolist()
        for row, (i, top, n) in enumerate(zip(rows, tops, n_top, strict=True)):
            scores[i] = LetterScore(tuple(logp[row, list(prompts[i].letters)].tolist()), *top, n)
    return [scores[i] for i in range(len(prompts))]


def one_prompt(options: Sequence[Encoded]) -> tuple[int, ...]:
    """The prompt that all options of a question answer."""
    prompts = {e.ids[: e.start] for e in options}
    if len(prompts) != 1:
        raise InputError(f"the options of one question belong to {len(prompts)} different prompts")
    return prompts.pop()


def score_options(
    model: PreTrainedModel,
    questions: Sequence[Sequence[Encoded]],
    *,
    layout: Way | None = None,
    token_budget: int = TOKEN_BUDGET,
) -> list[tuple[AnswerScore, ...]]:
    """Scores of the options of each question, in the order given. A question's options answer the same prompt.

    A `way` of reading that is not given is looked for.
    """
    prompted = [Prompted(one_prompt(options), tuple(map(following, options))) for options in questions]
    readings = read(model, prompted, Asking((), 0), layout=layout or way_of(model), token_budget=token_budget)
    scores = []
    for reading, options in zip(readings, questions, strict=True):
        scores.append(tuple(text.answer(e) for text, e in zip(reading.texts, options, strict=True)))
    return scores


def shares_of_pick(values: Sequence[float]) -> list[float]:
    """1 for the greatest value and 0 for the others. Those tied for it share the 1."""
    best = max(values)
    tied = sum(value == best for value in values)
    return [(value == best) / tied for value in values]


def choose(letters: LetterScore) -> list[float]:
    """CHOOSE: each letter's share of the pick among the letters."""
    return shares_of_pick(letters.logp)


def option_vocab(letters: LetterScore) -> list[float]:
    """`option_vocab`: each letter's share of the pick among all tokens. They add up to 0 where none is a letter."""
    return [(value == letters.top_logp) / letters.n_top for value in letters.logp]


def option_text_sum(options: Sequence[Sequence[float]]) -> list[float]:
    """`option_text_sum`: each option's share of the pick, from the log-probabilities of its tokens."""
    return shares_of_pick([sum(logp) for logp in options])


def option_text_mean(options: Sequence[Sequence[float]]) -> list[float]:
    """`option_text_mean`: the same per token."""
    return shares_of_pick([sum(logp) / len(logp) for logp in options])
