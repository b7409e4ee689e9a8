"""One effective batch: how objectives read the policy, and the gradients of the loss.

One effective batch: its rows through the model in micro-batches, and the gradients of its loss, added up. The step of
an objective: the policy's quantities from as few and as small passes as the rows allow.

Rows share a pass, concatenated or in groups of like length, and the head computes only the positions that are read, for
all passes at once. Distributions come laid end to end, in one row: losses do not care.

Axes: B rows, T positions, D hidden width, N positions end to end, V vocabulary.

The blocks under the lowest trained one, where nothing down there is trained: computed once a row, and kept. Each row
passes through these blocks by itself, so that stored and recomputed values have the same bytes: a resumed run, whose
memory is empty, continues bit for bit.

Axes: B rows, T positions, D hidden width.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, chain
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from vestige.core.errors import InputError
from vestige.core.seeds import derive_seed
from vestige.core.text import NumberByName, NumberMapping
from vestige.models.blocks import block_output, blocks, continued_from, gives_hidden_states_alone
from vestige.models.forward import (
    LogitsRead,
    Packed,
    Pass,
    attention,
    halve,
    how_to_read,
    logits_read,
    packs,
    padded_width,
    passes_by_length,
    reads_packed,
    right_padded,
)
from vestige.models.scoring import token_logp
from vestige.training.batching import BatchPlan, Row, Split
from vestige.training.checkpoints import TrainingJob
from vestige.training.parallel import Spread
from vestige.training.settings import TrainingSettings
from vestige.training.step import Activations, Answers, Distributions, Needs, ReferenceRow, Slice

KEPT_BYTES = 2 << 30
"""The maximum size of the store. Further rows are computed each time that they come."""


@dataclass
class FrozenBelow:
    """The input of block `lowest`, the first trained one, by the row's key."""

    lowest: int
    kept: dict[str, Float[Tensor, "T D"]] = field(default_factory=dict)
    n_bytes: int = 0

    @classmethod
    def of(cls, model: PreTrainedModel, layer: int, row: Row) -> "FrozenBelow | None":
        """Return the frozen blocks of `model`, or None if there are none or `row` shows that they cannot be skipped.

        They can be skipped if they return the same output twice (no dropout) and the model gives the same result from
        that output as from the tokens, to 1e-4.
        """
        every = blocks(model)
        # Trained embeddings are below all blocks.
        lowest = 0
        if not _trains(model.get_input_embeddings()):
            lowest = next((n for n, block in enumerate(every) if _trains(block)), 0)
        if not 0 < lowest <= layer:
            return None
        ids = right_padded([row.ids], len(row.ids), model.device)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            if not gives_hidden_states_alone(model, ids):
                return None
            first, second = block_output(model, ids, lowest - 1), block_output(model, ids, lowest - 1)
            if not torch.equal(first, second):
                return None
            whole = block_output(model, ids, layer)
            after = continued_from(model, ids, first, start=lowest, layer=layer)
        if torch.allclose(after, whole, rtol=1e-4, atol=1e-4):
            return cls(lowest)
        return None

    def block_output(self, model: PreTrainedModel, rows: Sequence[Row], layer: int) -> Float[Tensor, "B T D"]:
        """The output of block `layer`. The gradient reaches down to the lowest trained block."""
        below = self._below(model, rows)
        width = max(len(r.ids) for r in rows)
        ids = right_padded([r.ids for r in rows], width, model.device)
        entering = pad_sequence([below[r.key].to(model.device) for r in rows], batch_first=True)
        return continued_from(model, ids, entering, start=self.lowest, layer=layer)

    @torch.no_grad()
    def _below(self, model: PreTrainedModel, rows: Sequence[Row]) -> dict[str, Tensor]:
        cached = {r.key: self.kept[r.key] for r in rows if r.key in self.kept}
        missing = list({r.key: r for r in rows if r.key not in cached}.values())
        for row in missing:
            # The values are stored off the device, whose memory is scarce. A step copies one row's values back.
            value = block_output(model, right_padded([row.ids], len(row.ids), model.device), self.lowest - 1)[0].cpu()
            cached[row.key] = value
            if self.n_bytes + value.nbytes <= KEPT_BYTES:
                self.kept[row.key] = value
                self.n_bytes += value.nbytes
        return cached


def _trains(part: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in part.parameters())


# The fixed cost of a separate pass, in tokens: reading weights, adding gradients, starting kernels. Measured on the
# tiny shape of `benchmarks.training`. Half to twice the value takes at most about 5 % longer.
PASS_TOKENS = {"float32": 24, "bfloat16": 96}
# A GPU is saturated only by thousands of tokens. Not measured.
GPU_PASS_TOKENS = 2048

T = TypeVar("T")


@dataclass(frozen=True)
class PassPlan:
    """The way of reading the policy, determined once before training: it depends on the model and the device only.

    `pass_tokens` is the cost of a separate pass, in tokens. `below` computes the blocks under the lowest trained one,
    where they are frozen. `aligned` widths are multiples of eight: bfloat16's kernels are made anew for each shape, and
    fewer shapes take less memory. With `packed` rows whose logits are read are concatenated.
    """

    logits: LogitsRead = logits_read
    pass_tokens: int = PASS_TOKENS["float32"]
    below: FrozenBelow | None = None
    aligned: bool = False
    packed: bool = False

    def width(self, rows: Sequence[Row]) -> int:
        """The width of a pass over the rows."""
        longest = max(len(r.ids) for r in rows)
        if self.aligned:
            return padded_width(longest)
        return longest

    def passes(self, rows: Sequence[Row]) -> list[list[int]]:
        """Indices of the rows that go through the model together."""
        return passes_by_length([len(r.ids) for r in rows], pass_tokens=self.pass_tokens)


@dataclass
class ForwardStep:
    """The rows of one micro-batch under the policy, and the frozen reference's values.

    `logits` holds, split after split and row after row, those that predict the rows' loss tokens.
    """

    needs: Needs
    slices: Mapping[Split, Slice]
    references: Mapping[str, ReferenceRow]
    state: NumberMapping = field(default_factory=dict)
    observed: NumberByName = field(default_factory=dict)
    logits: dict[Split, Float[Tensor, "N V"]] = field(default_factory=dict)
    tokens: dict[Split, Int[Tensor, " N"]] = field(default_factory=dict)
    hidden: dict[Split, list[Float[Tensor, "T D"]]] = field(default_factory=dict)

    def run(self, model: PreTrainedModel, layer: int | None = None, reading: PassPlan | None = None) -> "ForwardStep":
        """Compute the policy's values for the objective. `layer` is the block whose output it reads."""
        reading = reading or PassPlan()
        if self.needs.of_logits:
            self._read_logits(model, reading)
        if self.needs.activations:
            assert layer is not None
            self._read_block(model, layer, reading)
        return self

    def _read_logits(self, model: PreTrainedModel, reading: PassPlan) -> None:
        read, rows = self._rows_of(self.needs.of_logits)
        passes, order = label_passes(rows, reading, model.device)
        logits = reading.logits(model, passes, order)
        tokens = torch.tensor([*chain.from_iterable(r.answer_ids for r in rows)], device=model.device)
        sizes = []
        for split in read:
            sizes.append(sum(r.n_tokens for r in self.slices[split].rows))
        self.logits = dict(zip(read, logits.split(sizes), strict=True))
        self.tokens = dict(zip(read, tokens.split(sizes), strict=True))

    def _read_block(self, model: PreTrainedModel, layer: int, reading: PassPlan) -> None:
        read, rows = self._rows_of(self.needs.activations)
        outputs: dict[int, Tensor] = {}
        for chosen in reading.passes(rows):
            batch = [rows[i] for i in chosen]
            if reading.below is not None:
                hidden = reading.below.block_output(model, batch, layer)
            else:
                width = reading.width(batch)
                ids = right_padded([r.ids for r in batch], width, model.device)
                hidden = block_output(model, ids, layer)
            outputs |= {i: hidden[k, : len(rows[i].ids)] for k, i in enumerate(chosen)}
        in_order = iter([outputs[i] for i in range(len(rows))])
        for split in read:
            self.hidden[split] = [next(in_order) for _ in self.slices[split].rows]

    def _rows_of(self, splits: frozenset[Split]) -> tuple[list[Split], list[Row]]:
        """Return the splits that have rows here, and all their rows, split after split."""
        read = [split for split in self.slices if split in splits]
        return read, [*chain.from_iterable(self.slices[split].rows for split in read)]

    def observe(self, name: str, value: Float[Tensor, ""]) -> None:
        self.observed[name] = self.observed.get(name, 0.0) + value.item()

    def policy(self, split: Split) -> Answers:
        self._declared(split, self.needs.policy, "policy")
        whole = self.slices[split]
        values = token_logp(self.logits[split], self.tokens[split]).split([r.n_tokens for r in whole.rows])
        return Answers(*_side_by_side(values), whole.n_rows, whole.n_tokens)

    def reference(self, split: Split) -> Answers:
        self._declared(split, self.needs.reference, "reference")
        whole = self.slices[split]
        # An objective may use only the reference's values.
        if split in self.logits:
            device = self.logits[split].device
        else:
            device = torch.device("cpu")
        values = [known(self.references[r.key].logp).to(device) for r in whole.rows]
        return Answers(*_side_by_side(values), whole.n_rows, whole.n_tokens)

    def policy_distributions(self, split: Split) -> Distributions:
        self._declared(split, self.needs.distributions | self.needs.policy_distributions, "policy's distributions")
        return self._distributions(split, self.logits[split].float().log_softmax(-1))

    def reference_distributions(self, split: Split) -> Distributions:
        """They are aligned with the policy's, so that the two can be compared position by position."""
        self._declared(split, self.needs.distributions, "distributions")
        stored = [known(self.references[r.key].distributions) for r in self.slices[split].rows]
        device = self.logits[split].device
        # Usually all come from one head: then one product covers all rows.
        if all(k.finish is stored[0].finish for k in stored):
            return self._distributions(split, stored[0].finish(torch.cat([k.states for k in stored]).to(device)))
        return self._distributions(split, torch.cat([k.finish(k.states.to(device)) for k in stored]))

    def _distributions(self, split: Split, logp: Float[Tensor, "N V"]) -> Distributions:
        tokens = self.tokens[split][None]
        mask = torch.ones_like(tokens, dtype=torch.bool)
        return Distributions(logp[None], mask, self.slices[split].n_tokens, tokens)

    def activations(self, split: Split) -> Activations:
        self._declared(split, self.needs.activations, "activations")
        return self._activations(split, self.hidden[split])

    def reference_activations(self, split: Split) -> Activations:
        self._declared(split, self.needs.reference_activations, "the reference's activations")
        stored = [known(self.references[r.key].activations) for r in self.slices[split].rows]
        return self._activations(split, [h.to(self.hidden[split][0].device) for h in stored])

    def answer_ids(self, split: Split) -> list[Int[Tensor, " _"]]:
        self._declared(split, self.needs.answer_ids, "answer ids")
        return [torch.tensor(r.answer_ids) for r in self.slices[split].rows]

    def _activations(self, split: Split, hidden: Sequence[Float[Tensor, "_ D"]]) -> Activations:
        whole = self.slices[split]
        return Activations(*_side_by_side(hidden), whole.n_rows, tuple(r.topic for r in whole.rows))

    def _declared(self, split: Split, declared: frozenset[Split], kind: str) -> None:
        if split not in declared:
            raise KeyError(f"{kind} of {split!r} was not declared in needs; declared: {sorted(declared)}")


def label_passes(rows: Sequence[Row], reading: PassPlan, device: torch.device) -> tuple[list[Pass], Int[Tensor, " N"]]:
    """The passes over the rows, reading what predicts their loss tokens.

    The order maps the results, pass after pass, to the rows' own order.
    """
    passes: list[Pass] = []
    owners: list[int] = []
    for together in packs([len(r.ids) for r in rows]) if reading.packed else reading.passes(rows):
        chosen = [rows[i] for i in together]
        passes.append(pass_over(chosen, None if reading.packed else reading.width(chosen), device))
        for i in together:
            owners += [i] * rows[i].n_tokens
    # A stable sort keeps the order of a row's own tokens.
    order = torch.tensor(owners, device=device).argsort(stable=True)
    return passes, order


def pass_over(rows: Sequence[Row], width: int | None, device: torch.device) -> Pass:
    """A pass over the rows, padded to `width` or, without one, end to end. It reads what predicts their loss tokens."""
    lengths = [len(r.ids) if width is None else width for r in rows]
    starts = [0, *accumulate(lengths)]
    # The position before a token predicts it.
    read: list[int] = []
    for start, r in zip(starts, rows, strict=False):
        read += range(start + r.start - 1, start + r.stop - 1)
    places = torch.tensor(read, device=device)
    if width is None:
        return Pass(torch.tensor([[*chain.from_iterable(r.ids for r in rows)]]), places, Packed.of(lengths))
    return Pass(right_padded([r.ids for r in rows], width, device), places)


def _side_by_side(values: Sequence[Tensor]) -> tuple[Tensor, Bool[Tensor, "B T"]]:
    """Pad rows of differing length into one tensor, with a mask."""
    lengths = torch.tensor([len(v) for v in values], device=values[0].device)
    together = pad_sequence(list(values), batch_first=True)
    return together, torch.arange(together.shape[1], device=lengths.device) < lengths[:, None]


def known(value: T | None) -> T:
    """A reference quantity that was declared, and so was computed."""
    assert value is not None
    return value


@dataclass(frozen=True)
class BatchTerms:
    """The results of one effective batch: the terms of its loss, the observations (nats), tokens computed."""

    terms: NumberByName
    observed: NumberByName
    n_tokens: int


@dataclass(frozen=True)
class Backward:
    """Turns an effective batch into gradients of the model's trained parameters, on all processes together."""

    spread: Spread
    job: TrainingJob
    reading: PassPlan
    halved: "Counter[str]" = field(default_factory=Counter)

    def add(self, batch: BatchPlan, step: int, state: NumberMapping) -> BatchTerms:
        """Add the gradients of the loss of `batch` to the trained parameters' gradients.

        The random numbers of dropout follow from the seed, the step and the part, whichever process computes it. If a
        GPU's memory is too small for a part, the batch starts again in smaller parts: not with dropout, whose random
        numbers are drawn by the part and would change, nor on several processes. Raises InputError then.
        """
        while True:
            # An earlier gradient could not be separated from this batch's, and would be discarded with it.
            before = [p.grad is None for p in self.spread.trained]
            try:
                return self._added(batch, step, state)
            except torch.OutOfMemoryError as error:
                parts = micro_batches(batch, self.job, halvings=self.halved["parts"])
                splits = chain.from_iterable(part.values() for part in parts)
                largest = max(len(s.rows) for s in splits)
                if self.job.world.size > 1 or not all(before) or self._drops() or largest < 2:
                    raise self._too_large(step, largest) from error
            # Not in the handler, because there the error still references the tensors of the pass.
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
        advice = f"Begin anew with {' or '.join(ways)}" if ways else "Take a GPU with more memory"
        return InputError(
            f"the memory of {self.spread.model.device} does not hold {n_rows} rows of a split at step {step + 1} of "
            f"the training{why}. {advice}"
        )

    def _drops(self) -> bool:
        model = self.spread.model
        inside = any(isinstance(m, nn.Dropout) and m.p > 0 for m in model.modules())
        # Attention applies dropout inside its kernel, where no module shows it.
        return inside or bool(getattr(model.config, "attention_dropout", 0))

    def _added(self, batch: BatchPlan, step: int, state: NumberMapping) -> BatchTerms:
        job, world = self.job, self.spread.world
        terms: NumberByName = {}
        observed: NumberByName = {}
        n_tokens = 0.0
        device = self.spread.model.device.type
        # Only this card: by default, the state of every visible card would be saved at each step.
        cards = [self.spread.model.device.index or 0] if device == "cuda" else []
        with torch.random.fork_rng(devices=cards), attention(device, job.settings.precision):
            parts = world.deal(list(micro_batches(batch, job, halvings=self.halved["parts"])))
            for at, (number, slices, weight) in enumerate(parts, start=1):
                # The first part has the seed of an undivided batch.
                torch.manual_seed(derive_seed(job.seed, "dropout", step, *([number] if number else [])))
                values: NumberByName = {}
                compute = partial(self._terms, slices, state, values)
                added = self.spread.add_gradients(compute, weight=weight, last=at == len(parts))
                for sums, part in ((terms, {n: v.item() for n, v in added.items()}), (observed, values)):
                    for name, value in part.items():
                        sums[name] = sums.get(name, 0.0) + weight * value
                for split_rows in slices.values():
                    n_tokens += weight * sum(len(row.ids) for row in split_rows.rows)
        n_tokens = world.summed({"n_tokens": n_tokens})["n_tokens"]
        return BatchTerms(world.summed(terms), world.summed(observed), round(n_tokens))

    def _terms(self, slices: dict[Split, Slice], state: NumberMapping, observed: NumberByName) -> dict[str, Tensor]:
        job, model = self.job, self.spread.model
        forward = ForwardStep(job.objective.needs, slices, job.references, state, observed)
        with torch.autocast(model.device.type, torch.bfloat16, enabled=job.settings.precision == "bfloat16"):
            forward.run(model, job.layer, self.reading)
        # Outside autocast: losses are computed in float32, whatever the format of the products.
        return job.objective.terms(forward)


def reading_for(model: PreTrainedModel, job: TrainingJob) -> PassPlan:
    """Return the faster ways of reading that are correct for this model, tested on one row of the job.

    A model in pieces goes through in one whole pass, which all processes make together.
    """
    needs = job.objective.needs
    first = job.plan.epoch(0)[0]
    split = needs.splits[0]
    row = job.rows[split](first[split][0])
    logits = how_to_read(model, row.ids) if needs.of_logits else logits_read
    aligned = job.settings.precision == "bfloat16"
    below = FrozenBelow.of(model, job.layer, row) if job.layer is not None else None
    # Recomputation in the backward pass does not use the attention of packed rows.
    plain = job.settings.precision == "float32" and not job.settings.gradient_checkpointing
    packed = bool(plain and needs.of_logits and reads_packed(model, row.ids))
    alone = GPU_PASS_TOKENS
    if model.device.type == "cpu":
        alone = PASS_TOKENS[job.settings.precision]
    return PassPlan(logits, alone, below, aligned=aligned, packed=packed)


def micro_batches(batch: BatchPlan, job: TrainingJob, *, halvings: int = 0) -> Iterator[dict[Split, Slice]]:
    """The effective batch in parts of at most `micro_batch_size` rows a split and `token_budget` tokens in all.

    Rows at the same index in their splits stay together, since preferences compare these rows. Under a token budget
    parts hold rows of like length. The losses of the parts sum to the whole's, whatever the parts.
    """
    rows: dict[Split, list[Row]] = {s: list(map(job.rows[s], batch[s])) for s in job.objective.needs.splits}
    for places in _parts(list(rows.values()), job, halvings):
        part = {}
        for split, whole in rows.items():
            chosen = [whole[i] for i in places if i < len(whole)]
            if chosen:
                part[split] = Slice(chosen, len(whole), sum(row.n_tokens for row in whole))
        yield part


def _parts(rows: Sequence[Sequence[Row]], job: TrainingJob, halvings: int) -> Iterator[list[int]]:
    n = max(len(r) for r in rows)
    most, budget = job.world.rows_at_a_time(n, job.settings.micro_batch_size), job.settings.token_budget
    # A batch with a single part is halved from its own size.
    if halvings:
        most = max(1, min(most, n) >> halvings)
    sizes = [0] * n
    for split_rows in rows:
        for i, row in enumerate(split_rows):
            sizes[i] += len(row.ids)
    order = list(range(n))
    if budget is not None:
        order.sort(key=lambda i: sizes[i])
    part: list[int] = []
    total = 0
    for i in order:
        over = budget is not None and total + sizes[i] > budget
        if len(part) == most or (part and over):
            yield part
            part, total = [], 0
        part.append(i)
        total += sizes[i]
    yield part


@contextmanager
def recomputing(model: PreTrainedModel, settings: TrainingSettings, device: str) -> Iterator[None]:
    """Within it `model` computes its blocks again on the way back, if the settings ask for it."""
    if not settings.gradient_checkpointing:
        yield
        return
    if not model.supports_gradient_checkpointing:
        raise InputError(f"{type(model).__name__} does not know gradient_checkpointing. Leave it off")
    # The backward pass runs outside the attention that `backward` installs, and must compute the same values.
    recompute = attention(device, settings.precision)
    with _old_names():
        # The re-entrant form gives frozen inputs no gradient, so adapters would get none.
        how = {"use_reentrant": False, "context_fn": lambda: (nullcontext(), recompute)}
        model.gradient_checkpointing_enable(how)
    try:
        yield
    finally:
        with _old_names():
            model.gradient_checkpointing_disable()


@contextmanager
def _old_names() -> Iterator[None]:
    """The new name, which transformers recommends, does not exist in every supported version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
