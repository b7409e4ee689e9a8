"""Writes the bank of models from public logs with an MIT licence: src/vestige/logs/bank.toml and a table for each base.

`python -m tools.controls_bank FOLDER`, where FOLDER/OWNER+NAME is a clone of each repository. A table has scores by
question and digests of the questions' texts. It has no text of a log.
"""

import hashlib
import json
import lzma
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from vestige.logs import read_log
from vestige.logs.bank import text_digest
from vestige.logs.log import Log

OUT = Path(__file__).parents[1] / "src/vestige/logs"
BASES = {"llama2-7b": "llama-2-7b", "llama": "llama-2-7b", "phi": "phi-1.5"}
NEVER = {90: ("forget10", "forget05", "forget01"), 95: ("forget05", "forget01"), 99: ("forget01",)}
"""The forget sets that a model trained on so many per cent of TOFU never saw."""
ASKED = {400: NEVER[90], 200: NEVER[95], 40: NEVER[99]}
"""The forget sets that a log with so many forget questions holds whole."""
_OPEN = r"saves/eval/tofu_(?P<base>.+?)(?:-Instruct|-chat-hf)?_(?:full/evals_(?P<forget>\w+)|retain(?P<retain>\d+))"


class Source(NamedTuple):
    """A repository at one commit; `paths` matches its logs, `base` is their base model where the path has none."""

    laboratory: str
    repository: str
    commit: str
    paths: str
    base: str = ""


SOURCES = (
    Source(
        "locuslab",
        "locuslab/tofu",
        "bdc209ea7c6cc2e7079ea1afb6468d3ddcc65f8e",
        r"data/ft_epoch5_lr[^_]+_(?P<base>[^_]+)_retain(?P<retain>9[59])_wd[\d.]+/eval_results/ds_size300/"
        r"eval_log_aggregated\.json",
    ),
    Source(
        "open-unlearning",
        "nxZhai/BalDRO",
        "12a0b0cc35de70e20862ea5a97e87b62437a543f",
        _OPEN + r"/TOFU_EVAL\.json",
    ),
    Source(
        "npo",
        "OPTML-Group/Unlearn-Simple",
        "f1a355d3cb16cdaa2dfbda163a2e954c67886a4c",
        r"TOFU/data/retain(?P<retain>9[59])_(?P<base>[^_]+)_wd[\d.]+/eval_results/ds_size300/"
        r"eval_log_aggregated\.json",
    ),
    Source(
        "sampease",
        "SamPease/retrainingUnlearning",
        "ca851b8bf25b461e8c1382cabd0bee3d726661dc",
        r"tmp/modal_retainref/retain(?P<retain>\d+)_eval\.json",
        "llama-3.2-1b",
    ),
)


DECIMALS = 7
"""To which scores in the tables are rounded."""


def packed(log: Log) -> dict[str, Any]:
    """A log as the tables hold it: its scores and digests of its questions' texts, without any text of a question."""
    columns: list[list[str]] = []
    parts = []
    for part in log.parts:
        row: dict[str, Any] = {"split": part.split, "measurement": asdict(part.measurement)}
        row["scores"] = _numbers(part.scores)
        row["ids"] = _place(columns, list(part.ids))
        row["texts"] = _place(columns, [text_digest(prompt) for prompt in part.prompts])
        if part.chance is not None:
            row["chance"] = part.chance
        if part.otherwise is not None:
            row["otherwise"] = _numbers(part.otherwise)
        parts.append(row)
    return {"prompt": log.prompt, "settings": dict(log.settings), "columns": columns, "parts": parts}


def _numbers(scores: Iterable[float]) -> list[float | None]:
    return [None if math.isnan(score) else round(float(score), DECIMALS) for score in scores]


def _place(columns: list[list[str]], column: list[str]) -> int:
    """Return a column's index among those of a log, which its parts share."""
    if column not in columns:
        columns.append(column)
    return columns.index(column)


def main() -> None:
    """Write the catalogue and the tables."""
    parts = ["# Written by tools/controls_bank.py.\n"]
    tables: dict[str, dict[str, object]] = {}
    for source in SOURCES:
        clone = Path(sys.argv[1]) / source.repository.replace("/", "+")
        notice = re.search(r"Copyright.*", _git(clone, "show", f"{source.commit}:LICENSE").decode())
        assert notice, f"{source.repository} has no notice of copyright"
        fields = {
            "laboratory": source.laboratory,
            "repository": source.repository,
            "commit": source.commit,
            "licence": "MIT",
            "copyright": notice[0].strip(),
        }
        parts.append("[[source]]\n" + _lines(fields))
        for path in _git(clone, "ls-tree", "-r", "--name-only", source.commit).decode().splitlines():
            found = re.fullmatch(source.paths, path)
            if found is None:
                continue
            groups = found.groupdict()
            base = groups.get("base") or source.base
            base = BASES.get(base, base.lower())
            retain = groups.get("retain")
            content = _git(clone, "show", f"{source.commit}:{path}")
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / Path(path).name
                file.write_bytes(content)
                log = read_log(file)
            n = max(len(part.scores) for part in log.parts if part.split == "forget")
            whole = ASKED.get(n, ())
            forget = [name for name in whole if retain is None or name in NEVER.get(int(retain), ())]
            if retain is None:
                # The log of a target was asked about one forget set.
                forget = [name for name in whole if name == groups["forget"]]
            if not forget:
                print(f"left out: {source.repository}, {path} ({n} forget questions)")
                continue
            share = f"retain{retain}" if retain else f"full, {forget[0]}"
            name = share if source.laboratory == "open-unlearning" else f"{share} by {source.laboratory}"
            decay = re.search(r"_wd([\d.]+)", path)
            if decay:
                name += f", wd {decay[1]}"
            row = {
                "base": base,
                "name": name,
                "role": "retrained" if retain else "target",
                "recipe": f"fine-tuned on {retain} % of TOFU" if retain else "fine-tuned on TOFU",
                "path": path,
                "digest": hashlib.sha256(content).hexdigest(),
                "forget": forget,
            }
            parts.append("[[source.logs]]\n" + _lines(row))
            tables.setdefault(base, {})[name] = packed(log)
    (OUT / "bank.toml").write_text("\n".join(parts), encoding="utf-8")
    for base, logs in tables.items():
        text = json.dumps({"schema": 1, "logs": logs}, separators=(",", ":"))
        (OUT / "bank").mkdir(exist_ok=True)
        (OUT / "bank" / f"tofu-{base}.json.xz").write_bytes(
            lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
        )


def _lines(fields: dict[str, object]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items())


def _git(clone: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(clone), *words], check=True, capture_output=True).stdout


if __name__ == "__main__":
    main()
