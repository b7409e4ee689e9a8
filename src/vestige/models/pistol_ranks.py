"""Ranks as PISTOL's released code reads them, for parity with its published tables and for nothing else.

The answer is tokenised on its own, without the prompt before it, and its j-th token is ranked in the distribution
from which the j-th token of the model's own reply was drawn. With most tokenisers the first of these tokens is one
that the model never emits there, so a perfect model has a mean reciprocal rank far below 1. Where the reply has
ended, the released code ranks among logits that are all zero; here such a token gets the mean of all ranks.
"""

from collections.abc import Sequence

import torch

from vestige.models.forward import batches_by_length, logits_at, right_padded
from vestige.models.generation import Reply
from vestige.models.load import LoadedModel
from vestige.models.scoring import TOKEN_BUDGET, token_scores


@torch.inference_mode()
def free_running_ranks(
    subject: LoadedModel,
    prompts: Sequence[Sequence[int]],
    replies: Sequence[Reply],
    answers: Sequence[str],
) -> list[list[float]]:
    """For each answer the rank of each of its tokens, counted from 1."""
    model, vocabulary = subject.model, subject.model.config.get_text_config().vocab_size
    rows = [[*p, *r.ids] for p, r in zip(prompts, replies, strict=True)]
    targets = [subject.tokenizer(a, add_special_tokens=False)["input_ids"] for a in answers]
    found: list[list[float]] = [[] for _ in rows]
    for width, chunk in batches_by_length([len(r) for r in rows], token_budget=TOKEN_BUDGET):
        ids = right_padded([rows[i] for i in chunk], width, model.device)
        first = min(len(prompts[i]) for i in chunk) - 1
        logits = logits_at(model, ids, torch.arange(first, width, device=ids.device))
        for n, i in enumerate(chunk):
            # The reply's tokens, and the one that ended it if one did, were each drawn from a distribution.
            drawn = min(len(replies[i].ids) + (replies[i].finish == "stop"), len(targets[i]))
            start = len(prompts[i]) - 1 - first
            wanted = torch.tensor([targets[i][:drawn]], device=ids.device)
            _, ranks = token_scores(logits[n : n + 1, start : start + drawn], wanted)
            found[i] = [*ranks[0].tolist(), *[(vocabulary + 1) / 2] * (len(targets[i]) - drawn)]
    return found
