"""What a person can set of an audit: margins, which formats and attacks, and how much of each."""

from typing import Literal, get_args

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from vestige.data.mcq import MOST_OPTIONS
from vestige.metrics.misjudged import LeakJudgeSettings
from vestige.metrics.verdicts import Thresholds

Evals = Literal["qa", "choices", "reversed", "freeform", "memory", "acr", "exposure"]
Form = Literal["plain", "paraphrase", "few_shot", "prefilled", "sampled", "cloze"]
Material = Literal["retain", "related", "unrelated", "forget_part", "forget"]
MemberScore = Literal["loss", "min_k", "min_k_plus", "zlib", "reference"]


class AuditSettings(Thresholds, LeakJudgeSettings):
    """Margins (`metrics.verdicts.Thresholds`), the evaluations that are asked, and the attacks that are run.

    `relearn` names what models are tuned on again, `relearn_items` how many items of each (as many as there are, where
    they are fewer); `relearn_epochs`, `relearn_rate`, `relearn_rank`, `relearn_alpha` and `relearn_batch_size` are
    those of the paper (2506.00688: LoRA of rank 128, 2e-4, 3 epochs, alpha 16, batches of 1); a rank of 0 trains all
    weights. `relearn_rates` and `relearn_ranks` are tried besides: of all runs and epochs the best counts, chosen on
    facts that it is not judged by (`audit.searched`). `forms` are those of the evaluation `freeform`, prefilled and
    sampled answers among them. `quantize` are bits of a weight, `in_context` numbers of retain items shown before the
    question.

    `gcg` and `prefix` are numbers of forget items for which a prompt is searched by gradient, none of which is tested:
    a suffix that is to bring their answers, and a prefix that is to bring what the target says of them. They are off by
    default, since each takes thousands of passes on every model. `prompt_tokens`, `prompt_steps` and
    `prompt_candidates` (tried at each step) are those of both searches; where they are not set, each has its own.

    `suppress` makes a positive control (`steps.suppress`), on which each attack has to show that it could have found
    anything: an adapter of `suppress_rank`, tuned at `suppress_rate` for at most `suppress_epochs`.

    Of each split that is not to be forgotten at most `kept_items` are asked or shown, drawn by the seed, and by
    `memory`, which reads every wrong answer of an item, at most `memory_items`; `gradient_norm` adds that score, at a
    backward pass an item, and `membership` are the scores of it by which a model may be told. `acr`, which searches for
    prompts of each item, is asked of `acr_items` forget items: with fewer than 8 the format cannot be admitted,
    whatever is found. `exposure` ranks the true answers among at most `alternatives` others, after attacks only where
    no retrained model is given; more tell single facts apart.

    `wordings` says how questions are told that ask for one fact, which counts once: by `words`, by words and the
    sentence embedder in a folder (or a hub id), or not at all (`off`).

    `options` is how many answers a multiple-choice question offers: with more, fewer are guessed, so that trainings
    that never knew differ less.

    Who tells leaks, if not words, is set as in `freeform` (`metrics.misjudged.LeakJudgeSettings`).
    """

    evals: tuple[Evals, ...] = ("qa", "choices", "freeform", "memory", "exposure")
    forms: tuple[Form, ...] = ("plain", "paraphrase", "few_shot", "prefilled", "sampled", "cloze")
    relearn: tuple[Material, ...] = ("retain", "related", "unrelated", "forget_part", "forget")
    relearn_items: tuple[PositiveInt, ...] = (50,)
    relearn_epochs: PositiveInt = 3
    relearn_rate: PositiveFloat = 2e-4
    relearn_rank: int = Field(default=128, ge=0)
    relearn_rates: tuple[PositiveFloat, ...] = (1e-3,)
    relearn_ranks: tuple[NonNegativeInt, ...] = ()
    relearn_alpha: PositiveInt = 16
    relearn_batch_size: PositiveInt = 1
    quantize: tuple[Literal[4, 8], ...] = (8, 4)
    in_context: tuple[PositiveInt, ...] = (8,)
    gcg: tuple[PositiveInt, ...] = ()
    prefix: tuple[PositiveInt, ...] = ()
    prompt_tokens: PositiveInt | None = None
    prompt_steps: PositiveInt | None = None
    prompt_candidates: PositiveInt | None = None
    suppress: bool = True
    suppress_epochs: PositiveInt = 20
    suppress_rate: PositiveFloat = 5e-4
    suppress_rank: PositiveInt = 8
    max_new_tokens: PositiveInt = 64
    kept_items: PositiveInt = 400
    memory_items: PositiveInt = 100
    acr_items: PositiveInt = 8
    alternatives: PositiveInt = 99
    wordings: str = "words"
    options: int = Field(default=4, ge=2, le=MOST_OPTIONS)
    membership: tuple[MemberScore, ...] = get_args(MemberScore)
    gradient_norm: bool = False
