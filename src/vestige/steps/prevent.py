"""Prevention as a step: risk under the target, models unlearned with and without protection, and what each lost.

Every model is made by the ordinary unlearning, in a folder of its own, and asked by the ordinary evaluation; the same
request goes on where a stopped one ended. All arms have the same method, settings and order of forget items, and end at
the first scored point that meets one rule on the forget set, so that they are compared at like forgetting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vestige.artifacts.prevention import (
    MEASURES,
    ArmRow,
    HarmRow,
    PreventionFolder,
    PreventionTable,
    RiskRow,
    read_risks,
    read_table,
    write_harms,
    write_risks,
    write_table,
)
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import SCHEMA, read_scored_records, read_versioned
from vestige.core.errors import InputError
from vestige.core.files import locked, write_json, write_jsonl
from vestige.core.ids import changed_keys
from vestige.core.items import Item
from vestige.evals import qa
from vestige.models.embedder import Embedder
from vestige.probes.arms import (
    ADJACENT,
    NONE,
    ORACLE,
    PREDICTED,
    RANDOM,
    drawn,
    evaluated_half,
    most_harmed,
    n_at_risk,
    nearest_first,
)
from vestige.probes.prevention_table import Trial, arm_rows, predictions
from vestige.probes.risk import COMBINED, order_of
from vestige.steps.evaluate import EvaluateRequest, Subject, evaluate, finished_subject
from vestige.steps.making import LOCK_SECONDS, read_done
from vestige.steps.prevent_probe import probed_arms
from vestige.steps.prevent_request import PreventRequest, check_request, request_identity, watched_for
from vestige.steps.prevent_risk import risk_scores
from vestige.steps.subjects import any_subject
from vestige.steps.unlearn import unlearn


def prevent(folder: PreventionFolder, request: PreventRequest) -> PreventionTable:
    """The table of the trial in `folder`; made unless it is there. Of other arms the missing ones are made."""
    check_request(request)
    with locked(folder.lock, patience_seconds=LOCK_SECONDS):
        embedder, weights = request.embeds()
        _same_request(folder, request, weights)
        if folder.table.exists():
            table = read_table(folder)
            if set(table.steps) == set(request.arms) and table.probe_k == request.settings.probe_k:
                return table
        watch = Stopwatch()
        trial = _Work(folder, request, _risks(folder, request, embedder)).trial()
        table = _table(folder, request, trial, probed_arms(folder, request, embedder, weights))
        write_provenance(folder.provenance, watch, device=str(embedder.model.device))
        write_harms(folder, _harm_rows(trial))
        write_table(folder, table)
    return table


def _same_request(folder: PreventionFolder, request: PreventRequest, embedder_digest: str) -> None:
    ours = request_identity(request, embedder_digest)
    if folder.asked.exists():
        changed = changed_keys(ours, {k: v for k, v in read_versioned(folder.asked).items() if k != "schema"})
        if changed:
            raise InputError(
                f"{folder.path} holds another trial of prevention (it differs in {', '.join(changed)}); choose another "
                "folder"
            )
    write_json(folder.asked, {"schema": SCHEMA, **ours})


def _risks(folder: PreventionFolder, request: PreventRequest, embedder: Embedder) -> list[RiskRow]:
    """The risk of every candidate, and which may be added; computed unless it is there."""
    if folder.risk.exists():
        return read_risks(folder)
    request.on_stage(0.0, "risk under the target")
    scores = risk_scores(request.unlearning, request.candidates, embedder, request.dataset, request.edges)
    ids = [i.id for i in request.candidates]
    evaluated = evaluated_half(scores[COMBINED], ids, seed=request.unlearning.seed)
    rows = [
        RiskRow(
            item=item.id,
            question=item.question,
            edge=item.edge,
            part="evaluated" if evaluated[n] else "pool",
            scores={name: float(values[n]) for name, values in scores.items()},
        )
        for n, item in enumerate(request.candidates)
    ]
    write_risks(folder, rows)
    return rows


@dataclass
class _Work:
    """A trial while it is being made: harms so far, by arm and seed, of benign and of forget items."""

    folder: PreventionFolder
    request: PreventRequest
    risks: Sequence[RiskRow]
    harms: dict[tuple[str, int], dict[str, dict[str, float]]] = field(default_factory=dict)

    def trial(self) -> Trial:
        """Make and ask every model. Those without protection come first, since the oracle reads what they lost."""
        request = self.request
        target = any_subject(request.unlearning.target, str(self.folder.target), role="target")
        pairs = [(arm, seed) for arm in request.arms for seed in request.seeds]
        n = len(pairs) + 1
        request.on_stage(0.0, "the target's answers")
        before = self._scores(target, request.candidates)
        for done, (arm, seed) in enumerate(pairs, start=1):
            request.on_stage(done / n, f"{arm}, seed {seed}")
            subject = self._made(arm, seed)
            asked = request.candidates if arm == NONE else self._part("evaluated")
            after = self._scores(subject, asked)
            self.harms[arm, seed] = {
                measure: {item: values[item] - left for item, left in after[measure].items()}
                for measure, values in before.items()
            }
        return self._seen()

    def _made(self, arm: str, seed: int) -> Subject:
        """The finished model of one arm at one seed."""
        request, place = self.request, self.folder.arm(arm, seed)
        added = self._added(arm, seed)
        write_jsonl(self.folder.added(arm, seed), ({"item": i.id, "question": i.question} for i in added))
        asked = request.unlearning
        kept = replace(asked, retain_items=(*asked.retain_items, *added), seed=seed, trajectory=watched_for(request))
        unlearn(place, kept)
        return finished_subject(place, device=asked.target.device, trust_remote_code=asked.target.trust_remote_code)

    def _added(self, arm: str, seed: int) -> list[Item]:
        """What the arm adds, from the pool."""
        pool, n, settings = self._part("pool"), self.request.settings.add, self.request.settings
        ids = [i.id for i in pool]
        own = [row for row in self.risks if row.part == "pool"]
        risks = {name: np.array([row.scores[name] for row in own]) for name in own[0].scores}
        if arm == NONE:
            return []
        places = {
            RANDOM: lambda: drawn(len(pool), n, seed=seed),
            ADJACENT: lambda: nearest_first(risks, ids)[:n],
            PREDICTED: lambda: order_of(risks[settings.risk_by], ids)[:n],
            ORACLE: lambda: most_harmed(self._seen().harm_elsewhere(seed, ids), ids, n),
        }[arm]()
        return [pool[place] for place in sorted(places.tolist())]

    def _part(self, part: str) -> tuple[Item, ...]:
        names = {row.item for row in self.risks if row.part == part}
        return tuple(i for i in self.request.candidates if i.id in names)

    def _scores(self, subject: Subject, benign: Sequence[Item]) -> dict[str, dict[str, float]]:
        """By measure and item, the scores of benign and of forget items; what not all items have is left out."""
        items = (*benign, *self.request.unlearning.forget_items)
        questions = qa.QASettings(max_new_tokens=self.request.settings.max_new_tokens)
        place = evaluate(subject, EvaluateRequest(items, (), questions, self.request.unlearning.seed))
        records = read_scored_records(place)
        found = {
            "logp": {r["item"]: sum(r["logp"]) / len(r["logp"]) for r in records},
            "rougeL": {r["item"]: r["rougeL_recall"] for r in records if "rougeL_recall" in r},
        }
        return {measure: found[measure] for measure in MEASURES if len(found[measure]) == len(records)}

    def _seen(self) -> Trial:
        """All that was measured so far."""
        request, rows = self.request, self.risks
        return Trial(
            arms=request.arms,
            seeds=request.seeds,
            ids=tuple(row.item for row in rows),
            clusters=tuple(row.edge or row.item for row in rows),
            evaluated=np.array([row.part == "evaluated" for row in rows]),
            risks={name: np.array([row.scores[name] for row in rows]) for name in rows[0].scores},
            forget={i.id: i.edge or i.id for i in request.unlearning.forget_items},
            harms=self.harms,
        )


def _harm_rows(trial: Trial) -> list[HarmRow]:
    return [
        HarmRow(arm, seed, item, {measure: values[item] for measure, values in found.items()})
        for (arm, seed), found in trial.harms.items()
        for item in found[MEASURES[0]]
    ]


def _table(
    folder: PreventionFolder, request: PreventRequest, trial: Trial, probed: Sequence[ArmRow]
) -> PreventionTable:
    asked, settings = request.unlearning, request.settings
    made = {(arm, seed): read_done(folder.arm(arm, seed)) for arm in request.arms for seed in request.seeds}
    kept: Mapping[tuple[str, int], Any] = {pair: m.chosen for pair, m in made.items() if m}
    steps = {pair: (m.chosen.step if m.chosen else m.steps) for pair, m in made.items() if m}
    return PreventionTable(
        method=asked.method,
        forget=asked.forget,
        seeds=request.seeds,
        n_forget=len(asked.forget_items),
        n_retain=len(asked.retain_items),
        n_added=settings.add,
        n_pool=len(trial.pool_ids),
        n_evaluated=len(trial.evaluated_ids),
        n_at_risk=n_at_risk(len(trial.evaluated_ids)),
        rule=settings.stop_when,
        risk_by=settings.risk_by,
        probe_k=settings.probe_k,
        steps={arm: tuple(steps[arm, s] for s in request.seeds) for arm in request.arms},
        reached={arm: sum(bool(kept[arm, s] and kept[arm, s].met) for s in request.seeds) for arm in request.arms},
        arms=(*arm_rows(trial), *probed),
        predictions=predictions(trial, seed=asked.seed),
    )
