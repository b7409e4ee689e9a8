"""What probing would take at most, before anything is asked: calls of the models, requests to the judge, tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vestige.judges.base import Request
from vestige.judges.spending import Limits, estimated_tokens
from vestige.judges.tasks import TASKS, prompts_of
from vestige.metrics.grouping import MOST_GROUPS
from vestige.probes.filters import FilterSettings
from vestige.probes.naming import LABEL_CHARACTERS, label_prompt, place_prompt

# English text in the common tokenisers, as in `judges.spending`.
_CHARACTERS_PER_TOKEN = 4


class Size(NamedTuple):
    """How much there is to probe: prompts that may be holes, attempts of all searches, placebos beside the target."""

    n_candidates: int
    n_attempts: int
    n_placebos: int


@dataclass(frozen=True)
class ProbeForecast:
    """Bounds: what the filters drop early is asked less. Requests are by task; `most_cost` is None without prices."""

    target_calls: int
    unlearned_calls: int
    placebo_calls: int
    judge_requests: Mapping[str, int]
    judge_prompt_tokens: int
    judge_most_completion_tokens: int
    most_cost: float | None


def forecast_probe(
    size: Size,
    example: str,
    texts: Sequence[str],
    settings: FilterSettings,
    *,
    answer_tokens: int,
    limits: Limits,
) -> ProbeForecast:
    """What it takes to search and to test: `example` is a prompt, `texts` are those of the forget set.

    Every attempt is reckoned as a candidate. Tokens are estimates for a judge that is a language model; one that is
    grounded in the target has none.
    """
    n = size.n_candidates + size.n_attempts
    held_against = len(texts) if settings.nearest_texts is None else min(len(texts), settings.nearest_texts)
    requests = {
        "reward": size.n_attempts,
        "validity": n,
        "overlap": n * held_against,
        "quality": n * (4 + size.n_placebos),
    }
    answer = "x" * (_CHARACTERS_PER_TOKEN * answer_tokens)
    middle = sorted(texts, key=len)[len(texts) // 2]
    each = {
        task: prompts_of([Request(task, example, answer, reference=answer, sample=middle)])[0]
        for task, times in requests.items()
        if times
    }
    prompt_tokens = sum(requests[t] * estimated_tokens(p.system + p.user) for t, p in each.items())
    completion_tokens = sum(requests[t] * TASKS[t].max_tokens for t in each)
    if settings.name_groups == "writer":
        asked = [(1, label_prompt([example] * n)), (n, place_prompt(["x" * LABEL_CHARACTERS] * MOST_GROUPS, example))]
        requests["naming"] = n + 1
        prompt_tokens += sum(times * estimated_tokens(p.system + p.user) for times, p in asked)
        completion_tokens += sum(times * p.max_tokens for times, p in asked)
    return ProbeForecast(
        target_calls=3 * n,
        unlearned_calls=size.n_attempts + n,
        placebo_calls=size.n_placebos * n,
        judge_requests=requests,
        judge_prompt_tokens=prompt_tokens,
        judge_most_completion_tokens=completion_tokens,
        most_cost=limits.cost(prompt_tokens, completion_tokens),
    )
