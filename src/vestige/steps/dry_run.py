"""What a training would take, without training: the memory that it needs at most, and how its batches are cut.

How much memory a training will take, found without weights: the training's own step, on tensors that have no data. The
model's parameters are replaced by tensors of their shapes and types, the heaviest part of an effective batch goes
forward and backward through the code that trains, and every storage is counted from its making to its end. What is
counted is what PyTorch hands out: the process, a device's context and what an allocator holds back come on top.

Sizes are in bytes, and for one process of those that train together.
"""

import copy
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from vestige.artifacts.layout import AttackFolder, SubjectFolder
from vestige.attacks import attack_of
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.methods import build_method
from vestige.methods.base import FromStart
from vestige.models.blocks import blocks
from vestige.models.forward import batches_by_length, right_padded
from vestige.models.head import Pass, logits_read
from vestige.models.load import LoadedModel, ModelSettings, n_constituents, outline, pick_device
from vestige.models.products import attention
from vestige.models.scoring import TOKEN_BUDGET as ASKED_TOKENS
from vestige.models.scoring import token_logp
from vestige.models.tiny import tiny_config, tiny_tokenizer
from vestige.steps.attack import AttackRequest
from vestige.steps.controls import SuppressRequest, taught
from vestige.steps.finetune import FinetuneRequest, check_tiny, finetuning_job
from vestige.steps.unlearn import UnlearnRequest, recipe_asked, unlearning_job
from vestige.training.backward import KEPT_BYTES, ForwardStep, Reading, micro_batches, pass_tokens, recomputing
from vestige.training.batching import Row, Split, row_of
from vestige.training.checkpoints import Job
from vestige.training.loop import refuse_unsound, total_steps
from vestige.training.parallel import ALONE, World
from vestige.training.reference import TOKEN_BUDGET
from vestige.training.settings import TrainingSettings
from vestige.training.step import KeepsState, KeptDistributions, ReferenceRow, Slice

M = TypeVar("M", bound=nn.Module)
Part = Mapping[Split, Slice]
# Dettmers et al., 2110.02861, as bitsandbytes does it: blocks of 256 numbers with a scale of 32 bits each, and plain
# moments for tensors that are smaller than this.
_PLAIN_BELOW, _BLOCK = 4096, 256


@dataclass(frozen=True)
class Memory:
    """A training's memory (bytes): what stays, what one pass holds above it, and the most at one time.

    `activations` is what a pass holds at most above weights, gradients and moments. `kept` is what was computed once
    before training; but for a frozen head it lies in the host's memory. `waiting` is the peak of computing it, when
    there are no moments yet. Gradients come while activations go, so that `peak` can be less than the sum.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    kept: int
    waiting: int
    peak: int


def estimate_memory(model: PreTrainedModel, job: Job, device: str) -> Memory:
    """The memory of `train(model, job)` on a device of this type, `cpu` or `cuda`.

    Only the shapes of `model` are read: it may lie on the meta device. What trains has to be in it already (adapters,
    frozen parts). With sharded weights `activations` holds the weights of the blocks that are gathered at a time.
    What `train` would refuse is refused here too.
    """
    refuse_unsound(model, job.settings, job.world.kind)
    needs = job.objective.needs
    trained = [p for p in model.parameters() if p.requires_grad]
    parameters, gradients = _nbytes(model.parameters()), _nbytes(trained)
    optimizer = sum(_moments(p, job.settings) for p in trained)
    rows = _rows(job)
    aligned = job.settings.precision == "bfloat16"
    reading = Reading(logits_read, pass_tokens(device, job), stops=job.world.kind != "fsdp", aligned=aligned)
    parts, n_parts = _heaviest(model, job, reading)
    first, again = map(max, zip(*(_passes(model, job, part, reading, device) for part in parts), strict=True))
    activations = again - parameters - gradients
    head = _nbytes(_frozen_head(model, job.settings).parameters()) if needs.distributions else 0
    kept = _kept_bytes(model, job, rows)
    waiting = _reference_pass(model, job, rows) if needs.uses_reference else 0
    at_once = first if n_parts == 1 and job.world.kind is None else again
    if job.world.kind == "fsdp":
        n = job.world.size
        activations += _gathered(model)
        parameters, gradients, optimizer = -(-parameters // n), -(-gradients // n), -(-optimizer // n)
        at_once = parameters + gradients + activations
    peak = max(at_once + optimizer, waiting) + head + (kept if device == "cpu" else 0)
    return Memory(parameters, gradients, optimizer, activations, head + kept, waiting, peak)


def untrained_shape(config: PreTrainedConfig, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A model of that shape without weights, on the meta device."""
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model


class _Storages(TorchDispatchMode):
    """Counts storages while they live: bytes now, and the most at one time.

    On the way back autograd adds a gradient to the one that waits for it in place, but not while it is watched: with
    `adds_in_place` such a sum is counted as the storage that it would have gone into.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self.sizes: dict[int, int] = {}
        self.adds_in_place = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        # Blocks that are computed again on the way back are so with gradients on.
        if self.adds_in_place and func is torch.ops.aten.add.Tensor and not torch.is_grad_enabled():
            self._pass_on(args[0], out)
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        # PyTorch keeps one Python object a storage for as long as the storage lives.
        if id(storage) in self.sizes:
            return
        self.sizes[id(storage)] = storage.nbytes()
        self.now += storage.nbytes()
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._forget, id(storage))

    def _pass_on(self, before: Tensor, after: Tensor) -> None:
        key = id(before.untyped_storage())
        if isinstance(after, torch.Tensor) and self.sizes.get(key) == after.untyped_storage().nbytes():
            self.now -= self.sizes[key]
            self.sizes[key] = 0

    def _forget(self, key: int) -> None:
        self.now -= self.sizes.pop(key)


def _passes(model: PreTrainedModel, job: Job, part: Part, reading: Reading, device: str) -> tuple[int, int]:
    """The most at one time in the pass that makes the gradients, and in one that adds to them; no moments counted."""
    model, settings = _fresh(model), job.settings
    state = job.objective.start() if isinstance(job.objective, KeepsState) else {}
    with recomputing(model, settings, device), FakeTensorMode(shape_env=ShapeEnv()), _Storages() as storages:
        _without_data(model)
        model.train()
        references = _references(model, job, part)
        # The frozen head and what is kept are counted apart.
        kept = storages.now - _nbytes(model.parameters())
        peaks = []
        for _ in range(2):
            storages.most = storages.now
            forward = ForwardStep(job.objective.needs, part, references, state, {})
            with attention(device, settings.precision):
                with torch.autocast("cpu", torch.bfloat16, enabled=settings.precision == "bfloat16"):
                    forward.run(model, job.layer, reading)
                terms = list(job.objective.terms(forward).values())
                loss = torch.stack(terms).sum()
                storages.adds_in_place = True
                loss.backward()
                storages.adds_in_place = False
            del forward, terms, loss
            peaks.append(storages.most - kept)
    return peaks[0], peaks[1]


def _reference_pass(model: PreTrainedModel, job: Job, rows: Mapping[Split, list[Row]]) -> int:
    """The most at one time while the reference's quantities are computed."""
    needs = job.objective.needs
    read = [r for s in needs.reference | needs.distributions for r in rows[s]]
    if not read:
        read = [r for s in needs.reference_activations for r in rows[s]]
    with torch.autocast("cpu", torch.bfloat16, enabled=job.settings.precision == "bfloat16"):
        return _forward_pass(model, read, TOKEN_BUDGET, distributions=bool(needs.distributions))


@torch.no_grad()
def _forward_pass(model: PreTrainedModel, read: Sequence[Row], token_budget: int, *, distributions: bool) -> int:
    """The most at one time while the rows are read, so many tokens in a pass."""
    chunks = list(batches_by_length([len(r.ids) for r in read], token_budget=token_budget))
    width, chunk = max(chunks, key=lambda c: (len(c[1]) * c[0], sum(read[i].n_tokens for i in c[1])))
    batch = [read[i] for i in chunk]
    model = _fresh(model)
    with FakeTensorMode(shape_env=ShapeEnv()), _Storages() as storages:
        _without_data(model)
        model.eval()
        ids = right_padded([r.ids for r in batch], width, torch.device("cpu"))
        at = torch.tensor([k * width + p for k, r in enumerate(batch) for p in range(r.start - 1, r.stop - 1)])
        logits = logits_read(model, [Pass(ids, at)], torch.arange(len(at)))
        if distributions:
            logits.float().log_softmax(-1)
        else:
            token_logp(logits, ids.flatten()[at])
        most: int = storages.most
        return most


def _fresh(model: M) -> M:
    """A copy of the model's modules that shares its parameters."""
    shared: M = copy.deepcopy(model, {id(p): p for p in model.parameters()})
    return shared


def _frozen_head(model: PreTrainedModel, settings: TrainingSettings) -> nn.Module:
    head: nn.Module = _fresh(model.get_output_embeddings())
    _without_data(head, torch.bfloat16 if settings.precision == "bfloat16" else None)
    return head


def _without_data(model: nn.Module, dtype: torch.dtype | None = None) -> None:
    """Put tensors without data into the model, where its own were; tied weights stay tied."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, old in module._parameters.items():
            if old is not None:
                if id(old) not in made:
                    made[id(old)] = nn.Parameter(_like(old, dtype), requires_grad=old.requires_grad)
                module._parameters[name] = made[id(old)]
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else _like(buffer)


def _like(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty(tensor.shape, dtype=dtype or tensor.dtype, device="cpu")


def _references(model: PreTrainedModel, job: Job, part: Part) -> dict[str, ReferenceRow]:
    """Reference quantities of the rows of a part, without values."""
    needs, width = job.objective.needs, model.config.get_text_config().hidden_size
    head = _frozen_head(model, job.settings)
    dtype = next(head.parameters()).dtype

    @torch.no_grad()
    def finish(states: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        logp: Tensor = head(states.to(dtype)).float().log_softmax(-1)
        return logp

    found: dict[str, ReferenceRow] = {}
    for row in (row for whole in part.values() for row in whole.rows):
        states = KeptDistributions(torch.empty(row.n_tokens, width), finish) if needs.distributions else None
        hidden = torch.empty(len(row.ids), width) if needs.reference_activations else None
        found[row.key] = ReferenceRow(torch.empty(row.n_tokens), states, hidden)
    return found


def _kept_bytes(model: PreTrainedModel, job: Job, rows: Mapping[Split, list[Row]]) -> int:
    """What the reference said of all rows, and what frozen blocks gave."""
    needs = job.objective.needs
    width: int = model.config.get_text_config().hidden_size
    unique = {s: {r.key: r for r in found}.values() for s, found in rows.items()}
    n_labels = partial(_total, unique, lambda r: r.n_tokens)
    n_tokens = partial(_total, unique, lambda r: len(r.ids))
    values = n_labels(needs.reference | needs.distributions) + width * n_labels(needs.distributions)
    below = min(4 * width * n_tokens(needs.activations), KEPT_BYTES)
    return 4 * (values + width * n_tokens(needs.reference_activations)) + below


def _total(rows: Mapping[Split, Iterable[Row]], size: Callable[[Row], int], splits: Iterable[Split]) -> int:
    return sum(size(r) for s in splits for r in rows[s])


def _rows(job: Job) -> dict[Split, list[Row]]:
    """The rows that the reference is asked about, by split: all that will be drawn."""
    needs = job.objective.needs
    asked = needs.reference | needs.distributions | needs.reference_activations | needs.activations
    numbers: dict[Split, set[int]] = {s: set() for s in sorted(asked)}
    for epoch in range(_n_epochs(job)):
        for batch in job.plan.epoch(epoch):
            for split, drawn in numbers.items():
                drawn.update(batch[split])
    return {split: [job.rows[split](i) for i in sorted(drawn)] for split, drawn in numbers.items()}


def _heaviest(model: PreTrainedModel, job: Job, reading: Reading) -> tuple[list[Part], int]:
    """The parts that can need most, of all that will be drawn, and the most parts that a process has of one batch.

    For each number of passes the part of most tokens: gradients of several passes wait for each other.
    """
    config = model.config.get_text_config()
    # A token leaves some sixteen hidden states in each block, and a label a few vocabularies of logits.
    a_token, a_label = 16 * config.hidden_size * config.num_hidden_layers, 3 * config.vocab_size
    heaviest: dict[int, tuple[int, Part]] = {}
    n_parts = 1
    for epoch in range(_n_epochs(job)):
        for batch in job.plan.epoch(epoch):
            dealt = job.world.deal(list(micro_batches(batch, job)))
            n_parts = max(n_parts, len(dealt))
            for _, part, _ in dealt:
                rows = [row for whole in part.values() for row in whole.rows]
                n_passes = len(reading.passes(rows))
                weight = sum(a_token * len(r.ids) + a_label * r.n_tokens for r in rows)
                if n_passes not in heaviest or weight > heaviest[n_passes][0]:
                    heaviest[n_passes] = weight, part
    return [part for _, part in heaviest.values()], n_parts


def _n_epochs(job: Job) -> int:
    per_epoch = job.plan.steps_per_epoch
    return -(-total_steps(job.settings, steps_per_epoch=per_epoch) // per_epoch)


def _nbytes(tensors: Iterable[Tensor]) -> int:
    return sum(t.nbytes for t in tensors)


def _moments(parameter: nn.Parameter, settings: TrainingSettings) -> int:
    n = parameter.numel()
    if settings.optimizer == "adamw_8bit":
        return 2 * (n + 4 * -(-n // _BLOCK)) if n >= _PLAIN_BELOW else 8 * n
    return 2 * parameter.nbytes


def _gathered(model: PreTrainedModel) -> int:
    """Whole weights that a process holds beside its shares: what lies in no block, and two blocks with their buffer.

    The gradients of those that are trained come twice: as computed, and laid out to be added up.
    """
    every = blocks(model)
    inside = {id(p) for p in every.parameters()}
    outside = [p for p in model.parameters() if id(p) not in inside]
    block = max((list(b.parameters()) for b in every), key=_nbytes)
    trained = [p for p in (*outside, *block) if p.requires_grad]
    return _nbytes(outside) + 3 * _nbytes(block) + _nbytes(trained)


NOWHERE = SubjectFolder(Path("dry-run"))
"""A plan names a folder, and nothing is written to it."""


@dataclass(frozen=True)
class Forecast:
    """What one training takes: processes, steps, rows of the largest effective batch and parts it is cut into, bytes.

    `n_parameters` and `n_trained` are counts.
    """

    kind: str
    rank: int
    n_processes: int
    steps: int
    batch_size: int
    n_parts: int
    n_parameters: int
    n_trained: int
    device: str
    memory: Memory


def forecast_finetuning(request: FinetuneRequest, world: World) -> Forecast:
    """What the fine-tuning takes on the device that it asks for."""
    if request.model.model == "builtin:tiny":
        check_tiny(request.model, request.vocabulary)
        start = LoadedModel(untrained_shape(tiny_config()), tiny_tokenizer(request.vocabulary), "builtin:tiny", "")
    else:
        start = outline(request.model)
    encoded = [start.prompter.encode(i.question, i.answer) for i in request.items]
    return _forecast(start, finetuning_job(NOWHERE, request, start, encoded, world), request.model)


def forecast_unlearning(request: UnlearnRequest, world: World) -> Forecast:
    """What the unlearning takes on the device that it asks for."""
    method = build_method(request.method, request.method_settings)
    if isinstance(method, FromStart):
        return forecast_finetuning(recipe_asked(request).request, world)
    if not method.needs.splits:
        raise InputError(f"method {request.method!r} trains nothing, so there is nothing to estimate")
    target = outline(request.target)
    return _forecast(target, unlearning_job(NOWHERE, request, method, target, world, planned=True), request.target)


def audit_bytes(
    settings: ModelSettings,
    items: Sequence[Item],
    attacks: Sequence[AttackRequest],
    target: ModelSettings | None = None,
    gradients: bool = False,
) -> dict[str, int]:
    """The most that tasks of an audit hold on a device (bytes): asking the items, and attacks that need more.

    Those are attacks that train, and those that the `target` guides, whose weights lie beside the subject's. With
    `gradients` asking holds one for every weight. An ensemble counts as many times as it has models. Other attacks
    hold what asking does, or halve their passes until they fit.
    """
    shape, n = outline(settings, finite=False), n_constituents(settings)
    rows = [row_of(shape.prompter.encode(i.question, i.answer)) for i in items]
    device = pick_device(settings.device).type
    asking = n * _forward_pass(shape.model, rows, ASKED_TOKENS, distributions=False)
    found = {"asking": asking + (n * _nbytes(shape.model.parameters()) if gradients else 0)}
    for asked in attacks:
        plan, kind = asked.attack.plan, attack_of(asked.attack.plan)
        if kind.guided and target is not None:
            guide = outline(target, finite=False).model
            found[plan.name] = asking + n_constituents(target) * _nbytes(guide.parameters())
        if not kind.training_steps(plan):
            continue
        # Its adapters stay in the model.
        start = outline(settings, finite=False)
        job = kind.job(asked.attack, AttackFolder(NOWHERE.path), start, seed=asked.seed)
        found[plan.name] = n * estimate_memory(start.model, job, device).peak
    return found


def control_bytes(request: SuppressRequest) -> int:
    """The most that making an audit's positive control holds on a device (bytes)."""
    start = outline(request.target, finite=False)
    encoded = [start.prompter.encode(i.question, i.answer) for i in request.lessons()]
    job = finetuning_job(NOWHERE, taught(request), start, encoded, ALONE)
    return estimate_memory(start.model, job, pick_device(request.target.device).type).peak


def _forecast(start: LoadedModel, job: Job, asked: ModelSettings) -> Forecast:
    device = pick_device(asked.device).type
    parameters = list(start.model.parameters())
    first = job.plan.epoch(0)[0]
    return Forecast(
        kind=job.world.kind or "alone",
        rank=job.world.rank,
        n_processes=job.world.size,
        steps=total_steps(job.settings, steps_per_epoch=job.plan.steps_per_epoch),
        batch_size=max(len(rows) for rows in first.values()),
        n_parts=len(list(micro_batches(first, job))),
        n_parameters=sum(p.numel() for p in parameters),
        n_trained=sum(p.numel() for p in parameters if p.requires_grad),
        device=device,
        memory=estimate_memory(start.model, job, device),
    )
