"""Which files in an output folder are Vestige's own, by the layouts of this room: no other is ever deleted."""

from collections.abc import Iterable
from pathlib import Path

from vestige.core.errors import InputError
from vestige.core.text import one_line

_TOP = {
    *("spec.json", "provenance.json", "done.json", "cost.json", "train", "checkpoints", "model", "slices", "evals"),
    *("attacks", "under-way", "run.toml", "data", "models", "cells", "audit", "soundness", "soundness.json"),
    *(".soundness.lock", "verdicts.json", "tables", "figures", "report.html", "holes", "asked.json", "target"),
    *("candidates", "calibration.json", "risk.jsonl", "arms", "probes", "harms.jsonl", "prevention.csv"),
    *("prevention.json", "study.json", "ablation", "mitigation", "general", "evidence", "tables.md"),
}
"""What Vestige puts at the top of a folder that takes --fresh."""

_WITHIN = (
    # of models, as transformers, tokenizers and peft write them
    *("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json", "chat_template.jinja"),
    *("additional_chat_templates/*.jinja", "tokenizer*.json", "tokenizer.model", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model", "sentencepiece.bpe.model"),
    *("adapter_config.json", "ensemble.json", "model/*.py", "README.md", "*/state.json"),
    # of evaluations, attacks, trainings, audits and judges
    *("spec.json", "provenance.json", "done.json", "cost.json", "identity.json", "collected.json", "asked.json"),
    *("asked-*.json", "records.jsonl", "unfinished.jsonl", "scores.jsonl", "summary-*.json", "summary.json"),
    *("shown.jsonl", "search.json", "prompt.json", "train/metrics.jsonl", "train/trajectory.jsonl", "score.json"),
    *("asked/*.json", "plan.json", "outcome.json", "trained/*.json", "judge/??/*.json", "judge/under-way"),
    *("judge/under-way/*", "lost.jsonl"),
    # of probes, mitigation, variance and prevention
    *("adjacent.jsonl", "attempts.jsonl", "iterations.jsonl", "answers/*.jsonl", "judged/*.jsonl", "scored/*.jsonl"),
    *("tested.jsonl", "holes.jsonl", "map.json", "used.jsonl", "table.json", "answers.jsonl", "added.jsonl"),
    *("mitigation/*.json", "general/*.json"),
    # of compiled data
    *("manifest.json", "pistol.json", "edges.csv", "items.jsonl", "holdout.jsonl", "factual.jsonl", "contracts.jsonl"),
    *("khop.jsonl", "graph.json", "contract_types/*.toml", "contract_types/*.txt.j2"),
    # of the report, which replaces these in its two folders
    *("report.html", "tables/table-*.csv"),
    *(f"tables/{name}.csv" for name in ("results", "subjects", "items", "holes", "hole_sources", "mitigation")),
    *(f"tables/{name}.csv" for name in ("verdicts", "leakage", "gains", "curves", "budget")),
    *(f"figures/{name}-*.svg" for name in ("leakage", "recovery", "gains", "levels", "tradeoff", "graph")),
    *("figures/hole-map.svg", "figures/hole-map-*.svg"),
    *(".lock", ".*.lock", "work/*.lock"),
)
"""What Vestige puts into the folders there, as the end of a path."""


def own_entries(folder: Path) -> list[Path]:
    """What in a folder bears a name that Vestige writes there, in the order of the names."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.name in _TOP or _unfinished(p.name) in _TOP)


def _unfinished(name: str) -> str:
    """What a hidden file or folder was to become that a kill left unfinished; nothing for any other."""
    end = next((end for end in (".partial", ".replaced") if name.endswith(end)), None)
    return name[1:].removesuffix(end) if end and name.startswith(".") else ""


def is_own(path: Path) -> bool:
    """Whether Vestige writes a file of this path, relative to the output folder."""
    if any(map(_unfinished, path.parts)):
        return True
    return str(path) in _TOP or any(path.match(pattern) for pattern in _WITHIN)


def refuse_strangers(folder: Path, entries: Iterable[Path]) -> None:
    """Refuse to delete these entries of an output folder where one is, or holds, a file that Vestige did not write."""
    held = (p for entry in entries for p in (entry, *entry.rglob("*")) if not p.is_dir())
    foreign = next((p for p in sorted(held) if not is_own(p.relative_to(folder))), None)
    if foreign is not None:
        raise InputError(
            f"{one_line(str(foreign), width=300)} is not a file that Vestige wrote, and --fresh would delete it; "
            "move it, or choose another --output-dir"
        )
