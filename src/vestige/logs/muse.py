"""MUSE's own outputs: the replies for knowledge and verbatim memorization, and the texts of PrivLeak.

They are in `<memory>/out/<corpus>/<model>/<split>/history.json`, in forks in `<model>/knowmem_f/log.json`, and
`privleak/out/<corpus>/<model>/<split>.json`. The folder of the model can be read as a whole. For PrivLeak it reads the
paper's Min-40 % score, reversed so that more is likelier a member.
"""

from pathlib import Path

from vestige.logs.log import Beginning, How, Log, LogReading, listed, read_value
from vestige.logs.open_unlearning import KNOWLEDGE, OVERLAP, VERBATIM, membership, turned

MEMORIES = {"knowmem": KNOWLEDGE, "verbmem": VERBATIM}
SPLITS = {"forget": "forget", "retain": "retain", "f": "forget", "r": "retain"}
_ROW = ("prompt", "gt", "response", "rougeL")


def holds(start: Beginning) -> bool:
    """Return whether the rows are MUSE's replies or its texts.

    In a folder with files of texts, the forget set's file is the log. It is read together with the holdout texts. MUSE
    writes the texts of the retain set (retain2.json) to the same folder.
    """
    if not isinstance(start.value, list):
        return False
    row = start.first_row
    if row.keys() >= set(_ROW):
        return True
    beside_forget = start.path.name != "forget.json" and start.path.with_name("forget.json").is_file()
    return {"text", "ppl"} <= row.keys() and not beside_forget


def read(path: Path, how: How) -> Log:
    """The contents of the file."""
    reading = LogReading(path, how)
    stored = read_value(path)
    if isinstance(stored, list) and stored and isinstance(stored[0], dict) and "text" in stored[0]:
        return _texts(path, reading)
    rows = listed(path, stored, _ROW)
    memory, split = _place(path)
    reading.add(
        split or "forget",
        MEMORIES.get(memory, OVERLAP),
        [row["rougeL"] for row in rows],
        ids=[str(n) for n in range(len(rows))],
        prompts=[row["prompt"] for row in rows],
        answers=[row["gt"] for row in rows],
        replies=[row["response"] for row in rows],
    )
    return reading.log()


def _place(path: Path) -> tuple[str, str]:
    """Return the memorization type and the split in the folder names of a file, or ""."""
    split = ""
    # The innermost folder comes first.
    for part in reversed(path.absolute().parent.parts):
        word, _, suffix = part.partition("_")
        if word in MEMORIES:
            return word, split or SPLITS.get(suffix, "")
        split = split or SPLITS.get(part, "")
    return "", split


def _texts(path: Path, reading: LogReading) -> Log:
    # The holdout texts are in a separate file.
    files = {"forget": path, "holdout": path.with_name("holdout.json")}
    for split, file in files.items():
        rows = listed(file, read_value(file), ("text", "ppl")) if file.is_file() else []
        scores = []
        for row in rows:
            # A lower surprise makes membership more likely.
            scores.append(turned(row["ppl"].get("Min-40%")) if isinstance(row["ppl"], dict) else None)
        if scores:
            reading.add(split, membership("min_k"), scores, prompts=[row["text"] for row in rows])
    return reading.log()
