"""Vestige from Python: a function for each command, and results that a notebook shows.

A model is a folder of Vestige, a result of these functions, a Hugging Face folder or id, or a transformers model in
memory with its tokeniser: `(model, tokenizer)`. Data is a path, a hub id, rows in memory (a list of dicts, a DataFrame,
a `datasets.Dataset`), or `SourceSettings` where columns have to be named. Settings that belong together are objects:
`Training(learning_rate=2e-5)`, `Margins(delta=0.1)`, `Relearn(items=50)`. A mistake raises InputError, which is a
ValueError. Notes on the data are in `notes`. Each function continues where a stopped call ended.
"""

from vestige.api.auditing import audit, compare, judge, plan, read_audit, rejudge
from vestige.api.data import check_data, compile_data
from vestige.api.exporting import export, export_task
from vestige.api.inputs import DataLike, ModelLike
from vestige.api.models import attack, evaluate, finetune, unlearn
from vestige.api.probing import probe
from vestige.api.results import Attacked, Audit, Comparison, Holes, Model, ModelVerdicts, Results, Rows, Verdict

__all__ = [
    "Attacked",
    "Audit",
    "Comparison",
    "DataLike",
    "Holes",
    "Model",
    "ModelLike",
    "ModelVerdicts",
    "Results",
    "Rows",
    "Verdict",
    "attack",
    "audit",
    "check_data",
    "compare",
    "compile_data",
    "evaluate",
    "export",
    "export_task",
    "finetune",
    "judge",
    "plan",
    "probe",
    "read_audit",
    "rejudge",
    "unlearn",
]
