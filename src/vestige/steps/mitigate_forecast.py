"""What a mending would take at most, before anything is loaded: steps, prompts to models, requests to the judge."""

from dataclasses import dataclass
from typing import NamedTuple

from vestige.artifacts.holes import FORGET, LATENT_USED
from vestige.artifacts.layout import ProbeFolder
from vestige.data.corpus import NamedSplits
from vestige.judges.base import Request
from vestige.judges.spending import Limits, estimated_tokens
from vestige.judges.tasks import TASKS, prompts_of
from vestige.probes.filters import ADJACENT
from vestige.probes.mitigation import MendingSettings, MitigationSettings
from vestige.steps.mitigate import picked_in, tested_in
from vestige.steps.mitigate_once import rules
from vestige.steps.mitigate_request import USED, Searching
from vestige.steps.probe import candidates_in, forget_texts
from vestige.steps.probe_forecast import ProbeForecast, Size, forecast_probe
from vestige.training.schedules import total_steps
from vestige.training.settings import TrainingSettings
from vestige.training.trajectory import parse_every

# English text in the common tokenisers, as in `judges.spending`.
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class MitigationPlan:
    """What is asked for, as far as its size goes. In the iterative way a training has the forget set's rows."""

    settings: MitigationSettings
    training: TrainingSettings
    searching: Searching | None
    iterative: bool
    harm: bool
    answer_tokens: int
    limits: Limits
    seed: int


@dataclass(frozen=True)
class MitigationForecast:
    """Bounds: what the filters drop early is asked less. `used` prompts of the probe are trained on.

    Requests are by task; tokens are for a judge that is a language model, `most_cost` is None without prices.
    """

    used: int
    scored_prompts: int
    trainings: int
    steps: int
    target_calls: int
    mended_calls: int
    judge_requests: dict[str, int]
    judge_prompt_tokens: int
    judge_most_completion_tokens: int
    most_cost: float | None


def forecast_mitigation(folder: ProbeFolder, splits: NamedSplits, plan: MitigationPlan) -> MitigationForecast:
    """What the mending of the probe in the folder takes at most."""
    forget, settings = splits.splits["forget"], plan.settings
    samples = picked_in(folder, forget, settings, tested_in(folder), seed=plan.seed).samples
    n, used = len(samples), sum(s.set in USED for s in samples)
    trainings = settings.rounds if plan.iterative else 1
    steps, looks = _steps_and_looks(plan, len(forget) if plan.iterative else used)
    # In a round the latent prompts are others, as many as are asked for at most; the last model answers them too.
    latent = 2 * settings.n_latent if plan.iterative else 0
    same = n - sum(s.set == LATENT_USED for s in samples) if plan.iterative else n
    mended = n + trainings * looks * (same + latent)
    forgotten = (2 + trainings * looks) * sum(s.set == FORGET for s in samples) if plan.harm else 0
    found = _Judged({"quality": n + mended - forgotten, "harm": forgotten}, 0, 0)
    found = found.with_tokens(samples[0].prompt, plan.answer_tokens)
    # The target's own answers that are trained on, and those that are scored.
    target = used + n + trainings * latent // 2
    if plan.searching is not None:
        anew = _anew(folder, splits, plan.searching, plan)
        target += trainings * anew.target_calls
        mended += trainings * anew.unlearned_calls
        found = found.and_those(anew, trainings)
    return MitigationForecast(
        used=used,
        scored_prompts=n,
        trainings=trainings,
        steps=trainings * steps,
        target_calls=target,
        mended_calls=mended,
        judge_requests={task: times for task, times in found.requests.items() if times},
        judge_prompt_tokens=found.prompt_tokens,
        judge_most_completion_tokens=found.completion_tokens,
        most_cost=plan.limits.cost(found.prompt_tokens, found.completion_tokens),
    )


class _Judged(NamedTuple):
    """Requests to the judge by task, and their tokens."""

    requests: dict[str, int]
    prompt_tokens: int
    completion_tokens: int

    def with_tokens(self, example: str, answer_tokens: int) -> "_Judged":
        answer = "x" * (_CHARACTERS_PER_TOKEN * answer_tokens)
        each = {task: prompts_of([Request(task, example, answer)])[0] for task in self.requests}
        prompt_tokens = sum(self.requests[t] * estimated_tokens(p.system + p.user) for t, p in each.items())
        completion_tokens = sum(times * TASKS[task].max_tokens for task, times in self.requests.items())
        return _Judged(self.requests, prompt_tokens, completion_tokens)

    def and_those(self, anew: ProbeForecast, times: int) -> "_Judged":
        tasks = dict.fromkeys((*self.requests, *anew.judge_requests))
        return _Judged(
            {t: self.requests.get(t, 0) + times * anew.judge_requests.get(t, 0) for t in tasks},
            self.prompt_tokens + times * anew.judge_prompt_tokens,
            self.completion_tokens + times * anew.judge_most_completion_tokens,
        )


def _steps_and_looks(plan: MitigationPlan, n_rows: int) -> tuple[int, int]:
    """Steps of one training, and how often the model is scored in it: in a round once, at its end."""
    training = plan.training.over(n_rows) if isinstance(plan.training, MendingSettings) else plan.training
    per_epoch = -(-n_rows // training.batch_size)
    steps = total_steps(training, steps_per_epoch=per_epoch)
    every = parse_every(rules(plan.settings).every)
    return steps, 1 if plan.iterative else -(-steps // (every.n if every.in_steps else every.n * per_epoch))


def _anew(folder: ProbeFolder, splits: NamedSplits, searching: Searching, plan: MitigationPlan) -> ProbeForecast:
    """One new probe: the adjacent questions again, and each search."""
    candidates = [c for c in candidates_in(folder) if c.source == ADJACENT]
    attempts = len(searching.sources) * searching.settings.n_iterations * searching.policy_settings.n_rollouts
    texts = forget_texts(splits.splits["forget"])
    size, example = Size(len(candidates), attempts, 0), splits.splits["forget"][0].question
    limits, tokens = plan.limits, plan.answer_tokens
    return forecast_probe(size, example, texts, searching.filters, answer_tokens=tokens, limits=limits)
