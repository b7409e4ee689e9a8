"""The settings of a search for knowledge holes, and the participants that they describe."""

from collections.abc import Callable
from functools import partial
from typing import Any

from vestige.artifacts.layout import ProbeFolder
from vestige.core.settings import Settings
from vestige.data.corpus import Corpus
from vestige.judges.base import Grader
from vestige.judges.spec import judge_spec
from vestige.models.embedder import HUB_ID, load_embedder
from vestige.models.load import ModelSettings
from vestige.probes.answering import AnswerSettings, KnownAnswersJudge, Participants
from vestige.probes.filters import FilterSettings
from vestige.probes.latent import LatentSettings, Searching
from vestige.steps.subjects import Asked
from vestige.training.policy.settings import PolicySettings


class ProbeSettings(Settings):
    """How one probe searches for holes.

    `judge` is a spec (`judges.spec`). With `truth` the judge knows the answers of the data. `embedder` is a
    folder or a hub id, all-MiniLM-L6-v2 by default. `asks` is the model that learns to ask.
    """

    asks: str = "builtin:smollm2"
    asks_dtype: str = "float32"
    judge: str = "grounded"
    truth: bool = False
    embedder: str | None = None
    answers: AnswerSettings = AnswerSettings()
    latent: LatentSettings = LatentSettings()
    policy: PolicySettings = PolicySettings()
    filter: FilterSettings = FilterSettings()

    def check(self) -> None:
        """Reject settings that no probe can use, before a model is loaded.

        Raises:
            InputError: If the lines of `filter` contradict each other, or the judge is unknown.
        """
        judge_spec(self.judge)
        self.filter.check()

    def participants(
        self,
        folder: ProbeFolder,
        *,
        target: Callable[[], Asked],
        unlearned: Callable[[], Asked],
        corpus: Corpus,
        seed: int,
        device: str,
    ) -> Participants:
        """Describe the models and the judge of the probe in `folder`. Each is loaded when it is first used."""

        def grader(who: Participants) -> Grader:
            base = who.graded_by(judge_spec(self.judge), folder.judge, device)
            if not self.truth:
                return base
            known = KnownAnswersJudge(base.judge, (*corpus.items, *corpus.factual))
            identity: dict[str, Any] = {**base.identity, "known_answers": known.digest}
            return Grader(known, identity, base.writer)

        embedder = partial(load_embedder, self.embedder or HUB_ID, device=device)
        return Participants(target, unlearned, grader, embedder, self.answers, seed)

    def searching(self, searches: tuple[str, ...], *, device: str) -> Searching:
        """Return the request for these searches with the model that asks."""
        model = ModelSettings(model=self.asks, dtype=self.asks_dtype, device=device)
        return Searching(searches, model, self.policy, self.latent, self.filter)
