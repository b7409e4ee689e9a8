"""MUSE's own outputs: `history.json` of the memories of knowledge and of text, and the texts of PrivLeak.

They lie in `<memory>/out/<corpus>/<model>/<split>/history.json`, and `privleak/out/<corpus>/<model>/<split>.json`; the
folder of the model can be read as a whole. Of PrivLeak the Min-40 % score is read, which the paper takes, turned around
so that more is likelier a member.
"""

from pathlib import Path

from vestige.core.files import read_json
from vestige.logs.log import Log, LogReading, listed

NAMES = ("history.json", "forget.json")
MEMORIES = {"knowmem": "knowledge, rougeL", "verbmem": "verbatim, rougeL"}
SPLITS = {"forget": "forget", "retain": "retain"}


def holds(path: Path) -> bool:
    """Whether the file is one of MUSE's, by the folders that it lies in."""
    return _memory(path) != "" and (path.name != "history.json" or path.parent.name in SPLITS)


def _memory(path: Path) -> str:
    memories = MEMORIES if path.name == "history.json" else {"privleak": ""}
    # Resolved, since the folders that say it may not stand in a path as it was given.
    return next((part for part in reversed(path.resolve().parts) if part in memories), "")


def read(path: Path) -> Log:
    """What the file says."""
    reading = LogReading(path)
    if path.name == "history.json":
        rows = listed(path, read_json(path), ("prompt", "gt", "response", "rougeL"))
        reading.add(
            SPLITS[path.parent.name],
            MEMORIES[_memory(path)],
            [row["rougeL"] for row in rows],
            prompts=[row["prompt"] for row in rows],
            answers=[row["gt"] for row in rows],
            replies=[row["response"] for row in rows],
        )
        return reading.log()
    # holdout.json is read beside forget.json and has no place in NAMES, or the pair would be read twice.
    for split in ("forget", "holdout"):
        file = path.with_name(f"{split}.json")
        rows = listed(file, read_json(file), ("text", "ppl")) if file.is_file() else []
        # Less surprise is likelier a member.
        scores = [-row["ppl"]["Min-40%"] if isinstance(row["ppl"], dict) else None for row in rows]
        reading.add(split, "min_k", scores, prompts=[row["text"] for row in rows], unit="order")
    return reading.log()
