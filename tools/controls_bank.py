"""Writes src/vestige/logs/bank.toml from the repositories of `benchmarks.public_logs` whose licence is MIT.

`python -m tools.controls_bank FOLDER`. It names logs by digest and copies none.
"""

import json
import sys
from pathlib import Path

from benchmarks.public_logs import SOURCES, Training, folder_of, trainings

from vestige.core.ids import file_digest

OUT = Path(__file__).parents[1] / "src/vestige/logs/bank.toml"
BASES = {"Llama-2-7B": "llama-2-7b", "phi-1.5": "phi-1.5"}
LICENCE = "MIT"


def forget_of(one: Training) -> list[str]:
    """The forget sets that a training never saw and that its log holds whole.

    TOFU's own logs hold the first 300 questions of forget10, so that those of 90 % fit no forget set.
    """
    asked = {90: ["forget10", "forget05", "forget01"], 95: ["forget05", "forget01"], 99: ["forget01"]}[one.retain]
    return [] if one.logged == "tofu" and one.retain == 90 else asked


def main() -> None:
    """Write the catalogue."""
    logs, parts = Path(sys.argv[1]), ["# Written by tools/controls_bank.py.\n"]
    for name in ("tofu", "baldro"):
        source = SOURCES[name]
        assert source.licence == LICENCE
        laboratory = "locuslab" if name == "tofu" else "open-unlearning"
        fields = {"laboratory": laboratory, **source._asdict()}
        lines = [f"{key} = {json.dumps(fields[key])}" for key in ("laboratory", "repository", "commit", "licence")]
        parts.append("[[source]]\n" + "\n".join(lines) + "\n")
        root = folder_of(logs, name)
        for one in trainings(logs):
            forget = forget_of(one) if one.role == "retrained" and one.path.is_relative_to(root) else []
            if not forget:
                continue
            row = {
                "base": BASES.get(one.base, one.base.lower()),
                "name": one.name,
                "recipe": f"fine-tuned on {one.retain} % of TOFU",
                "path": one.path.relative_to(root).as_posix(),
                "digest": file_digest(one.path),
                "forget": forget,
            }
            parts.append("[[source.logs]]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in row.items()) + "\n")
    OUT.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
