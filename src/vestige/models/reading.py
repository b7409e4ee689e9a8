"""Readings: a prompt goes through the model once, and its continuations reuse that pass.

Texts that follow a prompt are scored, and a greedy reply is decoded, on the keys and values that one pass over the
prompt left behind. Only places whose next token is read see the output head. Equal texts are read once.

Prompts of like length share a pass, padded on the left to the longest, and so do texts, padded on the right. Replies to
prompts of very unlike lengths are decoded together, since a step of few rows costs as much as one with many.

Axes: B prompts, N texts, K positions read, W positions of a prompt with its padding, T positions of a text, V
vocabulary. Log-probabilities are in nats, in float32.

The options of a question under a model: their letters after one pass, and how letters and texts become a pick.

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
from itertools import chain
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.core.text import one_line, system_of
from vestige.models.forward import PASS_TOKENS, batches_by_length, logits_at, padded_passes, right_padded, within_memory
from vestige.models.generation import STEP_TOKENS, Decoding, Reply, decode, generate
from vestige.models.keys_values import (
    KeysValues,
    cache_arguments,
    cache_of,
    can_go_on,
    kept_in,
    padded,
    rows_of,
)
from vestige.models.prompts import Encoded, Prompter
from vestige.models.scoring import TOKEN_BUDGET, AnswerScore, score_answers, token_scores


@dataclass(frozen=True)
class Prompted:
    """The queries on one prompt: scores of `texts` that follow it, and a greedy reply of at most `most_new` tokens.

    No reply is decoded if `most_new` is 0. A text includes the token that ends the turn if that token is scored.
    """

    prompt: tuple[int, ...]
    texts: tuple[tuple[int, ...], ...] = ()
    most_new: int = 0


class TextScore(NamedTuple):
    """Log-probability (nats) and mid-rank, from 1, of each token of a text.

    For a server, `best` has the log-probability of the likeliest token at each position.
    """

    logp: tuple[float, ...]
    ranks: tuple[float, ...]
    best: tuple[float, ...] = ()

    def answer(self, encoded: Encoded) -> AnswerScore:
        """Return the score of an answer if the text follows its prompt up to the end of the turn."""
        n, end = encoded.stop - encoded.start, encoded.end - encoded.start
        return AnswerScore(self.logp[:n], self.ranks[:n], self.logp[end], self.ranks[end])


@dataclass(frozen=True)
class TextReading:
    """The results of one prompt: a score for each text, and the reply."""

    texts: tuple[TextScore, ...]
    reply: Reply | None

    @property
    def replied(self) -> Reply:
        """The reply, if it was requested."""
        assert self.reply is not None, "no reply was wanted"
        return self.reply


@dataclass(frozen=True)
class Asking:
    """The end of replies: one of `end_ids`, or a full `context`."""

    end_ids: tuple[int, ...]
    context: int


def following(encoded: Encoded) -> tuple[int, ...]:
    """The text after the prompt of an answer, up to the token that ends the turn."""
    return encoded.ids[encoded.start : encoded.end + 1]


Way = Literal["shared", "plain"]
"""The way to read a model: continuations on the prompt's cache, or each text in its own pass."""


def way_of(model: PreTrainedModel) -> Way:
    """Return the shared way if a test agrees with the plain way. Otherwise, the plain one.

    The two agree where log-probabilities are within 1e-4 nats in float32, and 1/2 in narrower numbers. A model that is
    no longer finite agrees where both are not.
    """
    if not can_go_on(model):
        return "plain"
    size = model.config.get_text_config().vocab_size
    # Different tokens, since equal ones would hide an error of one position.
    ids = [(7 * n + 3) % size for n in range(16)]
    probe = [Prompted(tuple(ids[:5]), (tuple(ids[5:7]), tuple(ids[5:16])))]
    asking = Asking((), 16)
    layouts: tuple[Way, Way] = ("shared", "plain")
    readings = [read(model, probe, asking, layout=layout)[0] for layout in layouts]
    actual, expected = (torch.tensor(first.logp + second.logp) for first, second in (r.texts for r in readings))
    # bfloat16 rounds a logit of 30 to 1/8 (SmolLM2: 0.11 difference). Text one position off differs by 2 to 6 nats.
    if model.dtype == torch.float32:
        tolerance = 1e-4
    else:
        tolerance = 1 / 2
    if torch.allclose(actual, expected, rtol=0, atol=tolerance, equal_nan=True):
        return "shared"
    return "plain"


@within_memory
@torch.inference_mode()
def read(
    model: PreTrainedModel,
    prompted: Sequence[Prompted],
    asking: Asking,
    *,
    layout: Way,
    token_budget: int = TOKEN_BUDGET,
) -> list[TextReading]:
    """Return the requested values, in order. `token_budget` bounds memory."""
    return (_read_shared if layout == "shared" else _read_plain)(model, prompted, asking, token_budget)


def _read_plain(
    model: PreTrainedModel, prompted: Sequence[Prompted], asking: Asking, token_budget: int
) -> list[TextReading]:
    """Return every text after its prompt in a separate row, and every reply: the oracle."""
    rows = []
    for p in prompted:
        for text in p.texts:
            end = len(p.prompt) + len(text) - 1
            rows.append(Encoded((*p.prompt, *text), len(p.prompt), end, end))
    scores = iter(score_answers(model, rows, token_budget=token_budget))
    texts = []
    for p in prompted:
        of_prompt = [next(scores) for _ in p.texts]
        texts.append(tuple(TextScore((*s.logp, s.end_logp), (*s.ranks, s.end_rank)) for s in of_prompt))
    replies: dict[int, Reply] = {}
    for most in sorted({p.most_new for p in prompted} - {0}):
        numbers = [n for n, p in enumerate(prompted) if p.most_new == most]
        prompts = [prompted[n].prompt for n in numbers]
        answers = generate(model, prompts, end_ids=asking.end_ids, max_new_tokens=most, context=asking.context)
        replies |= dict(zip(numbers, answers, strict=True))
    return [TextReading(scored, replies.get(n)) for n, scored in enumerate(texts)]


def _read_shared(
    model: PreTrainedModel, prompted: Sequence[Prompted], asking: Asking, token_budget: int
) -> list[TextReading]:
    texts: dict[tuple[int, ...], dict[tuple[int, ...], None]] = {}
    # A prompt may need replies of several lengths, each of which is decoded once.
    bounds: dict[tuple[int, ...], set[int]] = {}
    for p in prompted:
        texts.setdefault(p.prompt, {}).update(dict.fromkeys(p.texts))
        bounds.setdefault(p.prompt, set()).update({p.most_new} - {0})
    scores: dict[tuple[tuple[int, ...], tuple[int, ...]], TextScore] = {}
    replies: dict[tuple[tuple[int, ...], int], Reply] = {}
    # The budget for joint reading and decoding: a step of decoding costs more than its rows.
    budget = max(PASS_TOKENS, STEP_TOKENS * max((p.most_new for p in prompted), default=0))
    every = list(bounds)
    lengths = [len(p) for p in every]
    for _, chosen in batches_by_length(lengths, model.device, token_budget=token_budget, pass_tokens=budget):
        prompts = [every[i] for i in chosen]
        stem = _read_prompts(model, prompts, token_budget)
        pairs = []
        to_answer = []
        for row, prompt in enumerate(prompts):
            pairs += [(row, text) for text in texts[prompt]]
            to_answer += [(row, most) for most in sorted(bounds[prompt])]
        # Half of the budget, since the prompts' caches are in memory too.
        scored = _read_texts(model, stem, pairs, token_budget // 2)
        scores |= {(prompts[row], text): score for (row, text), score in zip(pairs, scored, strict=True)}
        if to_answer:
            answers = _reply(model, stem, to_answer, asking)
            replies |= {(prompts[row], most): reply for (row, most), reply in zip(to_answer, answers, strict=True)}
    readings = []
    for p in prompted:
        scored = [scores[p.prompt, text] for text in p.texts]
        readings.append(TextReading(tuple(scored), replies.get((p.prompt, p.most_new))))
    return readings


@dataclass(frozen=True)
class _Stem:
    """Prompts after their pass: keys and values of each layer, the prompts' positions, and the next tokens."""

    prompts: list[tuple[int, ...]]
    layers: list[KeysValues]
    mask: Bool[Tensor, "B W"]
    logits: Float[Tensor, "B V"]


def _read_prompts(model: PreTrainedModel, prompts: list[tuple[int, ...]], token_budget: int) -> _Stem:
    """Return one stem for all prompts, in order, padded on the left to the longest."""
    parts = []
    for width, rows in batches_by_length([len(p) for p in prompts], model.device, token_budget=token_budget):
        together = [prompts[i] for i in rows]
        decoding = Decoding.of(model, len(rows), None)
        logits = decoding.prefill(together, width)
        parts.append(_Stem(together, kept_in(decoding.cache), decoding.mask, logits))
    if len(parts) == 1:
        return parts[0]
    width = max(part.mask.shape[1] for part in parts)
    read_prompts = chain.from_iterable(part.prompts for part in parts)
    places = {prompt: n for n, prompt in enumerate(read_prompts)}
    order = torch.tensor([places[p] for p in prompts], device=model.device)
    by_layer = zip(*[part.layers for part in parts], strict=True)
    layers = rows_of((padded(layer, width) for layer in by_layer), order)
    mask = torch.cat([pad(part.mask, (width - part.mask.shape[1], 0)) for part in parts])
    logits = torch.cat([part.logits for part in parts])
    return _Stem(prompts, layers, mask.index_select(0, order), logits.index_select(0, order))


def _read_texts(
    model: PreTrainedModel, stem: _Stem, pairs: Sequence[tuple[int, tuple[int, ...]]], token_budget: int
) -> list[TextScore]:
    if not pairs:
        return []
    device = stem.mask.device
    owner = torch.tensor([row for row, _ in pairs], device=device)
    firsts = torch.tensor([[text[0]] for _, text in pairs], device=device)
    first_logp, first_ranks = token_scores(stem.logits.index_select(0, owner)[:, None], firsts)
    logp, ranks = first_logp.tolist(), first_ranks.tolist()
    # The prompt's last position scores the first token.
    longer = [n for n, (_, text) in enumerate(pairs) if len(text) > 1]
    lengths = [len(pairs[n][1]) - 1 for n in longer]
    before = stem.mask.shape[1]
    for width, chosen in batches_by_length(lengths, device, token_budget=token_budget, before=before):
        numbers = [longer[i] for i in chosen]
        texts = [pairs[n][1] for n in numbers]
        logits = _logits_after(model, stem, owner[torch.tensor(numbers, device=device)], texts, width)
        targets = right_padded([t[1:] for t in texts], width, device)
        columns = (values.tolist() for values in token_scores(logits, targets))
        for n, text, row_logp, row_ranks in zip(numbers, texts, *columns, strict=True):
            logp[n] += row_logp[: len(text) - 1]
            ranks[n] += row_ranks[: len(text) - 1]
    return [TextScore(tuple(a), tuple(b)) for a, b in zip(logp, ranks, strict=True)]


def _logits_after(
    model: PreTrainedModel, stem: _Stem, rows: Int[Tensor, " N"], texts: Sequence[tuple[int, ...]], width: int
) -> Float[Tensor, "N K V"]:
    """Logits of the token after each token of each text but the last."""
    before = stem.mask.index_select(0, rows)
    places = torch.arange(width, device=rows.device)
    lengths = torch.tensor([[len(text) - 1] for text in texts], device=rows.device)
    out = model(
        input_ids=right_padded([text[:-1] for text in texts], width, rows.device),
        attention_mask=torch.cat([before, places < lengths], dim=-1).long(),
        # Positions after a text must not exceed the context.
        position_ids=before.sum(-1, keepdim=True) + torch.minimum(places, lengths - 1),
        logits_to_keep=width,
        **cache_arguments(model, cache_of(rows_of(stem.layers, rows))),
    )
    logits: Tensor = out.logits
    return logits.float()


def _reply(model: PreTrainedModel, stem: _Stem, to_answer: Sequence[tuple[int, int]], asking: Asking) -> list[Reply]:
    """Return these rows' replies, each with its own bound."""
    rows = torch.tensor([row for row, _ in to_answer], device=stem.mask.device)
    cache = cache_of(rows_of(stem.layers, rows))
    decoding = Decoding(model, cache, stem.mask.index_select(0, rows), asking.context - 1)
    ends = torch.tensor(sorted(asking.end_ids), dtype=torch.long, device=stem.mask.device)
    room = [min(most, asking.context - len(stem.prompts[row])) for row, most in to_answer]
    return decode(decoding, stem.logits.index_select(0, rows), ends, None, room)


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
        raise InputError(
            f"the tokeniser has one token for several of the letters {', '.join(letters)}. Ask for options by text"
        )
    return LetterPrompt(encoded[0].ids[: encoded[0].start + n_shared], ids)


@torch.inference_mode()
def score_letters(
    model: PreTrainedModel, prompts: Sequence[LetterPrompt], *, token_budget: int = TOKEN_BUDGET
) -> list[LetterScore]:
    """Return the next letters after each prompt, in order."""
    scores: dict[int, LetterScore] = {}
    for rows, ids in padded_passes([p.prompt for p in prompts], model.device, token_budget=token_budget):
        ends = torch.tensor([len(prompts[i].prompt) - 1 for i in rows], device=ids.device)
        # The head computes each position once, for all rows of the pass.
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
    """Return `option_vocab`: each letter's probability among all tokens. They add up to 0 if no token is a letter."""
    return [(value == letters.top_logp) / letters.n_top for value in letters.logp]


def option_text_sum(options: Sequence[Sequence[float]]) -> list[float]:
    """`option_text_sum`: each option's share of the pick, from the log-probabilities of its tokens."""
    return shares_of_pick([sum(logp) for logp in options])


def option_text_mean(options: Sequence[Sequence[float]]) -> list[float]:
    """`option_text_mean`: the same per token."""
    return shares_of_pick([sum(logp) / len(logp) for logp in options])
