"""Where an audit's models come from, as far as Vestige's records of their making and their digests can say it."""

from collections.abc import Mapping, Sequence

from vestige.artifacts.audits import EvidenceLevel
from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.records import SubjectSpec, read_spec
from vestige.core.store import read_versioned
from vestige.core.text import one_line
from vestige.data.corpus import NamedSplits

_MADE_ANEW = "builtin:tiny"
"""The model that is made on the spot, so that whoever begins with it begins with nothing."""


def evidence_level(
    run: RunFolder, folders: Mapping[str, str], target: str, retrained: Sequence[str], splits: NamedSplits
) -> tuple[EvidenceLevel, tuple[str, ...]]:
    """What is known of the controls together, and in a sentence which of them are not verified, and why.

    A control is verified where the record of its making, which lies with its weights and their digest, says that
    Vestige trained it on this audit's data without the forget set, from the model that the target's training began
    with. `folders` are relative to the run.
    """
    specs = {name: read_spec(SubjectFolder(run.path / folders[name]).spec) for name in (target, *retrained)}
    doubts = {name: why for name in retrained if (why := _unverified(specs[name], specs[target], splits))}
    if not retrained:
        return "", ()
    if not doubts:
        return "verified", ()
    by_why: dict[str, list[str]] = {}
    for name, why in doubts.items():
        by_why.setdefault(why, []).append(one_line(name, width=60))
    said = "; ".join(f"{', '.join(names)}: {why}" for why, names in by_why.items())
    return "given", (f"The origin of these controls is not verified: {said}.",)


def _unverified(spec: SubjectSpec, target: SubjectSpec, splits: NamedSplits) -> str:
    """Why a control is not known to be a training without the forget set; "" where it is."""
    if not spec.data:
        return "Vestige did not train it"
    if spec.subject != "retrained" and spec.method != "retrain":
        return f"its record says that it is {one_line(spec.subject, width=40)}, not retrained"
    if not spec.forgotten or spec.not_forgotten([i.id for i in splits.splits["forget"]]):
        return "its record does not say that it left out all of the forget set"
    if spec.data not in splits.taught_without:
        return "it was trained on other data than this audit's without the forget set"
    if spec.model != _MADE_ANEW and (not target.parent or spec.parent != target.parent):
        return "nothing says that its training began with the model that the target's began with"
    return ""


def with_targets_weights(
    run: RunFolder, folders: Mapping[str, str], target: str, unlearned: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The subjects whose weights are the target's own, and that in a sentence."""
    digests = {name: _digests(run, folders[name]) for name in (target, *unlearned)}
    same = tuple(name for name in unlearned if digests[name]["weights"] == digests[target]["weights"])
    if not same:
        return (), ()
    names, has, it = (
        ", ".join(one_line(n, width=60) for n in same),
        *(("has", "it answers") if len(same) == 1 else ("have", "they answer")),
    )
    return same, (
        f"{names} {has} the target's own weights, in which nothing was forgotten: what {it} otherwise comes from the "
        "chat template, the tokeniser or the config.",
    )


def asked_otherwise(run: RunFolder, folders: Mapping[str, str], target: str) -> tuple[str, ...]:
    """Which models are asked through another tokeniser or chat template than the target, in a sentence for each."""
    digests = {name: _digests(run, folder) for name, folder in folders.items()}
    sentences = []
    for part, what in (("tokenizer", "tokeniser"), ("template", "chat template")):
        names = [one_line(n, width=60) for n, parts in digests.items() if parts[part] != digests[target][part]]
        if names:
            sentences.append(
                f"Asked through another {what} than the target: {', '.join(names)}; what differs between their answers "
                f"may come from the {what} and not from the weights."
            )
    return tuple(sentences)


def _digests(run: RunFolder, folder: str) -> Mapping[str, str]:
    """The digests of a model's parts, as its folder (relative to the run) has them."""
    digests: Mapping[str, str] = read_versioned(SubjectFolder(run.path / folder).done, "model")["model"]
    return digests
