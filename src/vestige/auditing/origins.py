"""Where an audit's models come from, as far as their files can say it: records of their making, and weights.

No answer is looked at here. What follows for the controls is for `auditing.earned` to say.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

from vestige.artifacts.audits import EvidenceLevel
from vestige.artifacts.layout import AuditFolder, RunFolder, SubjectFolder
from vestige.artifacts.records import SubjectSpec, read_finished, read_spec
from vestige.core.errors import InputError
from vestige.core.store import read_sealed, write_sealed
from vestige.core.text import Names, Sentences, listed, one_line
from vestige.data.corpus import NamedSplits
from vestige.models.address import is_address

_MADE_ANEW = "builtin:tiny"
"""Begins the names of models that are made on the spot: whoever begins with one begins with nothing."""

_NEXT_TO, _NEXT_TO_ASKED_OTHERWISE = 0.001, 0.01
"""Below these shares of the way to the next control a subject has the target's weights, as if nothing was changed.

The shortest tuning of a tiny model moved its weights by 0.02 of the way between two trainings.
"""


@dataclass(frozen=True)
class Origins:
    """What the folders of an audit's models say of them, by name, the `target` among them.

    `parts` are the digests of each model's weights, tokeniser and template, `target_digest` that of all of the target.
    """

    target: str
    specs: Mapping[str, SubjectSpec]
    parts: Mapping[str, Mapping[str, str]]
    target_digest: str = ""

    @classmethod
    def read(cls, run: RunFolder, folders: Mapping[str, str], target: str) -> "Origins":
        """Those of folders that are named relative to the run."""
        subjects = {name: SubjectFolder(run.path / folder) for name, folder in folders.items()}
        done = {name: read_finished(subject.done, "digest", "model") for name, subject in subjects.items()}
        specs = {name: read_spec(subject.spec) for name, subject in subjects.items()}
        return cls(target, specs, {name: record["model"] for name, record in done.items()}, done[target]["digest"])

    def evidence_level(self, retrained: Sequence[str], splits: NamedSplits) -> tuple[EvidenceLevel, Sentences]:
        """What is known of the controls together, and in a sentence which of them are not verified, and why.

        A control is verified where the record of its making, which lies with its weights and their digest, says that
        Vestige trained it on this audit's data without the forget set, from the model that the target's training began
        with.
        """
        by_why: dict[str, list[str]] = {}
        for name in retrained:
            if why := _unverified(self.specs[name], self.specs[self.target], splits):
                by_why.setdefault(why, []).append(one_line(name, width=60))
        if not by_why:
            return ("verified" if retrained else ""), ()
        reasons = "; ".join(f"{', '.join(names)}: {why}" for why, names in by_why.items())
        return "given", (f"The origin of these controls is not verified: {reasons}.",)

    def unchanged(self, unlearned: Sequence[str], apart: Mapping[str, Mapping[str, float]]) -> tuple[Names, Sentences]:
        """The subjects whose weights are the target's own, and that in a sentence.

        `apart` are distances of weights by two names. A subject next to the target, beside the nearest other model, has
        the target's weights with a little noise. A tokeniser or a chat template of its own makes that likelier.
        """
        parts = self.parts[self.target]
        others = [x for name, x in apart.get(self.target, {}).items() if name not in unlearned]
        same = []
        for name in unlearned:
            own = self.parts[name]
            asked_alike = all(own.get(part) == parts.get(part) for part in ("tokenizer", "template"))
            limit = (_NEXT_TO if asked_alike else _NEXT_TO_ASKED_OTHERWISE) * min(others, default=0.0)
            # Distance 0 is also that of an edit of one tensor (`models.distances`), which may be all of an unlearning.
            is_near = 0 < apart.get(self.target, {}).get(name, limit) < limit
            if own["weights"] == parts["weights"] or is_near:
                same.append(name)
        if not same:
            return (), ()
        has, it = ("has", "it answers") if len(same) == 1 else ("have", "they answer")
        return tuple(same), (
            f"{listed(same)} {has} the target's own weights, in which nothing was forgotten: what {it} otherwise comes "
            "from the chat template, the tokeniser or the config.",
        )

    def asked_otherwise(self) -> Iterator[str]:
        """Which models are asked through another tokeniser or chat template than the target, in a sentence for each."""
        for part, label in (("tokenizer", "tokeniser"), ("template", "chat template")):
            of_target = self.parts[self.target][part]
            if names := [name for name, parts in self.parts.items() if parts[part] != of_target]:
                yield (
                    f"Asked through another {label} than the target: {listed(names)}; what differs between their "
                    f"answers may come from the {label} and not from the weights."
                )

    def retrained_among(self, unlearned: Sequence[str]) -> Names:
        """The subjects that were trained without the forget set."""
        specs = {name: self.specs[name] for name in unlearned}
        return tuple(name for name, spec in specs.items() if spec.subject == "retrained" or spec.method == "retrain")

    def made_from_others(self, unlearned: Sequence[str]) -> Iterator[str]:
        """That subjects began with another model than the target.

        Models from elsewhere do not say what they began with, and one that was trained from the start never had a
        target.
        """
        begun_with = ("", self.target_digest)
        retrained = self.retrained_among(unlearned)
        strangers = [name for name in unlearned if self.specs[name].parent not in begun_with and name not in retrained]
        if strangers:
            yield (
                f"Made from another model than the target ({listed([self.target])}) that this audit compares with: "
                f"{listed(strangers)}; what differs between the two targets counts as lost, left or brought back."
            )

    def other_recipes(self, retrained: Sequence[str]) -> dict[str, str]:
        """In a clause, by control, what of its training differs from the target's, where Vestige made both.

        The seed and the data are to differ. Threads and memory change no more than rounding.
        """
        settings = {name: spec.settings if spec.data else {} for name, spec in self.specs.items()}
        differences = {}
        for name in retrained:
            pairs = {n: (settings[name].get(n), v) for n, v in settings[self.target].items() if n in settings[name]}
            clauses = [
                f"{n} {one_line(str(its), width=40)} and not {one_line(str(targets), width=40)}"
                for n, (its, targets) in pairs.items()
                if n not in _NO_RECIPE and its != targets
            ]
            if clauses:
                differences[name] = ", ".join(clauses)
        return differences

    def copied_controls(self, models: Sequence[str], retrained: Sequence[str]) -> dict[str, str]:
        """The controls that have the weights of another model of the audit, by name, each with a sentence.

        A copy of another control shows no spread between trainings, and one of the target or a subject is no control:
        it is left out, and not the whole audit. A copy is known by its weights, whatever template or settings stand
        beside them.
        """
        first: dict[str, str] = {}
        sentences: dict[str, str] = {}
        for name in (*models, *(name for name in retrained if name in self.parts)):
            same = first.setdefault(self.parts[name]["weights"], name)
            if same != name and name in retrained:
                sentences[name] = (
                    f"{listed([name])} is left out as a control: its weights are those of {listed([same])}, as when a "
                    "training is repeated without another --seed."
                )
        return sentences

    def distances(
        self, folder: AuditFolder, models: Mapping[str, str]
    ) -> tuple[dict[str, dict[str, float]], Sentences]:
        """How far the weights of the models lie from each other by two names, and in sentences which were not compared.

        `models` says where each is, the target first. What is known of the same weights is not read again.
        """
        local = {name: model for name, model in models.items() if not is_address(model)}
        sentences = []
        if away := [name for name in models if name not in local]:
            sentences.append(
                f"The weights of {listed(away)} were not seen, so that nothing but answers tells copies apart."
            )
        # Two models have one distance, which nothing can be held against.
        if len(local) < 3:
            return {}, tuple(sentences)
        # Gigabytes are read to compare models, and once is enough for the same weights.
        weights = {name: self.parts[name]["weights"] for name in local}
        if folder.apart.exists() and (stored := read_sealed(folder.apart, "weights", "apart"))["weights"] == weights:
            return stored["apart"], tuple(sentences)
        from vestige.models.distances import squared_distances

        try:
            squares = squared_distances(list(local.values())).tolist()
        except InputError as error:
            return {}, (*sentences, f"The weights of the models were not compared with each other: {error}.")
        if odd := [name for name, x in zip(local, squares[0], strict=True) if not isfinite(x)]:
            sentences.append(f"The weights of {listed(odd)} are of another shape than the target's, and not compared.")
        apart = {
            name: {partner: sqrt(x) for partner, x in zip(local, row, strict=True) if partner != name and isfinite(x)}
            for name, row in zip(local, squares, strict=True)
        }
        apart = {name: to_others for name, to_others in apart.items() if to_others}
        write_sealed(folder.apart, {"weights": weights, "apart": apart})
        return apart, tuple(sentences)


_NO_RECIPE = frozenset(("model", "micro_batch_size", "token_budget", "gradient_checkpointing", "bucket", "threads"))
"""Settings that change what is computed at a time, and not what is taught. `model` is held against by its digest."""


def _unverified(spec: SubjectSpec, target: SubjectSpec, splits: NamedSplits) -> str:
    """Why a control is not known to be a training without the forget set. "" where it is."""
    if not spec.data:
        return "Vestige did not train it"
    if spec.subject != "retrained" and spec.method != "retrain":
        return f"its record says that it is {one_line(spec.subject, width=40)}, not retrained"
    if not spec.forgotten or spec.not_forgotten([i.id for i in splits.splits["forget"]]):
        return "its record does not say that it left out all of the forget set"
    if spec.data not in splits.taught_without:
        return "it was trained on other data than this audit's without the forget set"
    # Another start would differ from the target by all that its pretraining taught.
    if not spec.model.startswith(_MADE_ANEW) and (not target.parent or spec.parent != target.parent):
        return "nothing says that its training began with the model that the target's began with"
    return ""
