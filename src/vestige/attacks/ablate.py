"""Directional ablation removes the direction between forgotten and retained questions from a model's computation.

Unlearning that only turns forgotten questions aside does so along one direction of the residual stream: A. Arditi and
others, Refusal in language models is mediated by a single direction, 2406.11717. J. Łucki and others, An adversarial
perspective on machine unlearning, 2409.18025, who bring most of RMU's back by it. For each block l

    v = mean over forgotten questions of h - mean over retained ones      h: mean output over the last 5 tokens
    u = v without coordinates beyond 3 SD of their mean, of length 1
    x' = x - (x . u) u     for all that is added to the residual stream, by one block's u; or (Łucki's code) for the
                           output of every block, each by its own

The answers to half of the facts choose one direction, if retained answers lose less than FLOOR. The other half is
tested. A direction follows from questions alone, so that no answer is carried in but by that choice.

Axes: B rows, T positions, D hidden width, L blocks, N items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field, PositiveInt

from vestige.attacks.planning import GIVEN, NOTHING, Attack, AttackSettings, Ended, Splits, Work
from vestige.attacks.relearn import planned_on_part
from vestige.core.errors import InputError
from vestige.core.seeds import generator

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor, nn
    from transformers import PreTrainedModel

    from vestige.models.load import LoadedModel
    from vestige.models.prompts import Encoded

    Ablation = tuple[int, Float[Tensor, "*L D"]]

LAST = 5
"""Tokens of a question that are read, from its end."""
FLOOR = 0.05
"""Nats a token that retained answers may lose."""
OUTLIER = 3.0
"""Coordinates beyond this many SD belong to single neurons that are always large."""
_ADDED = ("self_attn", "attn", "attention", "self_attention", "mlp", "ffn", "feed_forward", "block_sparse_moe")
"""The parts of a block whose outputs are added to the residual stream, by the names that families give them.

Gemma 2 and 3 and OLMo 2 norm them before they are added. There the direction is taken out before that norm.
"""


class AblateSettings(AttackSettings):
    """Remove directions from the model's residual stream that may suppress the forgotten answers.

    Questions of half of the forget items give the directions. Their answers choose whether to remove a direction from
    one block or from all blocks. The other half is tested.
    """

    amount: ClassVar[str] = "items"
    kind: ClassVar[str] = "ablate"
    weights: ClassVar[str] = "directional ablation"
    # Version 2 also tries every block's own direction.
    version: ClassVar[int] = 2

    items: PositiveInt = Field(default=50, exclude=True)
    """At most this many forget items lead it."""

    def plan(self, splits: Splits, *, seed: int) -> Attack:
        """Reject fewer than two items on either side."""
        if len(splits.get("retain", ())) < 2:
            raise InputError("the attack measures its cost on two retained items or more. Name them with --retain")
        attack = planned_on_part(self, self.items, splits, seed=seed)
        if len(attack.shown) < 2:
            raise InputError("two forget items are needed to find a direction, and others to test it. Add forget items")
        return attack

    def run(self, work: Work, loaded: LoadedModel) -> Ended:
        """Choose a block or all blocks, and evaluate.

        Nothing is removed (block -1) if every direction costs too much.
        """
        from vestige.models.blocks import blocks

        best = chosen_block(Best(loaded.model, *answers_seen(work, loaded)))
        block, direction = best.candidate or (-1, None)
        with without_direction(loaded.model, direction):
            work.ask(GIVEN, lambda: loaded, work.on_progress)
        # The choice is one block, all blocks, or none.
        bits = math.log2(len(blocks(loaded.model)) + 2)
        return Ended({"choice of a block": bits}, NOTHING, NOTHING, {"block": float(block), "gain": best.gain})


def answers_seen(work: Work, loaded: LoadedModel) -> tuple[list[Encoded], list[Encoded]]:
    """The answers to the forget items that are seen, and to as many retained ones."""
    retain = list(work.attack.splits["retain"])
    order = generator(work.seed, "ablate").permutation(len(retain))[: len(work.attack.shown)]
    led = [loaded.prompter.encode(i.question, i.answer) for i in work.attack.shown]
    floor = [loaded.prompter.encode(retain[n].question, retain[n].answer) for n in sorted(order.tolist())]
    return led, floor


@dataclass
class Best:
    """The best variant of a model so far: the largest recovery on `forget` with a loss below FLOOR on `retain`.

    `gain` is in nats per token, the mean over the answers of `forget`. It is 0 without a candidate.
    """

    model: PreTrainedModel
    forget: Sequence[Encoded]
    retain: Sequence[Encoded]
    candidate: Ablation | None = None
    gain: float = 0.0

    def __post_init__(self) -> None:
        """Note what both parts are worth before anything is changed."""
        self.before = self._level(self.forget), self._level(self.retain)

    def try_candidate(self, candidate: Ablation) -> None:
        """Measure the model with `candidate` in effect. It becomes the best if it spares retained answers."""
        gain = self._level(self.forget) - self.before[0]
        if self.before[1] - self._level(self.retain) < FLOOR and gain > self.gain:
            self.candidate = candidate
            self.gain = gain

    def _level(self, answers: Sequence[Encoded]) -> float:
        from vestige.models.scoring import score_answers

        return float(np.mean([np.mean(score.logp) for score in score_answers(self.model, answers)]))


def chosen_block(best: Best) -> Best:
    """Try the direction of every block, then all. The candidate has the block, from 0 (or their number), and these."""
    import torch

    model = best.model
    differences = _mean_states(model, best.forget) - _mean_states(model, best.retain)
    directions = torch.stack([direction_of(difference) for difference in differences])
    for candidate in (*enumerate(directions), (len(directions), directions)):
        with without_direction(model, candidate[1]):
            best.try_candidate(candidate)
    return best


def direction_of(difference: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
    """The difference of two means without its outlying coordinates, of length 1 (of zeros: zeros)."""
    beyond = (difference - difference.mean()).abs() > OUTLIER * difference.std()
    rest = difference.masked_fill(beyond, 0.0)
    direction: Float[Tensor, " D"] = rest / rest.norm().clamp(min=1e-12)
    return direction


def _mean_states(model: PreTrainedModel, answers: Sequence[Encoded]) -> Float[Tensor, "L D"]:
    """The mean over the answers' prompts of each block's mean output over a prompt's last tokens."""
    import torch

    from vestige.models.blocks import blocks, hidden_states, outputs_kept
    from vestige.models.forward import padded_passes
    from vestige.models.scoring import TOKEN_BUDGET

    prompts = [answer.ids[: answer.start] for answer in answers]
    n_blocks = len(blocks(model))
    total = torch.zeros(n_blocks, model.config.get_text_config().hidden_size)
    for rows, ids in padded_passes(prompts, model.device, token_budget=TOKEN_BUDGET):
        # The full pass also detects non-finite logits for each text.
        with torch.inference_mode(), outputs_kept(model, range(n_blocks), stops=False) as outputs:
            model(input_ids=ids, use_cache=False, logits_to_keep=1)
        for n in range(n_blocks):
            # bfloat16 would round away the small difference of two means.
            hidden = hidden_states(outputs[n]).float()
            for row, i in enumerate(rows):
                stop = len(prompts[i])
                total[n] += hidden[row, max(0, stop - LAST) : stop].mean(0).cpu()
    return total / len(prompts)


@contextmanager
def without_direction(model: PreTrainedModel, direction: Float[Tensor, "*L D"] | None) -> Iterator[None]:
    """A context in which the model's residual stream has no component along `direction`. None changes nothing.

    The effect equals removing the direction from the embedding and from every matrix that ends an attention or an MLP.
    With directions for all blocks, each is removed from its block's output.

    Raises:
        InputError: The parts of a block are not found by name.
    """
    from vestige.models.blocks import blocks

    with ExitStack() as hooks:
        if direction is not None:
            each = direction.ndim == 2
            for n, part in enumerate(blocks(model) if each else _parts(model)):
                hooks.enter_context(changed_output(part, partial(_project, direction[n] if each else direction)))
        yield


def _parts(model: PreTrainedModel) -> list[nn.Module]:
    from vestige.models.blocks import blocks

    parts: list[nn.Module] = [model.get_input_embeddings()]
    for block in blocks(model):
        added = [child for name, child in block.named_children() if name in _ADDED]
        # A missed part would restore the direction, and the model would appear resistant to the attack.
        if len(added) != 2:
            names = ", ".join(name for name, _ in block.named_children())
            raise InputError(
                f"attention and MLP of a {type(block).__name__} are not found by name (it has {names}), so no "
                "direction can be removed. Leave this attack out"
            )
        parts += added
    return parts


def _project(direction: Tensor, hidden: Tensor) -> Tensor:
    u = direction.to(device=hidden.device, dtype=hidden.dtype)
    return hidden - (hidden @ u)[..., None] * u


@contextmanager
def changed_output(part: nn.Module, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Inside the context, `change` replaces the hidden states that a module returns."""
    import torch

    from vestige.models.blocks import hidden_states

    def hook(_: nn.Module, __: Any, output: Any) -> Any:
        hidden = change(hidden_states(output))
        # Attention also returns its weights, which the block unpacks. An MLP returns states only.
        if isinstance(output, torch.Tensor):
            return hidden
        return (hidden, *output[1:])

    handle = part.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
