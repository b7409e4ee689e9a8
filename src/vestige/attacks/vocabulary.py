"""Which tokens a searched prompt may use, which prompts stay the same tokens once they are text, and what to try next.

A prompt is deployed as text. What a tokeniser would cut differently was never seen by the search, so it is out.

Proposals (which prompts to look at next) follow GCG's rule: A. Zou et al., Universal and transferable adversarial
attacks on aligned language models, 2307.15043, in the form in which nanoGCG 0.3.0 samples. Every draw comes from a
given generator.

Axes: T tokens of a prompt, V vocabulary, k best tokens of a place, W prompts proposed, R places replaced in each.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from vestige.core.errors import InputError
from vestige.models.variants import Ids

_REPLACEMENT = "\ufffd"


@dataclass(frozen=True)
class Vocabulary:
    """Token ids that a searched prompt may use, ascending."""

    ids: Ids

    @property
    def bits(self) -> float:
        """What one token can carry: log2 of how many there are."""
        return math.log2(len(self.ids))

    def check(self, prompt: Ids) -> Ids:
        """The prompt itself; refused with tokens that none may have, whose bits would not be counted."""
        others = sorted(set(prompt).difference(self.ids))
        if others:
            raise InputError(
                f"the initial text has {len(others)} tokens that may not stand in a searched prompt, such as id "
                f"{others[0]}; leave them out, or set ascii_only=false where they print but are not ASCII"
            )
        return prompt


def admissible(tokenizer: PreTrainedTokenizerBase, n_rows: int, *, ascii_only: bool = True) -> Vocabulary:
    """The tokens below `n_rows` (rows of the embedding) that decode to printable text of their own.

    Out are special and added tokens (a person who types one deploys something else), parts of characters, line
    breaks and other signs that do not print, and with `ascii_only` all that is not ASCII.
    """
    out = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    ids = [i for i in range(min(len(tokenizer), n_rows)) if i not in out]
    texts = as_texts(tokenizer, [(i,) for i in ids])
    kept = tuple(i for i, text in zip(ids, texts, strict=True) if _prints(text, ascii_only))
    if not kept:
        raise InputError("no token of the tokeniser may stand in a searched prompt; set ascii_only=false")
    return Vocabulary(kept)


def _prints(text: str, ascii_only: bool) -> bool:
    return bool(text) and text.isprintable() and _REPLACEMENT not in text and (text.isascii() or not ascii_only)


def as_texts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Ids]) -> list[str]:
    """The text of each prompt, to the letter: no special token left out and no space tidied."""
    found: list[str] = tokenizer.backend_tokenizer.decode_batch([list(p) for p in prompts], skip_special_tokens=False)
    return found


def as_ids(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[Ids]:
    """The tokens of each text, nothing put before or behind."""
    backend = tokenizer.backend_tokenizer
    # What the last caller of the tokeniser asked for stays set in it.
    backend.no_padding()
    backend.no_truncation()
    return [tuple(e.ids) for e in backend.encode_batch_fast(list(texts), add_special_tokens=False)]


def kept_as_text(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Ids], *, before: str = "", after: str = ""
) -> list[bool]:
    """For each prompt whether its text, with `before` and `after` around it, has its tokens and theirs, none merged.

    A space at the end of `before` is the first token's own (most tokenisers put a word and the space before it in one
    token), so it is looked for in the prompt and not before it.
    """
    left, right = as_ids(tokenizer, [before.removesuffix(" "), after])
    texts = [before + text for text in inner_texts(tokenizer, prompts, spaced=before.endswith(" "))]
    found = as_ids(tokenizer, [text + after for text in texts])
    return [ids == left + prompt + right for ids, prompt in zip(found, prompts, strict=True)]


def inner_texts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Ids], *, spaced: bool) -> list[str]:
    """The text of each prompt without the space that, where `spaced`, stands between it and what is before it."""
    texts = as_texts(tokenizer, prompts)
    return [text.removeprefix(" ") for text in texts] if spaced else texts


def best_tokens(gradient: Float[Tensor, "T V"], vocabulary: Vocabulary, k: int) -> Int[np.ndarray, "T k"]:
    """For each place the `k` admissible tokens whose gradient promises the least loss, the best first."""
    check_topk(k, vocabulary)
    ids = torch.tensor(vocabulary.ids, device=gradient.device)
    best = (-gradient.index_select(1, ids)).topk(k, dim=1).indices
    found: Int[np.ndarray, "T k"] = ids[best].cpu().numpy()
    return found


def check_topk(k: int, vocabulary: Vocabulary) -> None:
    """Refuse more tokens for a place than may stand there."""
    if k > len(vocabulary.ids):
        raise InputError(
            f"topk is {k}, and only {len(vocabulary.ids)} tokens of the vocabulary may stand in the prompt; lower "
            "topk or set ascii_only=false"
        )


def swapped(
    prompt: Ids, best: Int[np.ndarray, "T k"], places: Int[np.ndarray, "W R"], ranks: Int[np.ndarray, "W R"]
) -> list[Ids]:
    """The prompt W times, in each the tokens at its `places` replaced by those of the given `ranks` among the best."""
    rows = np.tile(np.array(prompt), (len(places), 1))
    np.put_along_axis(rows, places, best[places, ranks], axis=1)
    return [tuple(row) for row in rows.tolist()]


def swaps_by_gradient(
    prompt: Ids,
    gradient: Float[Tensor, "T V"],
    vocabulary: Vocabulary,
    *,
    width: int,
    topk: int,
    replaced: int,
    rng: np.random.Generator,
) -> list[Ids]:
    """`width` prompts with `replaced` tokens each swapped for one of the `topk` best of its place, all uniformly.

    Places of one prompt differ. Repeats, and the prompt itself, can be among them.
    """
    if replaced > len(prompt):
        raise InputError(f"replaced is {replaced}, and the prompt has {len(prompt)} tokens; lower it")
    best = best_tokens(gradient, vocabulary, topk)
    places = rng.random((width, len(prompt))).argsort(axis=1, kind="stable")[:, :replaced]
    return swapped(prompt, best, places, rng.integers(0, topk, (width, replaced)))


def without_repeats(prompts: Iterable[Ids]) -> list[Ids]:
    """Each prompt once, where it stood first."""
    return list(dict.fromkeys(prompts))
