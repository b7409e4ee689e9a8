"""What is asked of a mending, what identifies it, and what its ways share: the target's answers, scores, probes."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from vestige.artifacts.holes import (
    ADJACENT_USED,
    FORGET,
    HARM,
    LATENT_NEW,
    LATENT_USED,
    QUALITY,
    Sample,
    ScoredAnswer,
    SetScore,
    Tested,
    Way,
    read_scored,
    read_table,
    write_scored,
)
from vestige.artifacts.layout import MitigationFolder, ProbeFolder
from vestige.artifacts.records import read_rows
from vestige.core.errors import InputError
from vestige.core.files import read_jsonl, write_jsonl
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.seeds import derive_seed
from vestige.data.corpus import NamedSplits
from vestige.judges.tasks import TASKS
from vestige.models.embedder import Embedder
from vestige.models.finite import finite_logits
from vestige.models.generation import generate
from vestige.models.load import LoadedModel, ModelSettings, context_tokens
from vestige.probes.answering import AnswerSettings, LocalAnswerer
from vestige.probes.filters import ADJACENT, FilterSettings
from vestige.probes.kept_answers import KeptAnswers
from vestige.probes.kept_judgements import KeptJudge
from vestige.probes.latent import LatentSettings
from vestige.probes.mitigation import MendingSettings, MitigationSettings, whole_sentences
from vestige.probes.mitigation_scores import Graders, score_answers, score_of
from vestige.steps.probe import Asked, FilterRequest, Grader, SearchRequest, filter_holes, search
from vestige.steps.trajectory import TrajectoryRequest
from vestige.training.loop import Progress
from vestige.training.policy.settings import PolicySettings
from vestige.training.settings import UnlearningSettings

VERSION = 2
"""Part of every identity; raised when the same identity would come out as another table or other weights."""
USED = (ADJACENT_USED, LATENT_USED)
"""The sets that are trained on."""


@dataclass(frozen=True)
class TakingPart:
    """A model in memory, and how another of the same weights is loaded: what is trained is never the one in memory."""

    asked: Asked
    settings: ModelSettings


@dataclass(frozen=True)
class Searching:
    """How a mended model is searched for new holes."""

    sources: tuple[str, ...]
    policy: ModelSettings
    policy_settings: PolicySettings
    settings: LatentSettings
    filters: FilterSettings


@dataclass(frozen=True)
class Again:
    """How the target is unlearned anew in each round of an iterative mending, with what it should keep."""

    method: str
    method_settings: dict[str, Any]
    training: UnlearningSettings
    idk: tuple[str, ...]
    trajectory: TrajectoryRequest | None = None


@dataclass(frozen=True)
class MitigationRequest:
    """What is mended, in which way, and who says whether it helped.

    `harm` is the judge of harm, where what is forgotten is harm. `searching` is None where the mended model is not
    searched anew, `again` is there in the iterative way alone, which does without `training`.
    """

    way: Way
    splits: NamedSplits
    target: TakingPart
    unlearned: TakingPart
    answers: AnswerSettings
    grader: Grader
    embedder: Embedder
    embedder_digest: str
    settings: MitigationSettings
    seed: int
    training: MendingSettings = field(default_factory=MendingSettings)
    searching: Searching | None = None
    again: Again | None = None
    harm: Grader | None = None
    on_stage: Callable[[str], None] = field(default=lambda stage: None)
    on_step: Callable[[Progress], None] = field(default=lambda progress: None)

    @property
    def forget_items(self) -> tuple[Item, ...]:
        """What was to be forgotten."""
        return self.splits.splits["forget"]

    def graders(self, folder: MitigationFolder) -> Graders:
        """Who judges quality and harm, with their verdicts kept in the folder."""
        harm = KeptJudge(self.harm.judge, folder.judged, self.harm.identity) if self.harm else None
        return Graders(KeptJudge(self.grader.judge, folder.judged, self.grader.identity), harm)

    def identity(self, tested: Sequence[Tested]) -> dict[str, Any]:
        """Everything that can change the table; `tested` is what the probe came to."""
        return {
            "version": VERSION,
            "way": self.way,
            "target": self.target.asked.id,
            "unlearned": self.unlearned.asked.id,
            "forget": content_id([asdict(i) for i in self.forget_items], length=32),
            # Drawn from in rounds, and what tells the forget set's own names in a new probe.
            "retain": content_id([i.id for i in self.splits.splits.get("retain", ())], length=32),
            "tested": content_id([asdict(t) for t in tested], length=32),
            "settings": self.settings.identity(),
            "answers": self.answers.identity(),
            "judge": dict(self.grader.identity),
            "harm": dict(self.harm.identity) if self.harm else None,
            "tasks": {name: TASKS[name].version for name in ("quality", "harm")},
            "embedder": self.embedder_digest,
            "searching": _searching_identity(self.searching),
            "training": self._training_identity(),
            "seed": self.seed,
        }

    def _training_identity(self) -> dict[str, Any]:
        if self.again is None:
            return self.training.identity()
        again = self.again
        return {
            "method": again.method,
            "method_settings": again.method_settings,
            "training": again.training.identity(),
            "idk": list(again.idk),
            "trajectory": again.trajectory.whole_identity() if again.trajectory else None,
        }


def _searching_identity(searching: Searching | None) -> dict[str, Any] | None:
    if searching is None:
        return None
    settings = {"policy": searching.policy_settings, "latent": searching.settings, "filter": searching.filters}
    model = {"sources": list(searching.sources), "model": searching.policy.model}
    return model | {name: own.identity() for name, own in settings.items()}


def with_answers(target: LoadedModel, samples: Sequence[Sample], n_tokens: int) -> tuple[Sample, ...]:
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
    said: dict[str, str] = {}
    for prompt, reply in zip(encoded, replies, strict=True):
        text = target.prompter.decode(reply.ids)
        said[prompt] = text if reply.finish == "stop" else whole_sentences(text)
    return tuple(replace(s, taught=said[s.prompt]) if s.set in USED and s.prompt in said else s for s in samples)


def taught_rows(samples: Sequence[Sample], where: Path) -> tuple[Item, ...]:
    """What is trained on: the used prompts with the target's own answers, where it has any."""
    items = tuple(Item(s.prompt, s.taught) for s in samples if s.set in USED and s.taught.strip())
    if not items:
        raise InputError(f"the target has no answer to any of the prompts to be used in {where}; look at {where.name}")
    return items


def untaught(samples: Sequence[Sample]) -> tuple[str, ...]:
    """A sentence about the used prompts that the target has no answer to, if there are any."""
    n = sum(s.set in USED and not s.taught.strip() for s in samples)
    return (f"The target has no answer to {n} of the prompts to be used: they are scored and not trained on.",) * (
        n > 0
    )


@dataclass(frozen=True)
class Scorer:
    """Asks and grades models, each under a name, and keeps what came of it in the folder."""

    folder: MitigationFolder
    request: MitigationRequest
    samples: tuple[Sample, ...]

    def of(self, name: str, loaded: LoadedModel, *, gone: bool = False) -> tuple[ScoredAnswer, ...]:
        """The scored answers of the model called `name`; as they were put down, if they are there.

        A checkpoint that is `gone` is not asked any more; `loaded` is then another model that is asked like it.
        """
        kept = read_scored(self.folder, name)
        if kept is not None:
            return kept
        self.request.on_stage(f"answers of {name} to {len(self.samples)} prompts")
        answers = self.request.answers
        identity = {"scored": name, "reads": loaded.prompter.digest, **answers.identity()}
        asked = _Gone(name, self.folder.path) if gone else LocalAnswerer(loaded, answers)
        answerer = KeptAnswers(asked, self.folder.answers, identity)
        rows = score_answers(self.samples, answerer, self.request.graders(self.folder), seed=self.request.seed)
        self._refuse_unjudged_harm(rows)
        write_scored(self.folder, name, rows)
        return rows

    def _refuse_unjudged_harm(self, rows: Sequence[ScoredAnswer]) -> None:
        forget = [r for r in rows if r.set == FORGET]
        if self.request.harm and forget and not any(HARM in r.scores for r in forget):
            raise InputError(
                f"the judge of harm, {self.request.harm.judge.name}, judged no answer to the forget set "
                f"({forget[0].failure}, the first); take one that can, a server or a local chat model"
            )


@dataclass
class _Gone:
    """A checkpoint whose weights were not kept, and which can be asked nothing more."""

    name: str
    folder: Path
    n_calls: int = 0

    def answer(self, prompts: Sequence[str], *, seed: int) -> list[str | None]:
        """No answer, ever."""
        raise InputError(
            f"answers of {self.name} are gone, and so is that checkpoint; delete {self.folder} and begin anew"
        )


def probe_anew(
    origin: ProbeFolder, folder: MitigationFolder, request: MitigationRequest, mended: Asked
) -> list[Tested]:
    """What a new probe of the mended model comes to, which begins from the same adjacent questions."""
    searching, anew = request.searching, folder.anew
    assert searching is not None, "only who searches probes anew"
    if not anew.adjacent.exists():
        write_jsonl(anew.adjacent, read_jsonl(origin.adjacent))
    # With the seed of the first search the first prompts of the new one would be the same.
    seed = derive_seed(request.seed, "mitigation anew", str(folder.path.relative_to(origin.path)))
    for source in searching.sources:
        request.on_stage(f"a new search ({source})")
        asked = SearchRequest(
            source=source,
            policy=searching.policy,
            policy_settings=searching.policy_settings,
            settings=searching.settings,
            unlearned=mended,
            answers=request.answers,
            grader=request.grader,
            embedder=request.embedder,
            seed=seed,
        )
        search(anew, asked)
    filter_holes(
        anew,
        FilterRequest(
            forget=request.forget_items,
            retain=request.splits.splits.get("retain", ()),
            target=request.target.asked,
            unlearned=mended,
            placebos={},
            answers=request.answers,
            grader=request.grader,
            embedder=request.embedder,
            embedder_digest=request.embedder_digest,
            settings=searching.filters,
            seed=seed,
            on_stage=request.on_stage,
        ),
    )
    return list(read_rows(anew.tested, Tested))


def new_latent(tested: Sequence[Tested], samples: Sequence[Sample], request: MitigationRequest) -> dict[str, SetScore]:
    """D_LP new: what searches found, by the fresh answers of the probe, less what the model was trained on.

    Near-duplicates of that are no new prompts either, by the line that the filters draw.
    """
    used = list(dict.fromkeys(s.prompt for s in samples if s.set in USED))
    rows = [
        ScoredAnswer(LATENT_NEW, t.prompt, t.origin or t.id, t.unlearned_answer, _scores(t), "")
        for t in tested
        if t.source != ADJACENT and not t.dropped and t.prompt not in used
    ]
    if rows and used and request.searching is not None:
        embed, alike = request.embedder.embed, request.searching.filters.alike
        nearest = (embed([row.prompt for row in rows]) @ embed(used).T).max(axis=1)
        rows = [row for row, cosine in zip(rows, nearest.tolist(), strict=True) if cosine <= alike]
    found = score_of(rows, seed=request.seed)
    return {} if found is None else {LATENT_NEW: found}


def measured_otherwise(probe: ProbeFolder, request: MitigationRequest) -> list[str]:
    """In what the probe's scores were made otherwise than the mending's, so that they are not to be compared."""
    assert request.searching is not None, "only who searches compares searches"
    _, theirs = read_table(probe)
    ours = {
        "judge": dict(request.grader.identity),
        "answers": request.answers.identity(),
        "settings": request.searching.filters.identity() | {"name_groups": theirs["settings"].get("name_groups")},
    }
    words = {"judge": "judge", "answers": "way to answer", "settings": "filter"}
    return [words[name] for name, value in ours.items() if content_id(theirs[name]) != content_id(value)]


def probed_settings(probe: ProbeFolder) -> tuple[dict[str, Any], dict[str, Any]]:
    """How the finished probe had its models answer, and where its filters drew the line.

    How its groups were named is left out: a mending names none.
    """
    _, theirs = read_table(probe)
    return theirs["answers"], {name: value for name, value in theirs["settings"].items() if name != "name_groups"}


def _scores(tested: Tested) -> dict[str, float]:
    return {} if tested.unlearned_score is None else {QUALITY: tested.unlearned_score}
