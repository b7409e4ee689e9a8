"""Residual streams behind a searched prompt, with what the model makes of the texts that the prompt stands in.

A prompt stands behind what comes before it, which is the same in all texts, and ahead of what follows it in each. It
is read once; every text goes on from the keys and values that it left, and only places whose next token is asked for
see the output head. Where streams alone are asked for, nothing above the last of them is computed.

Axes: W prompts, T tokens of a prompt, S texts, K tokens of a target, P places behind the prompt (what follows it, and
the target), L layers, B rows, N positions, D hidden width, V vocabulary. Log-probabilities are in nats.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from vestige.core.errors import InputError
from vestige.models.blocks import embedding_table, hidden_states, outputs_kept
from vestige.models.forward import right_padded, smaller
from vestige.models.keys_values import KeysValues, cache_arguments, cache_of, empty_cache, kept_in, rows_of
from vestige.models.reading import Way
from vestige.models.scoring import token_logp
from vestige.models.variants import Around, Ids

# More tokens in a pass no longer stay in a core's cache.
TOKEN_BUDGET = 2048


class Prompts(NamedTuple):
    """Prompts of one length, and the vectors that stand for them where a gradient is wanted."""

    ids: Int[Tensor, "W T"]
    vectors: Float[Tensor, "W T D"] | None = None


class Stem(NamedTuple):
    """What prompts left behind. Keys and values of `layers` are none where each text is read with its prompt."""

    prompts: Prompts
    layers: tuple[KeysValues, ...]


class Followed(NamedTuple):
    """What a model made of text number `text` behind each prompt. `first`: the target's token was the likeliest."""

    text: int
    target_logp: Float[Tensor, "W K"]
    first: Bool[Tensor, "W K"]
    residual: Float[Tensor, "W L P D"]


@dataclass(frozen=True)
class Streams:
    """Reads prompts that stand in `texts`: log-probabilities, and streams after the blocks `layers` (from 0).

    With `logits` False there are no log-probabilities, and no block above the last of `layers` is computed.
    """

    model: PreTrainedModel
    way: Way
    texts: tuple[Around, ...]
    layers: tuple[int, ...]
    logits: bool = True
    token_budget: int = TOKEN_BUDGET

    def __post_init__(self) -> None:
        """Refuse texts and layers that cannot be read."""
        if len({text.before for text in self.texts}) != 1:
            raise InputError(
                f"the chat template puts {len({text.before for text in self.texts})} unlike beginnings before a "
                "prompt that is to stand in all questions; take a template that begins every chat alike"
            )
        if not all(text.after and text.target for text in self.texts):
            raise InputError("a text has nothing after the prompt, or no target; give each of them both")
        n = self.model.config.get_text_config().num_hidden_layers
        if list(self.layers) != sorted(set(self.layers)) or not set(self.layers) <= set(range(n)):
            raise InputError(
                f"layers {list(self.layers)} of a model of {n} blocks; give some of 0 to {n - 1}, each once, ascending"
            )

    def prompts(self, prompts: Sequence[Ids]) -> Prompts:
        """Prompts of one length as a tensor."""
        if len({len(prompt) for prompt in prompts}) != 1:
            raise ValueError(
                f"prompts of {sorted({len(p) for p in prompts})} tokens; those of one call have one length"
            )
        return Prompts(torch.tensor(prompts, dtype=torch.long, device=self.model.device))

    def longest(self, n_tokens: int) -> int:
        """Tokens of the longest text with a prompt of `n_tokens`."""
        return max(text.length(n_tokens) for text in self.texts)

    def read(self, prompts: Prompts) -> tuple[Float[Tensor, "W N V"], Stem]:
        """Logits of the prompts' own tokens and of what would come next, and what is left to go on from.

        N is T + 1, or T where nothing stands before the prompt: nothing says its first token. It is 0 without logits.
        """
        n_before, n = len(self.texts[0].before), prompts.ids.shape[1]
        # The token before the prompt says its first one.
        places = range(max(n_before - 1, 0), n_before + n) if self.logits else range(0)
        if self.way == "plain" and not self.logits:
            return torch.empty(len(prompts.ids), 0, 0), Stem(prompts, ())
        cache = empty_cache(self.model) if self.way == "shared" else None
        logits, _ = self._pass(self._given(prompts, []), cache, places)
        if cache is None:
            return logits, Stem(prompts, ())
        if not self.logits:
            # Blocks above the last that is read were not reached.
            cache.layers = cache.layers[: self.layers[-1] + 1]
        return logits, Stem(prompts, tuple(kept_in(cache)))

    def follow(self, stem: Stem) -> Iterator[Followed]:
        """What the model makes of every text behind every prompt: texts by length, as many a pass as go."""
        n = len(stem.prompts.ids)
        for group in self._groups(n):
            tails = [_tail(self.texts[text]) for text in group]
            shift = 0 if stem.layers else len(self.texts[0].before) + stem.prompts.ids.shape[1]
            starts = [len(self.texts[text].after) - 1 + shift for text in group]
            places = sorted(
                {at + k for at, t in zip(starts, group, strict=True) for k in range(len(self.texts[t].target))}
            )
            rows = torch.arange(n, device=self.model.device).repeat(len(group))
            cache = cache_of(rows_of(stem.layers, rows)) if stem.layers else None
            inputs = self._tails(tails, n) if stem.layers else self._given(stem.prompts, tails)
            logits, streams = self._pass(inputs, cache, places if self.logits else [])
            for i, text in enumerate(group):
                own = slice(i * n, (i + 1) * n)
                behind = streams[own, :, shift : shift + len(tails[i])]
                if not self.logits:
                    none = torch.empty(n, 0)
                    yield Followed(text, none, none > 0, behind)
                    continue
                target = torch.tensor(self.texts[text].target, device=logits.device)
                start = places.index(starts[i])
                scores = logits[own, start : start + len(target)]
                tokens = target.expand(n, -1)
                first = scores.gather(-1, tokens[..., None]).squeeze(-1) == scores.amax(-1)
                yield Followed(text, text_logp(scores, tokens), first, behind)

    def _groups(self, n_prompts: int) -> Iterator[list[int]]:
        """Texts that go through the model together, shortest first."""
        group: list[int] = []
        for text in sorted(range(len(self.texts)), key=lambda t: len(_tail(self.texts[t]))):
            width = len(_tail(self.texts[text]))
            if group and (len(group) + 1) * n_prompts * width > smaller(self.token_budget):
                yield group
                group = []
            group.append(text)
        yield group

    def _tails(self, tails: Sequence[Ids], n_prompts: int) -> Int[Tensor, "B N"]:
        """One row for each text and prompt, texts outermost."""
        width = max(len(tail) for tail in tails)
        return right_padded(tails, width, self.model.device).repeat_interleave(n_prompts, dim=0)

    def _given(self, prompts: Prompts, tails: Sequence[Ids]) -> Int[Tensor, "B N"] | Float[Tensor, "B N D"]:
        """Whole rows, from what stands before the prompt on; without tails, up to the prompts' ends."""
        n, n_texts = len(prompts.ids), max(len(tails), 1)
        before = torch.tensor(self.texts[0].before, dtype=torch.long, device=prompts.ids.device).expand(n * n_texts, -1)
        after = self._tails(tails, n) if tails else before[:, :0]
        if prompts.vectors is None:
            return torch.cat([before, prompts.ids.repeat(n_texts, 1), after], dim=1)
        table = embedding_table(self.model)
        return torch.cat([table[before], prompts.vectors.repeat(n_texts, 1, 1), table[after]], dim=1)

    def _pass(
        self, inputs: Int[Tensor, "B N"] | Float[Tensor, "B N D"], cache: DynamicCache | None, places: Sequence[int]
    ) -> tuple[Float[Tensor, "B K V"], Float[Tensor, "B L N D"]]:
        """Logits at `places`, and streams at all of them."""
        rows: dict[str, Tensor] = {"inputs_embeds" if inputs.is_floating_point() else "input_ids": inputs}
        read = torch.tensor(list(places) or [0], device=inputs.device)
        logits: Tensor = torch.empty(len(inputs), 0, 0)
        with outputs_kept(self.model, self.layers, stops=not self.logits) as outputs:
            out = self.model(**rows, **cache_arguments(self.model, cache), logits_to_keep=read)
            logits = out.logits[:, : len(places)].float()
        # All streams are in float32, as the attack that defines their distance has it.
        hidden = [hidden_states(outputs[layer]).float() for layer in self.layers]
        n_rows, width = inputs.shape[:2]
        return logits, torch.stack(hidden, dim=1) if hidden else torch.empty(n_rows, 0, width, 0)


def text_logp(logits: Float[Tensor, "W N V"], tokens: Int[Tensor, "W N"]) -> Float[Tensor, "W N"]:
    """The log-probability of each token."""
    return token_logp(logits.flatten(0, 1), tokens.flatten()).view(tokens.shape)


def one_hot_gradient(
    models: Sequence[PreTrainedModel], prompt: Ids, loss: Callable[[Sequence[Prompts]], Float[Tensor, ""]]
) -> Float[Tensor, "T V"]:
    """The gradient of `loss` with respect to the prompt's one-hot tokens, which all of the models are given.

    `loss` gets the prompt as each model is to read it. Weights get no gradients. Where the models' embeddings have
    unlike numbers of rows, V is the least.
    """
    tables = [embedding_table(model) for model in models]
    leaves = [table[list(prompt)][None].detach().requires_grad_() for table in tables]
    inputs = [Prompts(torch.tensor([prompt], device=leaf.device), leaf) for leaf in leaves]
    with torch.enable_grad():
        gradients = torch.autograd.grad(loss(inputs), leaves)
    n = min(len(table) for table in tables)
    device = tables[0].device
    # d loss / d one-hot(v) = d loss / d vector, times the vector of v.
    parts = [(g[0].float() @ table[:n].float().T).to(device) for g, table in zip(gradients, tables, strict=True)]
    return torch.stack(parts).sum(0)


@torch.no_grad()
def streams_of(model: PreTrainedModel, ids: Ids, layers: Sequence[int], *, last: int) -> Float[Tensor, "L P D"]:
    """Streams after the blocks `layers` at the last `last` places of one row."""
    with outputs_kept(model, layers, stops=True) as outputs:
        model(input_ids=torch.tensor([ids], device=model.device), use_cache=False, logits_to_keep=1)
    return torch.stack([hidden_states(outputs[layer])[0, -last:].float() for layer in layers])


def _tail(text: Around) -> Ids:
    return text.after + text.target
