"""Vestige audits LLM unlearning: what remains, what else was lost, and whether the answer can be trusted.

The names below are what a program needs; each is loaded when it is first used, so that `import vestige` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.artifacts.layout import RunFolder, SubjectFolder
    from vestige.artifacts.records import read_summaries
    from vestige.core.items import Item
    from vestige.data.corpus import SourceSettings, everything, named_splits, open_corpus
    from vestige.data.dataset import compile_dataset
    from vestige.data.folder import read_dataset, write_dataset
    from vestige.data.loaders import load_items
    from vestige.data.splits import split_by
    from vestige.evals.qa import QASettings, collect, score, summarize
    from vestige.methods import METHODS, find_method
    from vestige.models.load import ModelSettings, load
    from vestige.report import build_report
    from vestige.steps.evaluate import EvaluateRequest, evaluate, finished_subject, view_of
    from vestige.steps.finetune import FinetuneRequest, finetune
    from vestige.steps.unlearn import UnlearnRequest, unlearn
    from vestige.training.settings import TrainingSettings, UnlearningSettings

_HOMES = {
    "artifacts.layout": ("RunFolder", "SubjectFolder"),
    "artifacts.records": ("read_summaries",),
    "core.items": ("Item",),
    "data.corpus": ("SourceSettings", "everything", "named_splits", "open_corpus"),
    "data.dataset": ("compile_dataset",),
    "data.folder": ("read_dataset", "write_dataset"),
    "data.loaders": ("load_items",),
    "data.splits": ("split_by",),
    "evals.qa": ("QASettings", "collect", "score", "summarize"),
    "methods": ("METHODS", "find_method"),
    "models.load": ("ModelSettings", "load"),
    "report": ("build_report",),
    "steps.evaluate": ("EvaluateRequest", "evaluate", "finished_subject", "view_of"),
    "steps.finetune": ("FinetuneRequest", "finetune"),
    "steps.unlearn": ("UnlearnRequest", "unlearn"),
    "training.settings": ("TrainingSettings", "UnlearningSettings"),
}
_HOME_OF = {name: f"vestige.{home}" for home, names in _HOMES.items() for name in names}

__all__ = [
    "METHODS",
    "EvaluateRequest",
    "FinetuneRequest",
    "Item",
    "ModelSettings",
    "QASettings",
    "RunFolder",
    "SourceSettings",
    "SubjectFolder",
    "TrainingSettings",
    "UnlearnRequest",
    "UnlearningSettings",
    "build_report",
    "collect",
    "compile_dataset",
    "evaluate",
    "everything",
    "find_method",
    "finetune",
    "finished_subject",
    "load",
    "load_items",
    "named_splits",
    "open_corpus",
    "read_dataset",
    "read_summaries",
    "score",
    "split_by",
    "summarize",
    "unlearn",
    "view_of",
    "write_dataset",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'vestige' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
