"""Directional ablation: what tells forgotten from retained questions inside a model is taken out of all it computes.

Unlearning that only turns forgotten questions aside does so along one direction of the residual stream: A. Arditi and
others, Refusal in language models is mediated by a single direction, 2406.11717; J. Łucki and others, An adversarial
perspective on machine unlearning, 2409.18025, who bring most of RMU's back by it. For each block l

    v = mean over forgotten questions of h - mean over retained ones      h: mean output over the last 5 tokens
    u = v without coordinates beyond 3 SD of their mean, of length 1
    x' = x - (x . u) u                                                     for all that is added to the residual stream

The block is chosen by the answers to half of the facts, where retained answers lose less than FLOOR; the other half is
asked. The direction follows from questions alone, so that no answer is carried in but by that choice.

Axes: B rows, T positions, D hidden width, L blocks, N items.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from transformers import PreTrainedModel

from vestige.artifacts.audits import PlannedAttack
from vestige.attacks.planning import GIVEN, NOTHING, Attack, AttackSettings, Ended, Splits, Work
from vestige.attacks.relearn import shown_and_tested
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.seeds import generator
from vestige.models.blocks import blocks, hidden_states, outputs_kept
from vestige.models.forward import batches_by_length, right_padded
from vestige.models.load import LoadedModel
from vestige.models.scoring import TOKEN_BUDGET, score_answers

LAST = 5
"""Tokens of a question that are read, from its end."""
FLOOR = 0.05
"""Nats a token that retained answers may lose."""
OUTLIER = 3.0
"""Coordinates beyond so many SD are those of single neurons that are always large."""
_ADDED = ("self_attn", "attn", "attention", "self_attention", "mlp", "ffn", "feed_forward", "block_sparse_moe")
"""The parts of a block whose outputs are added to the residual stream, by the names that families give them.

Gemma 2 and 3 and OLMo 2 norm them before they are added; there the direction is taken out before that norm.
"""


class AblateSettings(AttackSettings):
    """Taking one direction out: questions of some forget items are seen, and others are asked."""

    amount: ClassVar[str] = "items"
    weights: ClassVar[str] = "directional ablation"

    items: PositiveInt = Field(default=50, exclude=True)
    """At most this many forget items whose questions give the direction, and whose answers choose the block."""

    @property
    def called(self) -> str:
        """By the number of items."""
        return f"ablate n={self.items}"

    @classmethod
    def in_audit(cls, asked: Mapping[str, Any]) -> Iterable[Self]:
        """One for each number of items."""
        return [cls(items=n) for n in asked["ablate"]]

    def plan(self, splits: Splits, *, seed: int) -> Attack:
        """Half of the contracts, or of one contract's facts, are seen; as many retained items stand beside them."""
        if len(splits.get("retain", ())) < 2:
            raise InputError("a direction is between forgotten and retained questions, and there are no retained ones")
        parts = shown_and_tested("forget_part", self.items, splits, seed=seed)
        ids = tuple(i.id for i in parts.tested)
        plan = PlannedAttack(
            self.called, "ablate", "forget_part", len(parts.shown), (GIVEN,), ids, False, self.identity()
        )
        return Attack(plan, parts.shown, parts.tested, splits=splits, notes=parts.notes(self.items))

    def run(self, work: Work, loaded: LoadedModel) -> Ended:
        """Choose a block, take its direction out, and ask; nothing is taken out where every block costs too much."""
        retain = list(work.attack.splits["retain"])
        order = generator(work.seed, "ablate").permutation(len(retain))[: len(work.attack.shown)]
        best, gains = chosen_block(loaded, work.attack.shown, [retain[n] for n in sorted(order.tolist())])
        direction = None if best is None else gains[best][1]
        with without_direction(loaded.model, direction):
            work.ask(GIVEN, lambda: loaded, work.on_progress)
        seen = {"block": -1.0 if best is None else float(best), "gain": 0.0 if best is None else gains[best][0]}
        return Ended({"choice of a block": math.log2(len(gains) + 1)}, NOTHING, NOTHING, seen)


def chosen_block(
    loaded: LoadedModel, forget: Sequence[Item], retain: Sequence[Item]
) -> tuple[int | None, list[tuple[float, Float[Tensor, " D"]]]]:
    """The best block to choose, and of every block its gain (nats a token of the answers of `forget`) and direction.

    None where no direction brings these answers up and costs retained ones less than FLOOR.
    """
    model = loaded.model
    states = [_mean_states(model, [loaded.prompter.prompt(i.question) for i in items]) for items in (forget, retain)]
    directions = [direction_of(v) for v in states[0] - states[1]]

    def levels() -> tuple[float, float]:
        encoded = [[loaded.prompter.encode(i.question, i.answer) for i in items] for items in (forget, retain)]
        means = [float(np.mean([np.mean(s.logp) for s in score_answers(model, codes)])) for codes in encoded]
        return means[0], means[1]

    before = levels()
    gains: list[tuple[float, Float[Tensor, " D"]]] = []
    best: int | None = None
    for n, direction in enumerate(directions):
        with without_direction(model, direction):
            after = levels()
        gains.append((after[0] - before[0], direction))
        if gains[n][0] > (0.0 if best is None else gains[best][0]) and before[1] - after[1] < FLOOR:
            best = n
    return best, gains


def direction_of(difference: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
    """The difference of two means without its outlying coordinates, of length 1 (of zeros: zeros)."""
    beyond = (difference - difference.mean()).abs() > OUTLIER * difference.std()
    rest = difference.masked_fill(beyond, 0.0)
    direction: Float[Tensor, " D"] = rest / rest.norm().clamp(min=1e-12)
    return direction


@torch.inference_mode()
def _mean_states(model: PreTrainedModel, prompts: Sequence[tuple[int, ...]]) -> Float[Tensor, "L D"]:
    """The mean over prompts of each block's mean output over a prompt's last tokens."""
    n_blocks = len(blocks(model))
    total = torch.zeros(n_blocks, model.config.get_text_config().hidden_size)
    for width, rows in batches_by_length([len(p) for p in prompts], token_budget=TOKEN_BUDGET):
        ids = right_padded([prompts[i] for i in rows], width, model.device)
        # To the end, where logits that are no numbers are seen with their text.
        with outputs_kept(model, range(n_blocks), stops=False) as outputs:
            model(input_ids=ids, use_cache=False, logits_to_keep=1)
        for n in range(n_blocks):
            hidden = hidden_states(outputs[n]).float()
            for row, i in enumerate(rows):
                stop = len(prompts[i])
                total[n] += hidden[row, max(0, stop - LAST) : stop].mean(0).cpu()
    return total / len(prompts)


@contextmanager
def without_direction(model: PreTrainedModel, direction: Float[Tensor, " D"] | None) -> Iterator[None]:
    """Within it nothing along `direction` is added to the model's residual stream; None changes nothing.

    As if it were written out of the embedding and of every matrix that ends an attention or an MLP. Raises InputError
    where a block's parts are not found by name.
    """
    with ExitStack() as hooks:
        for part in _parts(model) if direction is not None else ():
            hooks.callback(part.register_forward_hook(_projecting(direction)).remove)
        yield


def _parts(model: PreTrainedModel) -> list[nn.Module]:
    parts: list[nn.Module] = [model.get_input_embeddings()]
    for block in blocks(model):
        added = [child for name, child in block.named_children() if name in _ADDED]
        if len(added) != 2:
            names = ", ".join(name for name, _ in block.named_children())
            raise InputError(
                f"attention and MLP of a {type(block).__name__} are not found by name (it has {names}), so no "
                "direction can be taken out of what they add; leave this attack out"
            )
        parts += added
    return parts


def _projecting(direction: Tensor | None) -> Any:
    def hook(_: nn.Module, __: Any, output: Any) -> Any:
        assert direction is not None, "hooks are for a direction"
        hidden = hidden_states(output)
        u = direction.to(device=hidden.device, dtype=hidden.dtype)
        projected = hidden - (hidden @ u)[..., None] * u
        return projected if isinstance(output, torch.Tensor) else (projected, *output[1:])

    return hook
