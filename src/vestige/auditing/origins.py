"""Where an audit's models come from, as far as their files can say it: records of their making, and weights.

No answer is looked at here; what follows for the controls is for `auditing.earned` to say.
"""

from collections.abc import Mapping, Sequence
from math import isfinite, sqrt

from vestige.artifacts.audits import EvidenceLevel
from vestige.artifacts.layout import AuditFolder, RunFolder, SubjectFolder
from vestige.artifacts.records import SubjectSpec, read_spec
from vestige.core.errors import InputError
from vestige.core.store import read_sealed, read_versioned, write_sealed
from vestige.core.text import one_line
from vestige.data.corpus import NamedSplits
from vestige.models.address import is_address

_MADE_ANEW = "builtin:tiny"
"""Begins the names of models that are made on the spot: whoever begins with one begins with nothing."""


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
    reasons = "; ".join(f"{', '.join(names)}: {why}" for why, names in by_why.items())
    return "given", (f"The origin of these controls is not verified: {reasons}.",)


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
    if not spec.model.startswith(_MADE_ANEW) and (not target.parent or spec.parent != target.parent):
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
    for part, label in (("tokenizer", "tokeniser"), ("template", "chat template")):
        names = [one_line(n, width=60) for n, parts in digests.items() if parts[part] != digests[target][part]]
        if names:
            sentences.append(
                f"Asked through another {label} than the target: {', '.join(names)}; what differs between their "
                f"answers may come from the {label} and not from the weights."
            )
    return tuple(sentences)


def _digests(run: RunFolder, folder: str) -> Mapping[str, str]:
    """The digests of a model's parts, as its folder (relative to the run) has them."""
    digests: Mapping[str, str] = read_versioned(SubjectFolder(run.path / folder).done, "model")["model"]
    return digests


def other_recipes(run: RunFolder, folders: Mapping[str, str], target: str, retrained: Sequence[str]) -> dict[str, str]:
    """In a clause, by control, what of its training differs from the target's, where Vestige made both.

    The seed and the data are to differ. Threads and memory change no more than rounding.
    """
    specs = {name: read_spec(SubjectFolder(run.path / folders[name]).spec) for name in (target, *retrained)}
    target_settings = specs[target].settings if specs[target].data else {}
    differences = {}
    for name in retrained:
        settings = specs[name].settings if specs[name].data else {}
        names = [
            n for n in target_settings if n in settings and n not in _NO_RECIPE and settings[n] != target_settings[n]
        ]
        if names:
            clauses = (
                f"{n} {one_line(str(settings[n]), width=40)} and not {one_line(str(target_settings[n]), width=40)}"
                for n in names
            )
            differences[name] = ", ".join(clauses)
    return differences


_NO_RECIPE = frozenset(("model", "micro_batch_size", "token_budget", "gradient_checkpointing", "bucket", "threads"))
"""Settings that change what is computed at a time, and not what is taught; `model` is held against by its digest."""


def distances(
    folder: AuditFolder, run: RunFolder, folders: Mapping[str, str], models: Mapping[str, str]
) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    """How far the weights of the models lie from each other by two names, and in sentences which were not compared.

    `models` says where each is, the target first. What is known of the same weights is not read again.
    """
    local = {name: model for name, model in models.items() if not is_address(model)}
    sentences = []
    if away := [one_line(name, width=60) for name in models if name not in local]:
        sentences.append(
            f"The weights of {', '.join(away)} were not seen, so that nothing but answers tells copies apart."
        )
    if len(local) < 3:
        return {}, tuple(sentences)
    weights = {name: _digests(run, folders[name])["weights"] for name in local}
    if folder.apart.exists() and (stored := read_sealed(folder.apart, "weights", "apart"))["weights"] == weights:
        return stored["apart"], tuple(sentences)
    from vestige.models.distances import squared_distances

    names = list(local)
    try:
        squares = squared_distances([local[name] for name in names]).tolist()
    except InputError as error:
        return {}, (*sentences, f"The weights of the models were not compared with each other: {error}.")
    apart = {
        name: {
            other_name: sqrt(x) for other_name, x in zip(names, row, strict=True) if other_name != name and isfinite(x)
        }
        for name, row in zip(names, squares, strict=True)
    }
    if odd := [one_line(name, width=60) for name in names[1:] if not isfinite(squares[0][names.index(name)])]:
        sentences.append(f"The weights of {', '.join(odd)} are of another shape than the target's, and not compared.")
    apart = {name: to_others for name, to_others in apart.items() if to_others}
    write_sealed(folder.apart, {"weights": weights, "apart": apart})
    return apart, tuple(sentences)


def copied_controls(
    run: RunFolder, folders: Mapping[str, str], other_models: Sequence[str], retrained: Sequence[str]
) -> dict[str, str]:
    """The controls that have the weights of another model of the audit, by name, each with a sentence.

    A copy of another control shows no spread between trainings, and one of the target or a subject is no control: it is
    left out, and not the whole audit. A copy is known by its weights, whatever template or settings stand beside them.
    """
    weights = {name: _digests(run, folders[name])["weights"] for name in (*other_models, *retrained) if name in folders}
    first: dict[str, str] = {}
    sentences: dict[str, str] = {}
    for name, digest in weights.items():
        same = first.setdefault(digest, name)
        if same != name and name in retrained:
            names = one_line(name, width=60), one_line(same, width=60)
            sentences[name] = (
                f"{names[0]} is left out as a control: its weights are those of {names[1]}, as when a training is "
                "repeated without another --seed."
            )
    return sentences
