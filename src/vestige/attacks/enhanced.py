"""Enhanced GCG: one prefix for many questions, under which an unlearned model answers and thinks like its target.

Source: J. Łucki et al., An adversarial perspective on machine unlearning for AI safety, 2409.18025, used by 2506.00688.
The loss of a prefix has four terms:

    forcing + distance * D + fluency * F + repetition * P

- Forcing is the loss of the target's own reply, in nats a token. A token as likely as `clamp` is pushed no further.
- D is the distance between the residual streams of the two models behind the prefix.
- F is the loss of the prefix itself under the attacked model, in nats a token.
- P counts repeated tokens.

The search is `gcg`'s. The released code also inserts, deletes and swaps tokens and lets the prefix grow. This module
replaces tokens by gradient in a prefix of fixed length. It returns the best prefix seen.

Axes: W prompts, T tokens of a prompt, K forced tokens, P places behind the prompt, N places, L layers, D hidden width,
V vocabulary.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from vestige.attacks.gcg import (
    ByGradient,
    FoundPrompt,
    Keeper,
    PromptSearch,
    SearchSettings,
    around,
    nothing_spent,
    search,
    tell_nobody,
    tokens_read,
)
from vestige.attacks.prompts import EnhancedSettings
from vestige.core.errors import InputError
from vestige.models.blocks import embedding_table, hidden_states, outputs_kept
from vestige.models.forward import within_memory
from vestige.models.generation import generate
from vestige.models.load import LoadedModel, context_tokens
from vestige.models.scoring import TOKEN_BUDGET, logits_budget, token_logp
from vestige.models.variants import Around, Ids, Scored


@dataclass(frozen=True)
class GuideReply:
    """A question and the beginning of the target's reply, which the prefix has to bring."""

    question: str
    forced: Ids


def layers_at_depth(n_blocks: int) -> tuple[int, ...]:
    """Return the blocks after which hidden states are compared by default: a fifth to a quarter of the depth.

    The released code hooks the inputs of its layers 7, 8 and 9 of 32, counted from 1, so 6, 7 and 8 blocks are below.
    Here the same shares of `n_blocks` are rounded, to at least one block.

    Example: blocks 5, 6 and 7 of 32; 4 and 5 of 24. Block 0 of 4 or fewer.
    """
    # Integer arithmetic rounds halves up, where `round` would go to the even neighbour.
    below = {max(1, (2 * k * n_blocks + 32) // 64) for k in (6, 7, 8)}
    return tuple(sorted(n - 1 for n in below))


def samples_of(guide: LoadedModel, questions: Sequence[str], settings: EnhancedSettings) -> list[GuideReply]:
    """Ask the target each question greedily and without a prefix. The token that ends a reply belongs to it."""
    prompter = guide.prompter
    replies = generate(
        guide.model,
        [prompter.prompt(question) for question in questions],
        end_ids=prompter.end_ids,
        max_new_tokens=settings.forced_tokens,
        context=prompter.max_tokens,
    )
    samples = []
    for question, reply in zip(questions, replies, strict=True):
        ids = reply.ids
        if reply.finish == "stop":
            # If the target ends its reply, the end token is part of the forced text.
            ids = (*ids, *prompter.end_ids[:1])[: settings.forced_tokens]
        samples.append(GuideReply(question, ids))
    return samples


def forcing(logp: Float[Tensor, "W K"], clamp: float) -> Float[Tensor, " W"]:
    """Mean over the tokens of max(-log p, -ln clamp), in nats.

    The code of 2409.18025 bounds the mean. FLRT (2407.17447), from which it comes, bounds each token, as here.
    """
    return (-logp).clamp(min=-math.log(clamp)).mean(-1)


def distance(subject: Float[Tensor, "W L P D"], target: Float[Tensor, "W L P D"]) -> Float[Tensor, " W"]:
    """Mean over layers and places of the Euclidean distance between two residual streams."""
    apart: Tensor = torch.linalg.vector_norm(subject - target, dim=-1)
    return apart.mean((-2, -1))


def repetition(prompts: Sequence[Ids], power: float) -> Float[Tensor, " W"]:
    """Return the sum over tokens of (count - 1) to the `power`, divided by the prompt's length. It has no gradient."""
    penalties = []
    for prompt in prompts:
        repeats = [(count - 1) ** power for count in Counter(prompt).values()]
        penalties.append(sum(repeats) / len(prompt))
    return torch.tensor(penalties)


@dataclass(frozen=True)
class PrefixObjective:
    """The loss of a prefix: the distance between the model and the target in output and hidden states.

    `guide` is the target, or None if hidden states are not compared or the model is the target itself.
    """

    subject: PreTrainedModel
    guide: PreTrainedModel | None
    texts: tuple[Around, ...]
    layers: tuple[int, ...]
    settings: EnhancedSettings
    spent: Counter[str]

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The `n` prompts of least loss, least first."""
        self._charge(prompts, len(self._models))
        losses = self.losses(prompts)
        return [Scored(int(i), float(losses[i])) for i in losses.argsort(stable=True)[:n]]

    def reached(self, prompt: Ids) -> bool:
        """Whether every forced token is the most likely one."""
        self._charge([prompt], 1)
        return self.says(prompt)

    @torch.inference_mode()
    def says(self, prompt: Ids) -> bool:
        """Return the same as `reached`, without counting the cost."""
        for text in self.texts:
            logits, _ = self._read(self.subject, text, self._ids([prompt]), None)
            first = logits[0, -len(text.target) - 1 : -1].argmax(-1).tolist()
            if first != list(text.target):
                return False
        return True

    @within_memory
    @torch.inference_mode()
    def losses(self, prompts: Sequence[Ids], *, token_budget: int = TOKEN_BUDGET) -> Float[Tensor, " W"]:
        """The loss of each prompt. All prompts have the same length."""
        longest = max(text.length(len(prompts[0])) for text in self.texts)
        step = max(1, logits_budget(self.subject, token_budget) // longest)
        losses = []
        for start in range(0, len(prompts), step):
            chunk = prompts[start : start + step]
            total = self._of_prompts(chunk).to(self.subject.device)
            for number in range(len(self.texts)):
                total = total + self._of_text(number, chunk, None)
            losses.append(total)
        return torch.cat(losses)

    def gradient(self, prompt: Ids) -> Float[Tensor, "T V"]:
        """The derivative of the loss by the prompt's one-hot tokens, through subject and target."""
        self.spent.update({"gradients": 1})
        self._charge([prompt], len(self._models))
        tables = [embedding_table(model) for model in self._models]
        leaves = [table[list(prompt)][None].detach().requires_grad_() for table in tables]
        totals = [torch.zeros_like(leaf) for leaf in leaves]
        # One text at a time, since the graphs of all texts would multiply the memory.
        for number in range(len(self.texts)):
            with torch.enable_grad():
                loss = self._of_text(number, [prompt], leaves)[0]
            for total, part in zip(totals, torch.autograd.grad(loss, leaves), strict=True):
                total += part
        n_rows = min(len(table) for table in tables)
        gradient = torch.zeros(len(prompt), n_rows, device=tables[0].device)
        for table, total in zip(tables, totals, strict=True):
            # The derivative by a one-hot token is the derivative by the vector, times the token's vector.
            gradient += (total[0].float() @ table[:n_rows].float().T).to(gradient.device)
        return gradient

    @property
    def _models(self) -> list[PreTrainedModel]:
        """The models that read the prompt, the subject first."""
        if self.guide is None:
            return [self.subject]
        return [self.subject, self.guide]

    def _charge(self, prompts: Sequence[Ids], n_models: int) -> None:
        self.spent.update({"tokens_read": n_models * tokens_read(self.texts, prompts)})

    def _ids(self, prompts: Sequence[Ids]) -> Int[Tensor, "W T"]:
        return torch.tensor(prompts, dtype=torch.long, device=self.subject.device)

    def _of_prompts(self, prompts: Sequence[Ids]) -> Float[Tensor, " W"]:
        """Return the part of the loss that does not depend on texts and has no gradient."""
        if not self.settings.repetition:
            return torch.zeros(len(prompts))
        return self.settings.repetition * repetition(prompts, self.settings.repetition_power)

    def _of_text(
        self, number: int, prompts: Sequence[Ids], vectors: Sequence[Float[Tensor, "W T D"]] | None
    ) -> Float[Tensor, " W"]:
        """The part of the loss that comes from one text. Fluency comes from the first one."""
        text, settings = self.texts[number], self.settings
        ids = self._ids(prompts)
        logits, streams = self._read(self.subject, text, ids, None if vectors is None else vectors[0])
        n_target = len(text.target)
        target = torch.tensor(text.target, device=logits.device).expand(len(ids), -1)
        loss = forcing(_logp(logits[:, -n_target - 1 : -1], target), settings.clamp) / len(self.texts)
        if self.guide is not None:
            _, theirs = self._read(self.guide, text, ids, None if vectors is None else vectors[1])
            apart = distance(streams, theirs.to(streams.device))
            loss = loss + settings.distance * apart / len(self.texts)
        if number == 0 and settings.fluency:
            # No token predicts the first token of a chat.
            first = 1
            if text.before:
                first = 0
            if ids.shape[1] > first:
                own = _logp(logits[:, : ids.shape[1] - first], ids[:, first:])
                loss = loss - settings.fluency * own.mean(-1)
        return loss

    def _read(
        self, model: PreTrainedModel, text: Around, ids: Int[Tensor, "W T"], vectors: Float[Tensor, "W T D"] | None
    ) -> tuple[Float[Tensor, "W N V"], Float[Tensor, "W L P D"]]:
        """Logits from the place before the prompt on, and the streams behind the prompt, both in float32.

        The guide is read no higher than the last stream that is compared, so that it has no logits.
        """
        ids = ids.to(model.device)
        before = torch.tensor(text.before, dtype=torch.long, device=ids.device).expand(len(ids), -1)
        behind = torch.tensor(text.after + text.target, device=ids.device).expand(len(ids), -1)
        if vectors is None:
            rows = {"input_ids": torch.cat([before, ids, behind], dim=1)}
        else:
            table = embedding_table(model)
            rows = {"inputs_embeds": torch.cat([table[before], vectors, table[behind]], dim=1)}
        logits = torch.empty(len(ids), 0, 0)
        # Without a guide, the streams of a subject have no comparison.
        layers = self.layers if self.guide is not None else ()
        n_read = ids.shape[1] + behind.shape[1] + bool(text.before)
        with outputs_kept(model, layers, stops=model is self.guide) as outputs:
            logits = model(**rows, use_cache=False, logits_to_keep=n_read).logits.float()
        if not layers:
            return logits, torch.empty(len(ids), 0, behind.shape[1], 0)
        streams = [hidden_states(outputs[layer])[:, -behind.shape[1] :].float() for layer in layers]
        return logits, torch.stack(streams, dim=1)


def _logp(logits: Float[Tensor, "W N V"], tokens: Int[Tensor, "W N"]) -> Float[Tensor, "W N"]:
    return token_logp(logits.flatten(0, 1), tokens.flatten()).view(tokens.shape)


def find_prefix(
    loaded: LoadedModel,
    guide: LoadedModel,
    samples: Sequence[GuideReply],
    settings: EnhancedSettings,
    *,
    seed: int,
    keeper: Keeper | None = None,
    on_step: Callable[[int, int], None] = tell_nobody,
) -> FoundPrompt:
    """Search for the prefix under which `loaded` comes nearest to its target `guide`.

    The search continues after all forced tokens match, since the other terms can still fall. At the end the best prefix
    is checked once, uncharged.
    """
    if not samples:
        raise InputError("a prefix search needs questions, and there are none. Give at least one")
    if loaded.prompter.digest != guide.prompter.digest:
        raise InputError(
            f"{guide.name} has another tokeniser or chat template than {loaded.name}, so they cannot be compared under "
            "one prefix. Give the model that was unlearned as the target"
        )
    texts = tuple(around(loaded.prompter, s.question, s.forced, "prefix") for s in samples)
    searching = PromptSearch(
        loaded=loaded,
        texts=texts,
        # Models with the same tokeniser can have embeddings with different numbers of rows.
        n_rows=min(len(embedding_table(model)) for model in (loaded.model, guide.model)),
        ascii_only=settings.ascii_only,
        topk=settings.topk,
    )
    start = searching.start(settings.tokens, settings.initial, seed=seed)
    longest = max(text.length(len(start)) for text in texts)
    if longest > context_tokens(loaded.model):
        raise InputError(
            f"a prefix of {len(start)} tokens and its longest question take {longest} tokens and the model reads "
            f"{context_tokens(loaded.model)}. Lower tokens"
        )
    objective = _objective(loaded, guide, texts, settings)
    state = search(
        start,
        objective,
        ByGradient(objective=objective, where=searching, width=settings.candidates),
        SearchSettings(steps=settings.steps, buffer=settings.buffer, stop_when_reached=False),
        seed=seed,
        keeper=keeper,
        spent=objective.spent,
        on_step=on_step,
    )
    return searching.found(state, reached=objective.says(state.best[0]))


def _objective(
    loaded: LoadedModel, guide: LoadedModel, texts: tuple[Around, ...], settings: EnhancedSettings
) -> PrefixObjective:
    """Return the objective of these models. It has no guide if nothing is compared or both models are the same."""
    layers: tuple[int, ...] = ()
    compared = settings.distance > 0 and guide.model is not loaded.model
    if compared:
        own_config, guide_config = (model.model.config.get_text_config() for model in (loaded, guide))
        depth = own_config.num_hidden_layers
        if (depth, own_config.hidden_size) != (guide_config.num_hidden_layers, guide_config.hidden_size):
            raise InputError(
                f"{loaded.name} has {depth} layers of width {own_config.hidden_size} and {guide.name} "
                f"{guide_config.num_hidden_layers} of {guide_config.hidden_size}, so their streams cannot be compared. "
                "Set distance=0"
            )
        layers = tuple(sorted(set(settings.layers))) or layers_at_depth(depth)
        if layers[-1] >= depth:
            raise InputError(f"layer {layers[-1]} is not in a model of {depth} blocks. Give some of 0 to {depth - 1}")
    return PrefixObjective(
        subject=loaded.model,
        guide=guide.model if compared else None,
        texts=texts,
        layers=layers,
        settings=settings,
        spent=nothing_spent(),
    )
