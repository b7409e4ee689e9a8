"""Who takes part in the probes of a study of holes: models, embedder, and judges with what they are told."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from vestige.artifacts.hole_study import HoleStudyFolder
from vestige.artifacts.layout import ProbeFolder
from vestige.data.corpus import Corpus, NamedSplits, named_splits, open_corpus
from vestige.study.hole_study_models import made_corpus
from vestige.study.hole_study_request import POLICY, TARGET, HoleStudySettings

if TYPE_CHECKING:
    from vestige.models.embedder import Embedder
    from vestige.models.load import ModelSettings
    from vestige.probes.answering import Grader
    from vestige.probes.holes import FilterRequest
    from vestige.probes.latent import SearchRequest
    from vestige.steps.subjects import Asked
    from vestige.study.runner import Report


def model_of(place: HoleStudyFolder, settings: HoleStudySettings, name: str) -> "ModelSettings":
    """How the model called `name` is read: one that the study made, or the one that was named."""
    from vestige.models.load import ModelSettings

    models = settings.models
    if models is None:
        return ModelSettings(model=str(place.model(name).path), device=settings.device)
    named = {TARGET: models.target, POLICY: models.policy, **models.unlearned}
    named |= settings.checkpoints.models if settings.checkpoints else {}
    named |= settings.variance.models if settings.variance else {}
    return ModelSettings(model=named[name], device=settings.device)


def corpus_of(place: HoleStudyFolder, settings: HoleStudySettings) -> Corpus:
    """The data of the study; compiled before, where the study makes its own."""
    return open_corpus(settings.data) if settings.data else made_corpus(place)


def splits_of(corpus: Corpus, settings: HoleStudySettings) -> NamedSplits:
    """What is forgotten and what is kept."""
    return named_splits(corpus, settings.forget, retain=settings.retain)


@dataclass(frozen=True)
class Cast:
    """Everybody who takes part in the probe in `folder`, each loaded when first wanted."""

    place: HoleStudyFolder
    folder: ProbeFolder
    settings: HoleStudySettings
    unlearned_name: str
    seed: int

    @cached_property
    def corpus(self) -> Corpus:
        """The data."""
        return corpus_of(self.place, self.settings)

    @cached_property
    def splits(self) -> NamedSplits:
        """What is forgotten and what is kept."""
        return splits_of(self.corpus, self.settings)

    @cached_property
    def target(self) -> "Asked":
        """The model that knows."""
        return self.asked(TARGET)

    @cached_property
    def unlearned(self) -> "Asked":
        """The model that forgot."""
        return self.asked(self.unlearned_name)

    def asked(self, name: str) -> "Asked":
        """A model of the study, loaded."""
        from vestige.steps.subjects import asked_model

        return asked_model(model_of(self.place, self.settings, name))

    @cached_property
    def embedder(self) -> "Embedder":
        """Who embeds prompts and answers."""
        from vestige.models.embedder import HUB_ID, load_embedder

        return load_embedder(self.settings.judge.embedder or HUB_ID, device=self.settings.device)

    @cached_property
    def embedder_digest(self) -> str:
        """The digest of the embedder."""
        return self.embedder.digest

    @cached_property
    def grader(self) -> "Grader":
        """The judge of the study."""
        from vestige.probes.answering import Grader
        from vestige.study.hole_study_judge import KnownAnswersJudge

        plain = self.plain_grader
        if not self.settings.judge.truth:
            return plain
        judge = KnownAnswersJudge(plain.judge, (*self.corpus.items, *self.corpus.factual))
        return Grader(judge, {**plain.identity, "known_answers": judge.digest}, plain.writer)

    @cached_property
    def plain_grader(self) -> "Grader":
        """The same judge, told no answers of the data."""
        from vestige.judges.grounded import GroundedJudge
        from vestige.probes.answering import Grader

        if self.settings.judge.kind != "grounded":
            return _language_model(self.settings, self.folder)
        grounded = GroundedJudge(self.target.loaded, self.embedder)
        identity = {"judge": "grounded", "target": self.target.id, "embedder": self.embedder_digest}
        return Grader(grounded, {**identity, **grounded.identity()})

    def search_request(self, report: "Report") -> "SearchRequest":
        """The latent search."""
        from vestige.probes.latent import LATENT, SearchRequest

        settings = self.settings
        return SearchRequest(
            source=LATENT,
            policy=model_of(self.place, settings, POLICY),
            policy_settings=settings.policy,
            settings=settings.latent,
            unlearned=self.unlearned,
            answers=settings.answers,
            grader=self.grader,
            embedder=self.embedder,
            seed=self.seed,
            on_iteration=lambda done: report(0.8 * done.number / settings.latent.n_iterations),
        )

    def filter_request(self) -> "FilterRequest":
        """The test of what was found."""
        from vestige.probes.holes import FilterRequest

        return FilterRequest(
            forget=self.splits.splits["forget"],
            retain=self.splits.splits["retain"],
            target=self.target,
            unlearned=self.unlearned,
            placebos={},
            answers=self.settings.answers,
            grader=self.grader,
            embedder=self.embedder,
            embedder_digest=self.embedder_digest,
            settings=self.settings.filter,
            seed=self.seed,
        )


def _language_model(settings: HoleStudySettings, folder: ProbeFolder) -> "Grader":
    """A judge that is a language model, here or on a server; what a server was paid for lies in the probe's folder."""
    from vestige.judges.local import LocalWriter
    from vestige.judges.server import ServerSettings, ServerWriter
    from vestige.judges.spending import Limits
    from vestige.judges.tasks import PromptedJudge
    from vestige.models.load import ModelSettings
    from vestige.probes.answering import Grader
    from vestige.steps.subjects import asked_model

    asked = settings.judge
    if asked.kind == "local":
        local = asked_model(ModelSettings(model=str(asked.model), device=settings.device))
        here = LocalWriter(local.loaded)
        return Grader(PromptedJudge(here), {"judge": "local", "model": local.id}, here)
    server = ServerSettings.build({"url": asked.url, "model": asked.model}, where="[judge]")
    writer = ServerWriter(server, folder.judge, Limits())
    return Grader(PromptedJudge(writer), server.judge_identity(), writer)
