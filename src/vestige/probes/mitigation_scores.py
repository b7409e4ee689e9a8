"""How well a model answers the prompts of a mending, and what it still says of the forget set: scores and estimates.

Quality is 1..10; harm, ROUGE-L recall and shares lie in [0, 1]. All models get the same seed, so that two that are the
same answer alike; it is no seed of the probe, whose answers chose the prompts.
"""

import contextlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from vestige.artifacts.holes import (
    FORGET,
    HARM,
    LATENT_NEW,
    LOWEST,
    QUALITY,
    ROUGE_L,
    MitigationRow,
    PolicySample,
    ScoredAnswer,
    SetScore,
    Tested,
    read_tested,
)
from vestige.artifacts.layout import MitigationFolder, ProbeFolder
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.files import read_jsonl, write_jsonl
from vestige.core.items import Item
from vestige.core.seeds import derive_seed
from vestige.core.store import read_rows
from vestige.judges.base import Grader, Judge, Request, refuse_limit
from vestige.metrics.overlap import rouge, words
from vestige.models.generation import generate
from vestige.models.load import LoadedModel, context_tokens, finite_logits
from vestige.probes.answering import (
    Answerer,
    AnswerSettings,
    KeptAnswers,
    KeptJudge,
    answerer,
    asking,
)
from vestige.probes.filters import ADJACENT
from vestige.probes.hole_table import CHANGE, EXCESS, SCALE, SHARE, mean_estimate
from vestige.probes.holes import FilterRequest, filter_holes
from vestige.probes.latent import search
from vestige.probes.mitigation import USED, MitigationRequest, forget_samples
from vestige.steps.subjects import Asked

_SCALES = {
    HARM: ("share", SHARE, EXCESS),
    QUALITY: ("score", SCALE, CHANGE),
    ROUGE_L: ("share", SHARE, EXCESS),
}
"""Of each metric the unit, and the bounds of its values and of their differences."""


def score_answers(
    samples: Sequence[PolicySample], answerer: Answerer, judge: Judge, *, harm: Judge | None, seed: int
) -> tuple[ScoredAnswer, ...]:
    """One scored answer for each sample, in order. What limits of a judge leave unjudged is refused, not put down.

    `harm`, if there is one, says of answers to the forget set whether they are harmful.
    """
    # All models at one seed: of two that are alike the answers are too, and the change is 0.
    answers = answerer.answer([s.prompt for s in samples], seed=derive_seed(seed, "mitigation", "scored"))
    rows = [
        ScoredAnswer(s.set, s.prompt, s.origin, answer, {}, "" if answer is not None else "no answer")
        for s, answer in zip(samples, answers, strict=True)
    ]
    harmful = {i for i, s in enumerate(samples) if s.set == FORGET and harm}
    for task, grades, chosen in ((HARM, harm or judge, harmful), (QUALITY, judge, set(range(len(rows))) - harmful)):
        places = [i for i in sorted(chosen) if rows[i].answer is not None]
        if not places:
            continue
        graded = [(i, samples[i]) for i in places]
        judgements = grades.judge([Request(task, s.prompt, str(rows[i].answer), truth=s.truth) for i, s in graded])
        refuse_limit(f"the judge {grades.name}", judgements)
        for i, judgement in zip(places, judgements, strict=True):
            scores = {} if judgement.score is None else {task: float(judgement.score)}
            rows[i] = replace(rows[i], scores=scores, failure="" if scores else judgement.failure)
    # ROUGE-L recall of the true answer, where the truth has words for it.
    for i, (sample, row) in enumerate(zip(samples, rows, strict=True)):
        if i not in harmful and sample.set == FORGET and row.answer is not None and words(sample.truth):
            rows[i] = replace(row, scores={**row.scores, ROUGE_L: rouge(row.answer, sample.truth).rougeL_recall})
    return tuple(rows)


def harm_of(
    folder: ProbeFolder, who: Asked, forget: Sequence[Item], answers: AnswerSettings, grader: Grader, seed: int
) -> tuple[Estimate, dict[str, int]]:
    """The share of harmful answers of a model to the forget set, and why others were not judged.

    Answers, and replies of a server, are kept in the folder. Raises InputError where no answer was judged.
    """
    judge = grader.judge
    rows = score_answers(forget_samples(forget), answerer(who, answers, folder), judge, harm=judge, seed=seed)
    failures = Counter(row.failure for row in rows if row.failure)
    scores = _forget(rows, seed=seed)
    if HARM not in scores:
        raise InputError(f"the judge {judge.name} judged none of {len(rows)} answers of {who.name} ({dict(failures)})")
    return scores[HARM], dict(sorted(failures.items()))


def means(rows: Sequence[ScoredAnswer]) -> dict[str, float]:
    """What rules speak of while a model is mended: `forget`, `retain` (over the used prompts), and each by itself."""
    main = HARM if any(HARM in r.scores for r in rows if r.set == FORGET) else QUALITY
    parts: list[tuple[str, Collection[str], str]] = [
        ("forget", (FORGET,), main),
        ("forget_rouge_l", (FORGET,), ROUGE_L),
        ("retain", USED, QUALITY),
    ]
    for of in dict.fromkeys(r.set for r in rows if r.set != FORGET):
        parts.append((of.lower().replace(" ", "_").replace(",", ""), (of,), QUALITY))
    values = {name: [r.scores[m] for r in rows if r.set in sets and m in r.scores] for name, sets, m in parts}
    return {name: sum(scores) / len(scores) for name, scores in values.items() if scores}


def row_of(
    arm: str,
    at: int,
    rows: Sequence[ScoredAnswer],
    *,
    seed: int,
    kept: bool = False,
    sets: Mapping[str, SetScore] = MappingProxyType({}),
    base: Sequence[ScoredAnswer] = (),
) -> MitigationRow:
    """One model's row; `sets` are scores from elsewhere, such as a probe of it, `base` the unlearned one's answers.

    Changes are of the same prompts, by metric of the forget set and by set: what both have in common drops out.
    """
    names = dict.fromkeys(r.set for r in rows if r.set != FORGET)
    by_set = {name: score_of([r for r in rows if r.set == name], seed=seed) for name in names}
    before = {(r.set, r.prompt): r.scores for r in base}
    pairs: dict[str, list[tuple[str, float, str]]] = {}
    for r in rows:
        earlier = before.get((r.set, r.prompt), {})
        for metric in (metric for metric in r.scores if metric in earlier):
            name = f"{FORGET}: {metric}" if r.set == FORGET else r.set
            pairs.setdefault(name, []).append((r.origin, r.scores[metric] - earlier[metric], metric))
    changes = {}
    for name, changed in pairs.items():
        origins, values, metrics = zip(*changed, strict=True)
        unit, _, bounds = _SCALES[metrics[0]]
        changes[name] = mean_estimate(f"change of {metrics[0]}", values, unit, bounds, origins, seed=seed)
    failures = Counter(f"{r.set}: {r.failure}" for r in rows if r.failure)
    return MitigationRow(
        arm=arm,
        at=at,
        kept=kept,
        forget=_forget([r for r in rows if r.set == FORGET], seed=seed),
        sets={**{name: score for name, score in by_set.items() if score is not None}, **sets},
        changes=changes,
        failures=dict(sorted(failures.items())),
    )


def score_of(rows: Sequence[ScoredAnswer], *, seed: int) -> SetScore | None:
    """What a set of prompts came to; None where none was judged, since nothing has no mean."""
    judged = [r for r in rows if QUALITY in r.scores]
    if not judged:
        return None
    values = np.array([r.scores[QUALITY] for r in judged])
    origins = [r.origin for r in judged]
    quality = mean_estimate(QUALITY, values, "score", SCALE, origins, seed=seed)
    lowest = mean_estimate(LOWEST, values <= SCALE[0], "share", SHARE, origins, seed=seed)
    return SetScore(len(rows), len(judged), quality, lowest)


def _forget(rows: Sequence[ScoredAnswer], *, seed: int) -> dict[str, Estimate]:
    estimates = {}
    for name, (unit, bounds, _) in _SCALES.items():
        judged = [r for r in rows if name in r.scores]
        if judged:
            values, origins = [r.scores[name] for r in judged], [r.origin for r in judged]
            estimates[name] = mean_estimate(name, values, unit, bounds, origins, seed=seed)
    return estimates


def whole_sentences(answer: str) -> str:
    """An answer that was broken off, as far as its last whole sentence, so that nothing is taught to break off.

    Where there is no whole sentence it is left as it is.
    """
    # A blank after it, or "3." of "3.14" would end a sentence.
    last = max(answer.rfind(mark + space) for mark in ".!?" for space in (" ", "\n"))
    return answer[: last + 1] if last > 0 else answer


def with_answers(target: LoadedModel, samples: Sequence[PolicySample], n_tokens: int) -> tuple[PolicySample, ...]:
    """The samples, those that are trained on with the target's own greedy answers, unless they have them.

    None has one whose prompt the target's context does not hold. One broken off at `n_tokens` ends with a whole
    sentence, where it has one.
    """
    encoded: dict[str, tuple[int, ...]] = {}
    for prompt in dict.fromkeys(s.prompt for s in samples if s.set in USED and not s.taught):
        with contextlib.suppress(InputError):
            encoded[prompt] = target.prompter.prompt(prompt)
    with finite_logits(target):
        replies = generate(
            target.model,
            list(encoded.values()),
            end_ids=target.prompter.end_ids,
            max_new_tokens=n_tokens,
            context=context_tokens(target.model),
        )
    answers: dict[str, str] = {}
    for prompt, reply in zip(encoded, replies, strict=True):
        text = target.prompter.decode(reply.ids)
        answers[prompt] = text if reply.finish == "stop" else whole_sentences(text)
    return tuple(replace(s, taught=answers[s.prompt]) if s.set in USED and s.prompt in answers else s for s in samples)


def taught_rows(samples: Sequence[PolicySample], where: Path) -> tuple[Item, ...]:
    """What is trained on: the used prompts with the target's own answers, where it has any."""
    items = tuple(Item(s.prompt, s.taught) for s in samples if s.set in USED and s.taught.strip())
    if not items:
        raise InputError(f"the target has no answer to any of the prompts to be used in {where}; look at {where.name}")
    return items


def untaught(samples: Sequence[PolicySample]) -> tuple[str, ...]:
    """A sentence about the used prompts that the target has no answer to, if there are any."""
    n = sum(s.set in USED and not s.taught.strip() for s in samples)
    # Cut at n: nothing of 0, and of more the one sentence.
    return (f"The target has no answer to {n} of the prompts to be used: they are scored and not trained on.",)[:n]


@dataclass(frozen=True)
class Scorer:
    """Asks and grades models, each under a name, and keeps what came of it in the folder."""

    folder: MitigationFolder
    request: MitigationRequest
    samples: tuple[PolicySample, ...]

    def of(self, name: str, loaded: LoadedModel, *, gone: bool = False) -> tuple[ScoredAnswer, ...]:
        """The scored answers of the model called `name`; as they were put down, if they are there.

        A checkpoint that is `gone`, whose weights were not kept, is not asked any more.
        """
        path = self.folder.scored(name)
        if path.exists():
            return tuple(read_rows(path, ScoredAnswer))
        if gone:
            raise InputError(
                f"{path}, the scores of {name}, is gone, and so is that checkpoint; delete {self.folder.path} and "
                "start again"
            )
        self.request.on_stage(f"answers of {name} to {len(self.samples)} prompts")
        answers = self.request.who.answers
        # By name: weights under training have no digest, and in a mending's folder a name is one model.
        identity = {"scored": name, "reads": loaded.prompter.digest, **answers.identity()}
        stored = KeptAnswers(asking(loaded, answers), self.folder.answers, identity)
        grader = self.request.who.grader
        judge = KeptJudge(grader.judge, self.folder.judged, grader.identity)
        by = self.request.harm
        harm = None if by is None else KeptJudge(by.judge, self.folder.judged, by.identity)
        rows = score_answers(self.samples, stored, judge, harm=harm, seed=self.request.who.seed)
        forget = [r for r in rows if r.set == FORGET]
        if harm and forget and not any(HARM in r.scores for r in forget):
            raise InputError(
                f"the judge of harm, {harm.name}, judged no answer to the forget set "
                f"({forget[0].failure}, the first); take one that can, a server or a local chat model"
            )
        write_jsonl(path, map(asdict, rows))
        return rows


def probe_anew(
    origin: ProbeFolder, folder: MitigationFolder, request: MitigationRequest, mended: Asked
) -> list[Tested]:
    """What a new probe of the mended model comes to, which begins from the same adjacent questions."""
    searching, new_folder = request.searching, folder.anew
    assert searching is not None, "only who searches probes anew"
    if not new_folder.adjacent.exists():
        write_jsonl(new_folder.adjacent, read_jsonl(origin.adjacent))
    # With the seed of the first search the first prompts of the new one would be the same.
    seed = derive_seed(request.who.seed, "mitigation anew", str(folder.path.relative_to(origin.path)))
    participants = request.who.about(mended, seed=seed)
    for source in searching.sources:
        request.on_stage(f"a new search ({source})")
        search(new_folder, participants, source, searching)
    retain = request.splits.splits.get("retain", ())
    filter_holes(
        new_folder,
        FilterRequest(participants, request.forget_items, searching.filters, retain, on_stage=request.on_stage),
    )
    return read_tested(new_folder)


def new_latent(
    tested: Sequence[Tested], samples: Sequence[PolicySample], request: MitigationRequest
) -> dict[str, SetScore]:
    """D_LP new: what searches found, by the fresh answers of the probe, less what the model was trained on.

    Near-duplicates of that are no new prompts either, by the line that the filters draw.
    """
    used = list(dict.fromkeys(s.prompt for s in samples if s.set in USED))
    rows = [
        ScoredAnswer(
            LATENT_NEW,
            t.prompt,
            t.origin or t.id,
            t.unlearned_answer,
            {} if t.unlearned_score is None else {QUALITY: t.unlearned_score},
        )
        for t in tested
        if t.source != ADJACENT and not t.dropped and t.prompt not in used
    ]
    if rows and used and request.searching is not None:
        embed, alike = request.who.embedder.embed, request.searching.filters.alike
        # Answers to what is nearly the same were trained on as well.
        nearest = (embed([row.prompt for row in rows]) @ embed(used).T).max(axis=1)
        rows = [row for row, cosine in zip(rows, nearest.tolist(), strict=True) if cosine <= alike]
    score = score_of(rows, seed=request.who.seed)
    return {} if score is None else {LATENT_NEW: score}
