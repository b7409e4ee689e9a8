"""Where things lie in the folder of a search for knowledge holes, as `layout` has it for runs.

::

    asked-<part>.json                   the identity of each part of the work
    adjacent.jsonl                      questions near the forget set, and the retain set's own
    searches/<source>/                  one search for prompts: attempts.jsonl iterations.jsonl policy/ answers/
    answers/  judge/                    what models answered, and what a judge on a server replied
    tested.jsonl holes.jsonl map.json provenance.json summary.json
    report.html tables/ figures/        rebuilt by `vestige report`
    mitigation/<way>-<id>/              one mending: asked.json used.jsonl answers/ judged/ scored/ subject/ anew/
                                        rounds/<n>/ of an iterative one, each with subject/ and anew/; table.json
"""

from dataclasses import dataclass
from pathlib import Path

from vestige.core.ids import slug


@dataclass(frozen=True)
class ProbeFolder:
    """The search for knowledge holes: what was tried, what was tested, and which holes were confirmed."""

    path: Path

    def asked(self, part: str) -> Path:
        """The identity of one part of the work: everything that can change what it finds."""
        return self.path / f"asked-{slug(part)}.json"

    def search(self, source: str) -> "ProbeFolder":
        """The folder of one search: latent, random or paraphrase."""
        return ProbeFolder(self.path / "searches" / slug(source))

    def searches(self) -> "list[ProbeFolder]":
        """The searches that are there, in the order of their names."""
        return [ProbeFolder(p.parent) for p in sorted(self.path.glob("searches/*/attempts.jsonl"))]

    @property
    def adjacent(self) -> Path:
        """One line for each adjacent question."""
        return self.path / "adjacent.jsonl"

    @property
    def attempts(self) -> Path:
        """One line for each prompt that a search tried, in its order; grows as it goes."""
        return self.path / "attempts.jsonl"

    @property
    def iterations(self) -> Path:
        """One line for each iteration of a search: what became of the policy, in numbers, and whether it collapsed."""
        return self.path / "iterations.jsonl"

    @property
    def policy(self) -> Path:
        """What an interrupted search needs to go on."""
        return self.path / "policy"

    @property
    def answers(self) -> Path:
        """What the models answered while candidates were tested, a file for each model and draw."""
        return self.path / "answers"

    @property
    def judge(self) -> Path:
        """The replies of a judge on a server, which were paid for."""
        return self.path / "judge"

    def mitigation(self, name: str) -> "MitigationFolder":
        """The folder of one mending of the unlearned model, under its way and id."""
        return MitigationFolder(self.path / "mitigation" / slug(name))

    def mitigations(self) -> "list[MitigationFolder]":
        """The mendings that are finished, in the order of their names."""
        return [MitigationFolder(p.parent) for p in sorted(self.path.glob("mitigation/*/table.json"))]

    @property
    def tested(self) -> Path:
        """One line for each candidate: why it was dropped, or both answers with their scores."""
        return self.path / "tested.jsonl"

    @property
    def holes(self) -> Path:
        """One line for each confirmed hole."""
        return self.path / "holes.jsonl"

    @property
    def map(self) -> Path:
        """Where each prompt that was tested lies in the picture of them all."""
        return self.path / "map.json"

    @property
    def report(self) -> Path:
        """The report, one offline page."""
        return self.path / "report.html"

    @property
    def tables(self) -> Path:
        """The report's tables as CSV."""
        return self.path / "tables"

    @property
    def figures(self) -> Path:
        """The report's figures as SVG."""
        return self.path / "figures"

    @property
    def summary(self) -> Path:
        """Written last: the table of holes, and the identity of what it was made from."""
        return self.path / "summary.json"

    @property
    def provenance(self) -> Path:
        """Versions, hardware, command and times."""
        return self.path / "provenance.json"

    @property
    def lock(self) -> Path:
        """Held by the process that probes."""
        return self.path / ".lock"


@dataclass(frozen=True)
class MitigationFolder:
    """One mending of an unlearned model with prompts that a probe found, or one round of an iterative one."""

    path: Path

    def round(self, number: int) -> "MitigationFolder":
        """The folder of round 1, 2, ... of an iterative mending."""
        return MitigationFolder(self.path / "rounds" / str(number))

    def scored(self, name: str) -> Path:
        """One line for each answer of one model or checkpoint, with its score."""
        return self.path / "scored" / f"{slug(name)}.jsonl"

    @property
    def asked(self) -> Path:
        """The identity: everything that can change what comes out."""
        return self.path / "asked.json"

    @property
    def used(self) -> Path:
        """One line for each prompt that is trained on or scored, with the set that it belongs to."""
        return self.path / "used.jsonl"

    @property
    def answers(self) -> Path:
        """What the models answered, a file for each model or checkpoint and draw."""
        return self.path / "answers"

    @property
    def judged(self) -> Path:
        """The verdicts of judges on those answers."""
        return self.path / "judged"

    @property
    def subject(self) -> Path:
        """The mended model: a subject's folder."""
        return self.path / "subject"

    @property
    def anew(self) -> ProbeFolder:
        """The probe of the mended model."""
        return ProbeFolder(self.path / "anew")

    @property
    def table(self) -> Path:
        """Written last: the table, and the identity of what it was made from."""
        return self.path / "table.json"

    @property
    def provenance(self) -> Path:
        """Versions, hardware, command and times."""
        return self.path / "provenance.json"

    @property
    def lock(self) -> Path:
        """Held by the process that mends."""
        return self.path / ".lock"
