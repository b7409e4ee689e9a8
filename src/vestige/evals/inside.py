"""`inside`: do the model's hidden states contain the true answer, whatever its replies? Needs its weights.

True and wrong answers of forget items, and of retained items that the model is known to know, are put after their
questions, and every block's output over the answer's tokens is read. Formats, each a share of the wrong answers that
the true one beats (1/2 by chance):

- `lens`: by the mean log-probability per token that the model's own norm and head give to the answer from a block's
  output (logit lens; nostalgebraist 2020).
- `probe`: by a linear probe on the mean output over the answer's tokens, less the mean over the answers to its
  question: ridge regression on the retained items, true against wrong, in five folds (Marks and Tegmark 2310.06824 for
  the direction; Hewitt and Liang 1909.03368 for the control task). Retained items are scored by the folds without them.
- `shuffled`: the same probe fitted on any answer of each item, drawn by the seed, as if it were true. It is at chance,
  or the probe is no evidence.

Blocks are weighted by their separation of true answers beyond chance on retained items, so that nothing is chosen on
the forget set. Logarithms in records are natural (nats).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int
from pydantic import Field, PositiveInt

from vestige.artifacts.records import Result
from vestige.core.errors import InputError, NotFinite
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.seeds import generator
from vestige.core.text import Fields, NumberByName, NumberMapping, Record, one_line
from vestige.core.threads import one_blas_thread
from vestige.data.mcq import MOST_OPTIONS, Choice, OptionDrawing, Unasked, choices_of
from vestige.evals.base import Evaluation, InAudit, Records, View, results, with_unasked

if TYPE_CHECKING:
    from vestige.models.load import LoadedModel
    from vestige.models.prompts import Encoded

UNREAD = "stands before blocks that cannot be read"
LEAST = 20
"""Fewer retained items show nothing of a probe."""
FOLDS = 5
RIDGE = 1.0
"""Weight of the ridge, in mean squared lengths of a row."""


@dataclass(frozen=True)
class Compared:
    """The answers to one question that are compared. The probe is fitted on it or not."""

    choice: Choice
    fit: bool

    @property
    def item(self) -> str:
        """The item's id."""
        return self.choice.item


class InsideSettings(Evaluation):
    """How many answers are compared, and on how many retained items the probe is fitted."""

    name: ClassVar[str] = "inside"
    collect_version: ClassVar[int] = 2
    summary_version: ClassVar[int] = 2
    audit: ClassVar[InAudit] = InAudit(
        items="asked", needs="distributions", label="what the blocks hold (inside)", after="never"
    )

    options: int = Field(4, ge=2, le=MOST_OPTIONS)
    """Answers to a question, the true one among them."""
    fit_items: PositiveInt = 200
    """At most this many retained items to fit the probe and weigh the blocks on."""
    seed: int = 0
    """Seed of the drawing."""

    def build_questions(self, items: Sequence[Item], views: Sequence[View]) -> dict[str, Compared | Unasked]:
        """The forget items, and retained ones drawn by the seed. Unreadable items get a reason."""
        choices = choices_of(items, OptionDrawing(self.options, "auto", "leave_out", "balanced", self.seed))
        forget: set[str] = set()
        retained: set[str] = set()
        for view in views:
            forget.update(view.splits.get("forget", view.splits.get(view.forget, ())))
            retained.update(view.splits.get("retain", ()))
        retained -= forget
        usable = [i for i, choice in choices.items() if i in retained and isinstance(choice, Choice)]
        if len(usable) < LEAST:
            why = (
                f"stands beside {len(usable)} retained items with wrong answers, and blocks are read by {LEAST} or more"
            )
            return {i: Unasked(i, why, choices[i].edge) for i in choices if i in forget}
        # Items are drawn among the readable ones, so that items without wrong answers take no place.
        order = generator(self.seed, self.name).permutation(len(usable))[: self.fit_items]
        fit = {usable[n] for n in order.tolist()}
        return {
            i: Compared(choice, i in fit) if isinstance(choice, Choice) else choice
            for i, choice in choices.items()
            if i in forget or i in fit
        }

    @staticmethod
    def digest(questions: Mapping[str, Compared | Unasked]) -> str:
        """Return the content id of the compared answers, of the records' labels, and of the probe's training data."""
        rows: list[list[Any]] = []
        for item, q in questions.items():
            if isinstance(q, Compared):
                rows.append([item, q.choice.id, q.choice.edge, q.choice.group, q.choice.attribute, q.fit])
            else:
                rows.append([item, q.id, q.edge])
        return content_id(rows, length=32)

    def chunks(self, subject: LoadedModel, questions: Sequence[Compared | Unasked], *, size: int) -> list[list[int]]:
        """Return one portion: the probe is fitted on all retained items at once."""
        return [list(range(len(questions)))]

    def collect(self, subject: LoadedModel, questions: Sequence[Compared | Unasked]) -> Records:
        """One record a question.

        Items without wrong answers get a reason. InputError where the weights are not here.
        """
        if not subject.here:
            raise InputError(f"inside needs local weights, and {subject.name} has none. Leave inside out")
        from vestige.models.scoring import answers_inside

        compared = [q for q in questions if isinstance(q, Compared)]
        if not compared:
            return with_unasked(questions, ())
        encoded: list[Encoded] = []
        for q in compared:
            encoded += [subject.prompter.encode(q.choice.question, text) for text in q.choice.options]
        try:
            hidden, lens = answers_inside(subject.model, encoded)
        except NotFinite:
            raise
        except InputError as error:
            # An unsupported model family must not keep an audit from its other questions.
            return [{"item": q.item, "edge": None, "unasked": f"{UNREAD}: {error}"} for q in questions]
        stops = np.cumsum([len(q.choice.options) for q in compared]).tolist()
        rows = [range(stop - len(q.choice.options), stop) for q, stop in zip(compared, stops, strict=True)]
        right = np.array([q.choice.answer for q in compared])
        fit = np.array([q.fit for q in compared])
        shuffled = np.array([_drawn(q.choice, self.seed) for q in compared])
        targets = np.stack([right, shuffled])
        scores: dict[str, list[Float[np.ndarray, " R"]]] = {"lens": list(lens), "probe": [], "shuffled": []}
        with one_blas_thread():
            for block in hidden:
                probe, control = probe_scores(block, rows, targets, fit)
                scores["probe"].append(probe)
                scores["shuffled"].append(control)
        fitted = [(members, q.choice.answer) for members, q in zip(rows, compared, strict=True) if q.fit]
        weights = {}
        for name in ("lens", "probe"):
            above = []
            for block in scores[name]:
                above.append(np.array([beaten(block[members], answer) for members, answer in fitted]))
            weights[name] = block_weights(above)
        # With its own weights, the control would weight other blocks than the probe that it controls.
        weights["shuffled"] = weights["probe"]
        records = []
        for n, q in enumerate(compared):
            record: Fields = {
                "item": q.item,
                "question": q.choice.question,
                "edge": q.choice.edge,
                "group": q.choice.group,
                "attribute": q.choice.attribute,
                "options": list(q.choice.options),
                "answer": q.choice.answer,
                "shuffled_answer": int(shuffled[n]),
                "fit": q.fit,
            }
            for name, blocks in scores.items():
                record[name] = [block[rows[n]].tolist() for block in blocks]
            records.append({**record, "weights": weights})
        return with_unasked(questions, records)

    @staticmethod
    def score(record: Record) -> NumberByName:
        """The values of one record, by `format/metric`. An item that was not asked has none."""
        if "unasked" in record:
            return {}
        values: NumberByName = {}
        for name, weights in record["weights"].items():
            answer = record["shuffled_answer" if name == "shuffled" and record["fit"] else "answer"]
            # For items that the control was fitted on, its own truth counts. Other items have the real truth.
            shares = [beaten(block, answer) for block in record[name]]
            # Weights add up to 1, except for rounding.
            values[f"{name}/beaten"] = min(1.0, float(np.dot(shares, weights)))
            values[f"{name}/chance"] = 0.5
        return values

    @classmethod
    def summarize(
        cls, records: Sequence[Record], scores: Sequence[NumberMapping], view: View, *, seed: int
    ) -> tuple[Result, ...]:
        """The estimates over the forget items and over the retained ones that were read."""
        reasons = [r["unasked"] for r in records if "unasked" in r]
        if len(reasons) == len(records) and reasons[0].startswith(UNREAD):
            return ()
        if len(reasons) == len(records):
            raise InputError(f"no item could be read inside: an item {one_line(reasons[0], width=160)}")
        have = {r["item"] for r in records}
        splits = {}
        for name in ("forget", "retain"):
            splits[name] = [i for i in view.splits.get(name, ()) if i in have]
        return results(records, scores, View(view.forget, splits, view.scopes), cls.measure, seed=seed)


def _drawn(choice: Choice, seed: int) -> int:
    """Draw an option by the seed and the question: from wrong ones alone a probe would learn falsehood."""
    return int(generator(seed, "shuffled", choice.id).integers(len(choice.options)))


def probe_scores(
    hidden: Float[np.ndarray, "R D"],
    rows: Sequence[Sequence[int]],
    targets: Int[np.ndarray, "T Q"],
    fit: Bool[np.ndarray, " R"],
) -> Float[np.ndarray, "T R"]:
    """Value each answer by a linear probe, once for each choice of true answers.

    The probe is a ridge regression. Its labels are 1 for the true answer and 0 for the others, less the question's
    mean. Its inputs are the answers' outputs less the question's mean, and each coordinate is divided by its RMS over
    the questions to fit. The n-th question to fit belongs to fold n mod 5 and is valued by the probe without its fold.
    Other questions get the mean over the five probes. All targets share one factorisation per fold, in the primal form
    if there are fewer coordinates than rows and in the dual form otherwise.

    Args:
        hidden: the output of a block for each of R answers.
        rows: for each of Q questions, the rows of its answers.
        targets: for each target, the place of the answer that counts as true in each question.
        fit: which questions the probe is fitted on.

    Returns:
        The value of each answer under each target.
    """
    x = np.asarray(hidden, dtype=np.float64).copy()
    y = np.zeros((len(x), len(targets)))
    folds = np.full(len(x), -1)
    n_fitted = 0
    for n, members in enumerate(rows):
        x[members] -= x[members].mean(axis=0)
        y[members] = -1 / len(members)
        for target, true in enumerate(targets):
            y[members[true[n]], target] += 1
        if fit[n]:
            folds[members] = n_fitted % FOLDS
            n_fitted += 1
    # The small number keeps a coordinate at 0 if it is equal in all answers.
    x /= np.sqrt((x[folds >= 0] ** 2).mean(axis=0)) + 1e-9
    solve = _primal if x.shape[1] < np.count_nonzero(folds >= 0) else _dual
    values = np.stack([solve(x, y, (folds >= 0) & (folds != fold)) for fold in range(FOLDS)])
    left_out = values[folds, np.arange(len(x))]
    each: Float[np.ndarray, "T R"] = np.where((folds >= 0)[:, None], left_out, values.mean(axis=0)).T
    return each


def _primal(
    x: Float[np.ndarray, "R D"], y: Float[np.ndarray, "R T"], keep: Bool[np.ndarray, " R"]
) -> Float[np.ndarray, "R T"]:
    """Ridge regression on the rows in `keep`, by a system of one equation per coordinate."""
    rows = x[keep]
    products = rows.T @ rows
    values: Float[np.ndarray, "R T"] = x @ np.linalg.solve(_with_ridge(products, len(rows)), rows.T @ y[keep])
    return values


def _dual(
    x: Float[np.ndarray, "R D"], y: Float[np.ndarray, "R T"], keep: Bool[np.ndarray, " R"]
) -> Float[np.ndarray, "R T"]:
    """Return the same regression, solved by one equation per row in `keep`."""
    products = x @ x[keep].T
    values: Float[np.ndarray, "R T"] = products @ np.linalg.solve(_with_ridge(products[keep], len(products.T)), y[keep])
    return values


def _with_ridge(products: Float[np.ndarray, "N N"], n_rows: int) -> Float[np.ndarray, "N N"]:
    """Add the ridge. It scales with the mean squared length of a row, so that it is as strong in a wide model."""
    ridge = RIDGE * np.trace(products) / n_rows
    ridged: Float[np.ndarray, "N N"] = products + ridge * np.eye(len(products))
    return ridged


def block_weights(beaten: Sequence[Float[np.ndarray, " F"]]) -> list[float]:
    """Return the blocks' weights (sum 1): each block's excess over chance on retained items, or equal."""
    beyond = [max(0.0, float(block.mean()) - 0.5) for block in beaten]
    beyond = beyond if any(beyond) else [1.0] * len(beyond)
    return [block / sum(beyond) for block in beyond]


def beaten(values: Sequence[float] | Float[np.ndarray, " K"], answer: int) -> float:
    """Return the share of the other values below the value of `answer`. Ties count half."""
    rest = np.delete(np.asarray(values), answer)
    return float((np.sign(values[answer] - rest) + 1).mean() / 2)
