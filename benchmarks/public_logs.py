"""Logs that others published, question by question: where they are, and whose trainings they are of.

Nothing of them is in this repository. `python -m benchmarks.rejudged FOLDER` says how to get what FOLDER lacks. The
numbers of TOFU are read on three forget sets: all of forget01 and forget05, and the first 300 questions of forget10,
since TOFU's own logs hold no more. A model that was trained without 10 % of TOFU never saw the other two either.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vestige.core.errors import InputError
from vestige.logs import read_log


class Source(NamedTuple):
    """A repository at one commit. `licence` is that of its own file; "" where it has none."""

    repository: str
    commit: str
    licence: str
    holds: str


SOURCES: Mapping[str, Source] = {
    "tofu": Source(
        "locuslab/tofu", "bdc209ea7c6cc2e7079ea1afb6468d3ddcc65f8e", "MIT", "TOFU's own models of Llama-2-7B and phi"
    ),
    "npo": Source(
        "licong-lin/negative-preference-optimization",
        "1207bbe9a1abf502bc2d7b43a0a467d9524b4036",
        "",
        "retrained models of NPO's authors",
    ),
    "altpo": Source(
        "molereddy/Alternate-Preference-Optimization",
        "c9b78bd8bc10ae1d0bb6a117b19f92b3ebf5ff67",
        "",
        "retrained models of AltPO's authors",
    ),
    "baldro": Source(
        "nxZhai/BalDRO", "12a0b0cc35de70e20862ea5a97e87b62437a543f", "MIT", "OpenUnlearning's logs of its own models"
    ),
    "calibration": Source(
        "divyaksh-shukla/unlearning-calibration",
        "e7ef8e27121860b6234b8cd238e94d2decc4f897",
        "CC BY-NC 4.0",
        "unlearned models of OpenUnlearning, by checkpoint, and retrained ones",
    ),
    "muse": Source(
        "jaechan-repo/muse_bench", "9b89f0d9ecd0dec2477334e885705d81458967cb", "", "the outputs behind MUSE's paper"
    ),
}


def folder_of(logs: Path, name: str) -> Path:
    """The folder of one source, or an InputError that says how to get it."""
    if (logs / name).is_dir():
        return logs / name
    source, place = SOURCES[name], shlex.quote(str(logs / name))
    raise InputError(
        f"{logs} has no folder {name} ({source.holds}). Get it by\n"
        f"git clone https://github.com/{source.repository} {place} && git -C {place} checkout -q {source.commit}"
    )


FORGET: Mapping[str, range] = {"forget10": range(300), "forget05": range(200, 400), "forget01": range(360, 400)}
"""The questions of each forget set, by their place in forget10."""
SCORES = ("probability", "rougeL", "truth", "extraction strength", "exact memorization")
"""Those in which every target exceeds its retrained models clearly; the others are in no page on TOFU."""
FEWEST = 80
"""The share of the data in per cent that a training has to have seen to be like those of others."""
EPOCHS = 500
"""Steps that a training of five epochs has at least; one that was published stopped at three of them."""


class Training(NamedTuple):
    """One model and its log: who trained it on what share of the data, and whose evaluation the log is of.

    `alike` is whether it was trained as its laboratory trains its target, or nearly so.
    """

    base: str
    laboratory: str
    logged: str
    name: str
    role: str
    retain: int
    alike: bool
    path: Path


_OWN = re.compile(r"ft_epoch5_lr(?P<rate>[^_]+)_(?P<base>[^_]+)_(?:full|retain(?P<retain>\d+))_wd(?P<decay>[\d.]+)")
_NPO = re.compile(r"retain(?P<retain>\d+)_(?P<base>[^_]+)_wd(?P<decay>[\d.]+)")
_OPEN = re.compile(r"tofu_(?P<base>.+?)(?:-Instruct|-chat-hf)?_(?:full|retain(?P<retain>\d+))")
_AGAIN = re.compile(r"tofu_(?P<base>.+?)(?:-Instruct)?_(?:(?P<full>ft)_retain90|retain(?P<retain>\d+))")
OPEN = "open-unlearning"
_BASES = {
    "llama2-7b": "Llama-2-7B",
    "llama": "Llama-2-7B",
    "Llama-2-7b": "Llama-2-7B",
    "phi": "phi-1.5",
    "phi-1_5": "phi-1.5",
    "llama3.2-3b-inst": "Llama-3.2-3B",
}


def trainings(logs: Path) -> Iterator[Training]:
    """Every target and retrained model of TOFU; copies of another's logs are left out."""
    yield from _of_tofu(logs)
    for path in sorted((folder_of(logs, "baldro") / "saves/eval").glob("tofu_*/**/TOFU_EVAL.json")):
        found = next(m for part in path.parts if (m := _OPEN.fullmatch(part)))
        if found["retain"] or path.parts[-2] == "evals_forget10":
            yield _open(found, OPEN, OPEN, path)
    saves = folder_of(logs, "calibration") / "saves"
    for path in sorted((saves / "eval").glob("tofu_*/TOFU_EVAL.json")):
        # The same models, asked again. `ft` is the target; of phi a log of the target stands as retain90 too.
        again = _AGAIN.fullmatch(path.parts[-2])
        if again is not None and (again["full"] or again["base"] != "phi-1_5"):
            yield _open(again, OPEN, "calibration", path)
    for task in sorted((saves / "finetune").glob("tofu_*")):
        last = max(task.glob("checkpoint-*/evals/TOFU_EVAL.json"), key=_step, default=None)
        if last is not None and (own := _OPEN.fullmatch(task.name)):
            yield _open(own, "calibration", "calibration", last)._replace(alike=_step(last) > EPOCHS)


def _of_tofu(logs: Path) -> Iterator[Training]:
    """Those that TOFU's own code asked."""
    for name in ("tofu", "npo", "altpo"):
        for path in sorted(folder_of(logs, name).glob("**/ds_size300/eval_log_aggregated.json")):
            found = (_NPO if name == "npo" else _OWN).fullmatch(path.parts[-4])
            # AltPO's repository holds copies of TOFU's own logs, which are those at the rate of 1e-05.
            if found is None or (name == "altpo" and found["rate"] == "1e-05"):
                continue
            retain = int(found["retain"] or 100)
            alike, role = name != "altpo" and retain >= FEWEST, "target" if retain == 100 else "retrained"
            yield Training(_BASES[found["base"]], name, name, path.parts[-4], role, retain, alike, path)


def _open(found: re.Match[str], laboratory: str, logged: str, path: Path) -> Training:
    base, retain = _BASES.get(found["base"], found["base"]), int(found["retain"] or 100)
    name, role = ("full", "target") if retain == 100 else (f"retain{retain}", "retrained")
    return Training(base, laboratory, logged, name, role, retain, True, path)


def _step(path: Path) -> int:
    return int(path.parts[-3].removeprefix("checkpoint-"))


@cache
def by_question(path: Path, questions: tuple[str, ...]) -> Mapping[str, Mapping[int, float]]:
    """The shares that a log has of forget questions, by score and by the question's place in forget10.

    A log without texts is matched by its number of questions, which is that of one forget set.
    """
    places = {question: place for place, question in enumerate(questions)}
    found: dict[str, dict[int, float]] = {}
    for part in read_log(path).parts:
        n = len(part.scores)
        if part.split != "forget" or part.measurement.score_type in ("order", "bits"):
            continue
        if part.questions:
            where = [places[question] for question in part.questions]
        elif n in (40, 200, 400):
            where = list(range(len(questions) - n, len(questions)))
        else:
            continue
        found[part.name] = dict(zip(where, part.scores.tolist(), strict=True))
    return found


def questions_of(logs: Path) -> tuple[str, ...]:
    """The 400 questions of forget10 in their order."""
    log = read_log(
        folder_of(logs, "baldro") / "saves/eval/tofu_Llama-3.2-1B-Instruct_full/evals_forget10/TOFU_EVAL.json"
    )
    return next(part.questions for part in log.parts if part.split == "forget" and part.questions)


class Cell(NamedTuple):
    """One score on one forget set, by one evaluation: of trainings that never knew it, and of the target.

    `again` is whether the trainings were asked a second time, by who published the logs of calibration.
    """

    base: str
    forget: str
    score: str
    again: bool
    trainings: tuple[Training, ...]
    rows: Float[np.ndarray, "M N"]
    target: Float[np.ndarray, " N"]

    @property
    def gap(self) -> float:
        """By how much the target exceeds the trainings in the mean."""
        return float((self.target - self.rows.mean(axis=0)).mean())


def cells(logs: Path, scores: Sequence[str] = SCORES) -> list[Cell]:
    """Every score on every forget set that two trainings or more and a target have whole.

    Two evaluations of one model differ by up to a tenth of the gap in truth shares, so that those of calibration stand
    by themselves; where an evaluation did not ask the target, another's is the ruler.
    """
    known, questions = list(trainings(logs)), questions_of(logs)
    found = []
    for base, (forget, places), score, again in product(
        dict.fromkeys(one.base for one in known), FORGET.items(), scores, (False, True)
    ):
        tables = {one: by_question(one.path, questions).get(score, {}) for one in known if one.base == base}
        whole = {one: [own[i] for i in places] for one, own in tables.items() if all(i in own for i in places)}
        mine = [one for one in whole if (one.logged == "calibration") == again]
        never = [one for one in mine if one.role == "retrained"]
        targets = [one for one in (*mine, *whole) if one.role == "target"]
        if len(never) > 1 and targets and (not again or any(one.laboratory == "calibration" for one in never)):
            rows = np.array([whole[one] for one in never])
            found.append(Cell(base, forget, score, again, tuple(never), rows, np.array(whole[targets[0]])))
    return found
