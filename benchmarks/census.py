"""Further public repositories of unlearned models, each judged by one command: `python -m benchmarks.census FOLDER`.

FOLDER holds a clone of each repository under the name OWNER+NAME. Prints the table at the end of
docs/findings/rejudged.md.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from vestige.experiments.tables import as_markdown

ROLES = Path(__file__).parent / "roles"
BANK = "bank:tofu/llama-3.2-1b/forget10"


class Repository(NamedTuple):
    """A repository, and the options that its logs need."""

    name: str
    commit: str
    licence: str
    roles: str = ""
    bank: str = ""
    below: str = ""
    """The folder below which `hannanseyfi` finds checkpoints."""


REPOSITORIES = (
    Repository("danieltennant/unlearning-compression", "15fc965", "none", bank=BANK),
    Repository("harishm17/llm-unlearning", "6cf6904", "MIT", roles="harishm17", bank=BANK),
    Repository("SamPease/retrainingUnlearning", "ca851b8", "MIT", roles="sampease", bank=BANK),
    Repository("HuandongChang/muse_bench", "5bef540", "none", roles="huandongchang"),
    *(
        Repository("HannanSeyfi/unlearning-thesis", "a25f907", "none", below=below)
        for below in (
            "Week 5/results/retain_regularized*",
            "Week 6/results/constrained*",
            "Week 7/results/adaptive*",
            "Week 7/results/rollback*v2",
        )
    ),
)


def roles_of_thesis(clone: Path, below: str, into: Path) -> Path:
    """Write the roles of one experiment of HannanSeyfi/unlearning-thesis: the model before, and each checkpoint."""
    (experiment,) = clone.glob(below)
    rows = []
    for split in ("forget", "retain"):
        before = (experiment / "results" / f"before_{split}_results.csv").relative_to(clone)
        rows.append([before, "target", "before", experiment.name])
        for path in sorted(experiment.glob(f"resume_state/selection_results/*/*_{split}_selection.csv")):
            name = f"{path.parent.name}, {path.name.removesuffix(f'_{split}_selection.csv')}"
            rows.append([path.relative_to(clone), "unlearned", name, experiment.name])
    with into.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["pattern", "role", "name", "forget set"], *rows, ["*", "skip"]])
    return into


def judged(repository: Repository, clones: Path, folder: Path) -> dict[str, object]:
    """Run the command, and count its verdicts."""
    clone = clones / repository.name.replace("/", "+")
    words = ["--logs", str(clone), "--output-dir", str(folder / "run")]
    if repository.below:
        words += ["--logs", f"roles={roles_of_thesis(clone, repository.below, folder / 'roles.csv')}"]
    if repository.roles:
        words += ["--logs", f"roles={ROLES / repository.roles}.csv"]
    if repository.bank:
        words += ["--target", repository.bank, "--controls", repository.bank]
    words = [sys.executable, "-m", "vestige", "audit", *words]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
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
        "part": f"`{repository.below}`" if repository.below else "",
        "licence": repository.licence,
        "checkpoints": len({row["subject"] for row in rows}),
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
