"""Risk of benign items under a target, over the parameters that an unlearning is going to train."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from vestige.core.items import Item
from vestige.data.dataset import Dataset
from vestige.methods import build_method
from vestige.models.blocks import blocks, output_projection
from vestige.models.embedder import Embedder
from vestige.models.load import LoadedModel
from vestige.probes.risk import (
    ADAM,
    COMBINED,
    COSINE,
    EMBEDDING,
    FIRST_ORDER,
    GRAPH,
    combined_risks,
    embedding_risks,
    gradient_risks,
    graph_risks,
)
from vestige.steps.subjects import load_checked
from vestige.steps.unlearn import UnlearnRequest
from vestige.training.adapters import add_lora, train_only
from vestige.training.batching import Row, row_of
from vestige.training.step import ReadsLayer


def risk_scores(
    request: UnlearnRequest, items: Sequence[Item], embedder: Embedder, dataset: Dataset | None, edges: Sequence[str]
) -> dict[str, Float[np.ndarray, " N"]]:
    """Every risk score of the items, by name; without a graph there is none by distance."""
    target = load_checked(request.target, request.target_digest, "the target")
    _mark_trained(target, request)
    forget, rows = _rows(target, request, request.forget_items), _rows(target, request, items)
    found = list(gradient_risks(target.model, forget, rows))
    scores = {
        COSINE: np.array([one.cosine for one in found]),
        FIRST_ORDER: np.array([one.first_order for one in found]),
        ADAM: np.array([one.first_order_adam for one in found]),
        EMBEDDING: embedding_risks(embedder, request.forget_items, items).astype(float),
    }
    if dataset is not None and edges:
        scores[GRAPH] = graph_risks(dataset.graph, edges, items)
    return {**scores, COMBINED: combined_risks(scores)}


def _rows(target: LoadedModel, request: UnlearnRequest, items: Sequence[Item]) -> list[Row]:
    """What the unlearning would read of the items."""
    return [row_of(target.prompter.encode(i.question, i.answer)) for i in items]


def _mark_trained(target: LoadedModel, request: UnlearnRequest) -> None:
    """Leave a gradient to what the method trains: some blocks, fresh adapters (of which one half is 0), or all."""
    method, settings = build_method(request.method, request.method_settings), request.training
    if isinstance(method, ReadsLayer):
        every = blocks(target.model)
        train_only(target.model, method.layers(len(every), output_projection(every[0])), settings, request.seed)
    elif settings.lora_rank:
        add_lora(target.model, settings, request.seed)
