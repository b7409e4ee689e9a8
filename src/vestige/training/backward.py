"""One effective batch: its rows through the model in micro-batches, and the gradients of its loss, added up."""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.core.seeds import derive_seed
from vestige.models.forward import halve
from vestige.models.head import how_to_read, logits_read, reads_packed
from vestige.models.products import attention
from vestige.training.batching import BatchPlan, Row, Split
from vestige.training.checkpoints import Job
from vestige.training.forward_step import GPU_PASS_TOKENS, PASS_TOKENS, ForwardStep, FrozenBelow, Reading
from vestige.training.parallel import Spread
from vestige.training.settings import TrainingSettings
from vestige.training.step import Slice


@dataclass(frozen=True)
class Measured:
    """What one effective batch gave: the terms of its loss and what the objective observed (nats), tokens computed."""

    terms: dict[str, float]
    observed: dict[str, float]
    n_tokens: int


@dataclass(frozen=True)
class Backward:
    """What turns an effective batch into gradients of the model's trained parameters, on all processes together."""

    spread: Spread
    job: Job
    reading: Reading
    halved: "Counter[str]" = field(default_factory=Counter)

    def add(self, batch: BatchPlan, step: int, state: Mapping[str, float]) -> Measured:
        """Add the gradients of the loss of `batch` to those of the trained parameters.

        The random numbers of dropout follow from the seed, the step and the part, whichever process computes it. Where
        a GPU's memory does not hold a part, the batch is begun again in smaller ones: not with dropout, whose random
        numbers are drawn by the part and would be others, nor on several processes. Raises InputError then.
        """
        while True:
            before = [p.grad is None for p in self.spread.model.parameters()]
            try:
                return self._added(batch, step, state)
            except torch.OutOfMemoryError as error:
                parts = micro_batches(batch, self.job, halvings=self.halved["parts"])
                largest = max(len(s.rows) for part in parts for s in part.values())
                if self.job.world.size > 1 or not all(before) or self._drops() or largest < 2:
                    raise self._too_large(step, largest) from error
            self.spread.model.zero_grad(set_to_none=True)
            self.halved["parts"] += 1
            halve()

    def _too_large(self, step: int, n_rows: int) -> InputError:
        ways = [] if self.job.settings.gradient_checkpointing else ["gradient_checkpointing=true"]
        why = ""
        if n_rows > 1:
            ways.insert(0, f"micro_batch_size={n_rows // 2}")
            if self._drops():
                why = ", and with dropout other parts would be another training"
                ways += ["lora_dropout=0, which lets parts be halved"] if self.job.settings.lora_dropout else []
        advice = f"begin anew with {' or '.join(ways)}" if ways else "take a GPU with more memory"
        return InputError(
            f"the memory of {self.spread.model.device} does not hold {n_rows} rows of a split at step {step + 1} of "
            f"the training{why}; {advice}"
        )

    def _drops(self) -> bool:
        model = self.spread.model
        inside = any(isinstance(m, nn.Dropout) and m.p > 0 for m in model.modules())
        return inside or bool(getattr(model.config, "attention_dropout", 0))

    def _added(self, batch: BatchPlan, step: int, state: Mapping[str, float]) -> Measured:
        job, world = self.job, self.spread.world
        terms: dict[str, float] = {}
        observed: dict[str, float] = {}
        n_tokens = 0.0
        device = self.spread.model.device.type
        with torch.random.fork_rng(devices=_cuda_devices(self.spread.model)), attention(device, job.settings.precision):
            parts = world.deal(list(micro_batches(batch, job, halvings=self.halved["parts"])))
            for at, (number, slices, weight) in enumerate(parts, start=1):
                torch.manual_seed(derive_seed(job.seed, "dropout", step, *([number] if number else [])))
                seen: dict[str, float] = {}
                compute = partial(self._terms, slices, state, seen)
                found = self.spread.add_gradients(compute, weight=weight, last=at == len(parts))
                _add(terms, {name: value.item() for name, value in found.items()}, weight)
                _add(observed, seen, weight)
                n_tokens += weight * sum(len(row.ids) for part in slices.values() for row in part.rows)
        n_tokens = world.summed({"n_tokens": n_tokens})["n_tokens"]
        return Measured(world.summed(terms), world.summed(observed), round(n_tokens))

    def _terms(
        self, slices: dict[Split, Slice], state: Mapping[str, float], observed: dict[str, float]
    ) -> dict[str, Tensor]:
        job, model = self.job, self.spread.model
        forward = ForwardStep(job.objective.needs, slices, job.references, state, observed)
        with torch.autocast(model.device.type, torch.bfloat16, enabled=job.settings.precision == "bfloat16"):
            forward.run(model, job.layer, self.reading)
        return job.objective.terms(forward)


def reading_for(model: PreTrainedModel, job: Job) -> Reading:
    """Which of the shorter ways of reading this model are right for it, found out on one row of the job.

    A model in pieces goes through in one whole pass, which all processes make together.
    """
    needs = job.objective.needs
    first = job.plan.epoch(0)[0]
    split = needs.splits[0]
    row = job.rows[split](first[split][0])
    logits = how_to_read(model, row.ids) if needs.of_logits else logits_read
    together = pass_tokens(model.device.type, job)
    aligned = job.settings.precision == "bfloat16"
    if job.world.kind == "fsdp":
        return Reading(logits, together, stops=False, aligned=aligned)
    below = FrozenBelow.of(model, job.layer, row) if job.layer is not None else None
    # What is computed again on the way back is computed outside of the attention of packed rows.
    plain = job.settings.precision == "float32" and not job.settings.gradient_checkpointing
    packed = bool(plain and needs.of_logits and reads_packed(model, row.ids))
    return Reading(logits, together, below, aligned=aligned, packed=packed)


def pass_tokens(device: str, job: Job) -> int | None:
    """What a pass of its own costs on a device of this type, in tokens; None where a part has to be one pass."""
    if job.world.kind == "fsdp":
        return None
    return PASS_TOKENS[job.settings.precision] if device == "cpu" else GPU_PASS_TOKENS


def micro_batches(batch: BatchPlan, job: Job, *, halvings: int = 0) -> Iterator[dict[Split, Slice]]:
    """The effective batch in parts of at most `micro_batch_size` rows a split and `token_budget` tokens in all.

    Rows that stand at the same place in their splits stay together, since preferences compare them; under a token
    budget parts hold rows of like length. The losses of the parts add up to that of the whole, whatever the parts.
    """
    rows: dict[Split, list[Row]] = {s: [job.rows[s](i) for i in batch[s]] for s in job.objective.needs.splits}
    sizes = {s: (len(r), sum(row.n_tokens for row in r)) for s, r in rows.items()}
    for places in _parts(list(rows.values()), job, halvings):
        part = {s: [r[i] for i in places if i < len(r)] for s, r in rows.items()}
        yield {s: Slice(r, *sizes[s]) for s, r in part.items() if r}


def _parts(rows: Sequence[Sequence[Row]], job: Job, halvings: int) -> Iterator[list[int]]:
    n = max(len(r) for r in rows)
    most, budget = job.world.rows_at_a_time(n, job.settings.micro_batch_size), job.settings.token_budget
    # A batch that one part holds begins to be halved from its own size.
    most = max(1, min(most, n) >> halvings) if halvings else most
    sizes = [sum(len(r[i].ids) for r in rows if i < len(r)) for i in range(n)]
    order = list(range(n)) if budget is None else sorted(range(n), key=lambda i: sizes[i])
    part: list[int] = []
    for i in order:
        full = len(part) == most or (budget is not None and part and sum(sizes[k] for k in part) + sizes[i] > budget)
        if full:
            yield part
            part = []
        part.append(i)
    yield part


def _add(sums: dict[str, float], values: Mapping[str, float], weight: float) -> None:
    for name, value in values.items():
        sums[name] = sums.get(name, 0.0) + weight * value


def _cuda_devices(model: PreTrainedModel) -> list[int]:
    return [model.device.index or 0] if model.device.type == "cuda" else []


@contextmanager
def recomputing(model: PreTrainedModel, settings: TrainingSettings, device: str) -> Iterator[None]:
    """Within it `model` computes its blocks again on the way back, if the settings ask for it; on a `device` so named.

    Both the training and the estimate of its memory go through here.
    """
    if not settings.gradient_checkpointing:
        yield
        return
    if not model.supports_gradient_checkpointing:
        raise InputError(f"{type(model).__name__} does not know gradient_checkpointing; leave it off")
    # The backward pass runs outside of the attention that `backward` puts in, and must compute the same again.
    again = attention(device, settings.precision)
    with _old_names():
        # The re-entrant form gives frozen inputs no gradient, and so adapters none.
        how = {"use_reentrant": False, "context_fn": lambda: (nullcontext(), again)}
        model.gradient_checkpointing_enable(how)
    try:
        yield
    finally:
        with _old_names():
            model.gradient_checkpointing_disable()


@contextmanager
def _old_names() -> Iterator[None]:
    """The later name of what is called here, which it warns of, is not in every transformers that is admitted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
