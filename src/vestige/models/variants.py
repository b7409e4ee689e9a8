"""Many prompts that stand in the same texts, scored at once: what a search over prompt tokens asks of a model.

Losses are in nats: the mean over a target's tokens, then over texts. Numbers are float32.

Axes: W prompts, T tokens of a prompt, K tokens of a target, S texts, V vocabulary, D hidden width.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.models.load import context_tokens
from vestige.models.variant_llama import LlamaPasses, is_llama_like
from vestige.models.variant_passes import Passes, RootPasses, can_share, in_bfloat16
from vestige.models.variant_screen import best_of
from vestige.models.variant_sharing import sharing_scorer
from vestige.models.variant_texts import Around as Around
from vestige.models.variant_texts import Ids as Ids
from vestige.models.variant_texts import Scorer, loss_gradient, plain_logits, plain_scorer

Screen = Literal["none", "bfloat16"]
Way = Literal["plain", "shared", "shared, written out"]
TOKEN_BUDGET = 1024


class Scored(NamedTuple):
    """A prompt's place in the list that was given, and its loss in nats."""

    # A tuple's own `index` is what nobody asks this one for.
    index: int  # type: ignore[assignment]
    loss: float


class Variants:
    """Scores many prompts that stand in the same texts. The prompts of one call have one length.

    What stands before a prompt is read once, what prompts have in common once a call, and the same prompt once; but
    each prompt by itself where `way` is "plain".
    """

    def __init__(
        self,
        model: PreTrainedModel,
        texts: Sequence[Around],
        *,
        screen: Screen = "none",
        token_budget: int = TOKEN_BUDGET,
    ) -> None:
        """`token_budget` bounds the tokens of a pass. A model that is not in float32 needs no screen and gets none."""
        if not texts or not all(text.target for text in texts):
            raise InputError("a prompt is searched for texts that each have a target of at least one token; give them")
        self._model = model
        self._texts = tuple(texts)
        self._context = context_tokens(model)
        self.way, self._exact = _exact_scorer(model, self._texts, self._context, token_budget)
        self._screen: Scorer | None = None
        if screen == "bfloat16" and self.way != "plain" and model.dtype == torch.float32:
            self._screen = _screening_scorer(model, self._exact, self._texts, token_budget)

    def losses(self, prompts: Sequence[Ids]) -> Float[Tensor, " W"]:
        """The loss of each prompt."""
        return _losses(self.target_logp(prompts))

    def target_logp(self, prompts: Sequence[Ids]) -> list[Float[Tensor, "W K"]]:
        """The log-probability of each target token after each prompt, for each text."""
        self._check(prompts)
        return self._scored(self._exact, prompts)

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The `n` least losses, least first, ties in the order given.

        A screen saves work. That none of them is missed is a rule and no proof (`variant_screen`).
        """
        self._check(prompts)
        if self._screen is None:
            known = dict(enumerate(self.losses(prompts).tolist()))
        else:
            distinct = list(dict.fromkeys(prompts))
            rough = self.screened(distinct).tolist()
            found = best_of(rough, lambda asked: self.losses([distinct[i] for i in asked]).tolist(), n)
            of_prompt = {distinct[i]: loss for i, loss in found.items()}
            known = {i: of_prompt[prompt] for i, prompt in enumerate(prompts) if prompt in of_prompt}
        return [Scored(i, known[i]) for i in sorted(known, key=lambda i: (known[i], i))[:n]]

    def screened(self, prompts: Sequence[Ids]) -> Float[Tensor, " W"]:
        """The rough loss of each prompt that `leaders` goes by; the exact one where there is no screen."""
        self._check(prompts)
        return _losses(self._scored(self._screen or self._exact, prompts))

    def gradient(self, prompt: Ids) -> Float[Tensor, "T V"]:
        """The derivative of the loss by each one-hot token of the prompt."""
        self._check([prompt])
        return loss_gradient(self._model, self._texts, prompt)

    @torch.inference_mode()
    def reached(self, prompt: Ids) -> tuple[bool, ...]:
        """For each text whether every token of its target is the model's first choice."""
        self._check([prompt])
        first = (plain_logits(self._model, text, [prompt])[0].argmax(-1) for text in self._texts)
        return tuple(ids.tolist() == list(text.target) for ids, text in zip(first, self._texts, strict=True))

    @torch.inference_mode()
    def _scored(self, scorer: Scorer, prompts: Sequence[Ids]) -> list[Float[Tensor, "W K"]]:
        distinct = {prompt: n for n, prompt in enumerate(dict.fromkeys(prompts))}
        found = scorer(torch.tensor(list(distinct), device=self._model.device))
        rows = torch.tensor([distinct[prompt] for prompt in prompts], device=self._model.device)
        return [logp.index_select(0, rows) for logp in found]

    def _check(self, prompts: Sequence[Ids]) -> None:
        lengths = {len(prompt) for prompt in prompts}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(f"prompts of one call have one length, of at least one token, not {sorted(lengths)}")
        (length,) = lengths
        longest = max(len(text.before) + length + len(text.after) + len(text.target) for text in self._texts)
        if longest > self._context:
            raise InputError(
                f"a prompt of {length} tokens makes a text of {longest} tokens, where the model reads {self._context}; "
                "search for a shorter prompt"
            )


def _losses(logp: Sequence[Float[Tensor, "W K"]]) -> Float[Tensor, " W"]:
    return torch.stack([one.mean(-1) for one in logp]).mean(0).neg()


@torch.inference_mode()
def _exact_scorer(
    model: PreTrainedModel, texts: Sequence[Around], context: int, token_budget: int
) -> tuple[Way, Scorer]:
    """How these texts are scored: by what prompts share, where a probe agrees with the plain way.

    It does within 1e-4 nats in float32, and 1/2 in narrower numbers.
    """
    plain = plain_scorer(model, texts, token_budget)
    if not can_share(model, context):
        return "plain", plain
    tolerance = 1e-4 if model.dtype == torch.float32 else 1 / 2
    ways: dict[Way, Callable[[], Passes]] = {"shared": lambda: RootPasses(model)}
    if is_llama_like(model):
        ways = {"shared, written out": lambda: LlamaPasses(model, torch.float32), **ways}
    for way, passes in ways.items():
        sharing = sharing_scorer(passes(), texts, token_budget, model.device)
        if _apart(sharing, plain, model) <= tolerance:
            return way, sharing
    return "plain", plain


@torch.inference_mode()
def _screening_scorer(
    model: PreTrainedModel, exact: Scorer, texts: Sequence[Around], token_budget: int
) -> Scorer | None:
    """The same in bfloat16, where a probe says that it is near enough to be of use."""
    try:
        passes = LlamaPasses(model, torch.bfloat16) if is_llama_like(model) else RootPasses(in_bfloat16(model))
        rough = sharing_scorer(passes, texts, token_budget, model.device)
        return rough if _apart(rough, exact, model) <= 1 / 2 else None
    except RuntimeError as error:
        # oneDNN refuses products of bfloat16 on processors that have none.
        if "primitive" not in str(error):
            raise
        return None


def _apart(found: Scorer, expected: Scorer, model: PreTrainedModel) -> float:
    """The largest distance of two log-probabilities on a probe; infinite where one is no number."""
    probe = _probe(model)
    pairs = zip(found(probe), expected(probe), strict=True)
    return max(float((a - b).abs().max().nan_to_num(nan=torch.inf)) for a, b in pairs)


def _probe(model: PreTrainedModel) -> Int[Tensor, "W T"]:
    """Prompts that differ in their last place, and in the one before."""
    size = model.config.get_text_config().vocab_size
    ids = [(7 * n + 3) % size for n in range(8)]
    return torch.tensor([ids[:4], [*ids[:3], ids[5]], [*ids[:2], ids[6], ids[3]]], device=model.device)
