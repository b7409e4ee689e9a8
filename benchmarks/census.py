"""Further public repositories of unlearned models, each judged by one command: `python -m benchmarks.census FOLDER`.

FOLDER holds a clone of each repository under the name OWNER+NAME. Prints the table at the end of
docs/findings/rejudged.md.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from vestige.experiments.tables import as_markdown

ROLES = Path(__file__).parent / "roles"


def of_bank(key: str) -> list[str]:
    """The options that take target and controls from the bank."""
    return ["--target", f"bank:tofu/{key}", "--controls", f"bank:tofu/{key}"]


class Repository(NamedTuple):
    """A repository, and the options that its logs need. `roles` names a file of this folder's `roles`."""

    name: str
    commit: str
    licence: str
    roles: str = ""
    options: Sequence[str] = ()


_RECALLED = ["--logs", "column:score=recalled", "--logs", "task:by_level=forget", "--logs", "task:utility=retain"]
_LOSS = ["--logs", "column:score=loss", "--logs", "score:loss=nats"]
_LOGP = ["--logs", "column:score=raw_logprobs", "--logs", "score:raw_logprobs=nats"]
REPOSITORIES = (
    Repository("danieltennant/unlearning-compression", "15fc965", "none", "", of_bank("llama-3.2-1b/forget10")),
    Repository("harishm17/llm-unlearning", "6cf6904", "MIT", "harishm17", of_bank("llama-3.2-1b/forget10")),
    Repository("SamPease/retrainingUnlearning", "ca851b8", "MIT", "sampease", of_bank("llama-3.2-1b/forget10")),
    Repository("HuandongChang/muse_bench", "5bef540", "none", "huandongchang"),
    Repository("Tanzeel0651/LLM_Unlearning", "ca04229", "MIT", "tanzeel0651", of_bank("llama-2-7b/forget01")),
    Repository("RookieZxy/Unlearning-TPO", "d489007", "none", "rookiezxy", of_bank("llama-2-7b/forget05")),
    Repository("alexnie01/unlearning-probes", "2c1920a", "MIT", "alexnie01", _LOGP),
    Repository("erkenovaj/unlearning_fingertips", "0dd0810", "none", "erkenovaj", _LOSS),
    Repository("Nithin2311/grpo-unlearning-h100-sprint", "516918b", "none", "nithin2311", _RECALLED),
    Repository("HannanSeyfi/unlearning-thesis", "a25f907", "none", "hannanseyfi"),
)


def judged(repository: Repository, clones: Path, folder: Path) -> dict[str, object]:
    """Run the command, and count its verdicts."""
    clone = clones / repository.name.replace("/", "+")
    roles = ROLES / f"{repository.roles}.csv"
    words = ["--logs", str(clone), *repository.options, "--output-dir", str(folder / "run")]
    if roles.is_file():
        words += ["--logs", f"roles={roles}"]
    done = subprocess.run(
        [sys.executable, "-m", "vestige", "audit", *words], check=False, capture_output=True, text=True
    )
    # 0, 3 and 4 are the verdicts' codes.
    if done.returncode not in (0, 3, 4):
        raise SystemExit(f"{repository.name}: {done.stderr}")
    rows = json.loads((folder / "run" / "verdicts.json").read_text(encoding="utf-8"))
    counts = Counter((row["claim"], row["verdict"]) for row in rows)
    of_claims = {}
    for claim in ("not expressed", "utility preserved"):
        found = [f"{n} {verdict}" for (of, verdict), n in sorted(counts.items()) if of == claim]
        of_claims[claim] = ", ".join(found)
    return {
        "repository": f"{repository.name} at {repository.commit}",
        "licence": repository.licence,
        "checkpoints": len({(row["forget"], row["subject"]) for row in rows}),
        **of_claims,
    }


def main() -> None:
    """Judge every repository and print the table."""
    import pandas

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    clones = parser.parse_args().folder
    rows = []
    for repository in REPOSITORIES:
        with TemporaryDirectory() as folder:
            rows.append(judged(repository, clones, Path(folder)))
    print(as_markdown(pandas.DataFrame(rows)))


if __name__ == "__main__":
    main()
