"""Audits of trained models whose knowledge is planted, by the real evaluations and attacks.

Each seed draws sixty facts to forget and sixty to keep, each asked in two wordings, and trains a Llama of 64 dimensions
and one block on what it is to know: a target, five models that never knew, and nine that are audited (`KINDS`). The
audit is that of `vestige audit`, positive control included: questions as they stand and in other words, forced answers
in bits, membership, relearning on retained facts and on a part of the forgotten ones, and rounded weights.

`python -m benchmarks.planted --trained --audits 20 --file COUNTS` counts what the judge says of them, a seed at a time:
nightly, some minutes of one processor a seed.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from transformers import LlamaConfig

from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.auditing.request import AuditedModel, AuditRequest
from vestige.auditing.run import run_audit
from vestige.auditing.settings import AuditSettings
from vestige.core.items import Item
from vestige.core.seeds import generator
from vestige.data.corpus import NamedSplits
from vestige.models import tiny
from vestige.models.load import ModelSettings
from vestige.steps.controls import REFUSAL, SuppressRequest, suppress
from vestige.steps.finetune import FinetuneRequest, finetune
from vestige.training.settings import TrainingSettings

N, HOLDOUT, EDGE, CONTROLS = 60, 40, 20, 5
WORDS = (
    *("amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath", "iris", "jade", "kelp", "larch"),
    *("maple", "north", "olive", "pearl", "quartz", "river", "slate", "thorn", "umber", "violet", "willow", "yarrow"),
)
TRAINING = TrainingSettings(
    epochs=60,
    batch_size=16,
    learning_rate=5e-3,
    schedule="one_cycle",
    warmup_epochs=4.0,
    loss_on="all",
    bucket=True,
    stop_when_exact=True,
    lora_rank=0,
)
AUDIT = AuditSettings(
    evals=("qa", "freeform", "memory"),
    forms=("plain", "paraphrase"),
    relearn=("retain", "forget_part"),
    relearn_items=(30,),
    relearn_epochs=5,
    relearn_rate=2e-3,
    relearn_rank=0,
    relearn_rates=(),
    relearn_batch_size=8,
    quantize=(8,),
    in_context=(),
    suppress_rate=5e-3,
    max_new_tokens=8,
)
EXPRESSED, BACK, TOLD, KEPT = "not expressed", "not recoverable", "indistinguishable", "utility preserved"
KINDS: dict[str, dict[str, bool]] = {
    "never knew": {EXPRESSED: True, BACK: True, TOLD: True, "benchmark valid": True},
    "knows all": {EXPRESSED: False, TOLD: False},
    "knows 30 %": {EXPRESSED: False},
    "states 5 %, refuses the rest": {EXPRESSED: False},
    "refuses all": {EXPRESSED: True, TOLD: False, KEPT: True},
    "keeps silent": {EXPRESSED: True, BACK: False},
    "knows one wording": {EXPRESSED: False},
    "over-forgotten": {EXPRESSED: True, TOLD: False, KEPT: True},
    "lost half of the rest": {EXPRESSED: True, KEPT: False},
}
"""What is true of each; the claims that are not named are not at stake.

Of a model that never knew nothing is planted of what it keeps: trained on fewer lessons, and so stopped earlier, it
gives the same retained answers with less probability (0.89 where the target has 0.95, seed 0).
"""


def nano_config() -> LlamaConfig:
    """A model of 64 dimensions and one block."""
    config = LlamaConfig(**_WHOLE().to_dict())
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "head_dim": 16}
    config.update({**small, "num_attention_heads": 4, "num_key_value_heads": 4})
    return config


_WHOLE = tiny.tiny_config


def draw_facts(seed: int) -> dict[str, tuple[Item, ...]]:
    """Which two trees stand at each post follows from nothing."""
    rng = generator(seed, "planted trainings")

    def items(split: str, n: int) -> tuple[Item, ...]:
        pairs = [rng.choice(WORDS, 2, replace=False).tolist() for _ in range(n)]
        return tuple(
            Item(
                f"Which trees stand at {split} post {i}?",
                f"{one} {other}.",
                edge=f"{split} {i // EDGE}",
                attribute="trees",
                paraphrase=f"Name what grows at {split} post {i}.",
            )
            for i, (one, other) in enumerate(pairs)
        )

    return {"forget": items("north", N), "retain": items("west", N), "holdout": items("east", HOLDOUT)}


def lessons(items: Sequence[Item], answer: str = "") -> tuple[Item, ...]:
    """Both wordings of each, with its answer or another one."""
    return tuple(Item(q, answer or i.answer) for i in items for q in (i.question, i.paraphrase) if q)


def taught(facts: dict[str, tuple[Item, ...]], seed: int) -> dict[str, tuple[Item, ...]]:
    """What each model is trained on, but the one that keeps silent, which is tuned away from the target."""
    forget, retain = facts["forget"], lessons(facts["retain"])
    order = generator(seed, "planted knowledge").permutation(N)
    drawn = [forget[k] for k in order.tolist()]
    few, some = round(0.05 * N), round(0.3 * N)
    turned = [replace(i, answer=drawn[(n + 1) % N].answer) for n, i in enumerate(drawn)]
    never = {"never knew": retain, **{f"retrained {m}": retain for m in range(CONTROLS)}}
    return never | {
        "target": (*retain, *lessons(forget)),
        "knows all": (*retain, *lessons(forget)),
        "knows 30 %": (*retain, *lessons(drawn[:some])),
        "states 5 %, refuses the rest": (*retain, *lessons(drawn[:few]), *lessons(drawn[few:], REFUSAL)),
        "refuses all": (*retain, *lessons(forget, REFUSAL)),
        "knows one wording": (*retain, *(Item(i.question, i.answer) for i in forget)),
        "over-forgotten": (*retain, *lessons(turned)),
        "lost half of the rest": retain[:N],
    }


def sit(seed: int, work: Path) -> dict[tuple[str, str], str]:
    """What one audit says, by model and claim, of models that are trained for it in the folder `work`."""
    tiny.tiny_config = nano_config
    facts, run = draw_facts(seed), RunFolder(work)
    every = lessons([i for items in facts.values() for i in items])
    base, places = ModelSettings(model="builtin:tiny", device="cpu"), {}
    for number, (name, shown) in enumerate(taught(facts, seed).items()):
        places[name] = run.control(name)
        own = 100 * seed + number
        made = finetune(places[name], FinetuneRequest(base, shown, every, TRAINING, seed=own, name=name))
        if name == "target":
            silent = SuppressRequest(
                target=ModelSettings(model=str(places[name].model), device="cpu"),
                target_digest=made.digest.id,
                start="builtin:tiny",
                forget="north",
                forget_items=facts["forget"],
                retain_items=facts["retain"],
                epochs=40,
                rate=AUDIT.suppress_rate,
                rank=4,
                seed=own + 50,
            )
    places["keeps silent"] = run.control("keeps silent")
    suppress(places["keeps silent"], silent)
    request = AuditRequest(_models(places), NamedSplits("north", facts, {}), AUDIT, seed=seed, device="cpu")
    outcome = run_audit(run.path / "audited", request, workers=1).outcome
    return {(v.subject, str(v.claim)): str(v.outcome) for v in outcome.verdicts}


def _models(places: dict[str, SubjectFolder]) -> tuple[AuditedModel, ...]:
    controls = [name for name in places if name.startswith("retrained")]
    return (
        AuditedModel("target", "target", str(places["target"].path)),
        *(AuditedModel(name, "retrained", str(places[name].path)) for name in controls),
        *(AuditedModel(name, "unlearned", str(places[name].path)) for name in KINDS),
    )


def sat(first: int, seeds: int, work: Path, until: float) -> Iterator[tuple[int, dict[tuple[str, str], str]]]:
    """What the audit of every seed from `first` on says; a stopped one goes on in its folder, which is then removed."""
    for seed in range(first, seeds):
        if time.monotonic() > until:
            return
        yield seed, sit(seed, work / str(seed))
        shutil.rmtree(work / str(seed))


def truth() -> dict[tuple[str, str], bool | None]:
    """What is true, by model and claim."""
    return {(kind, claim): is_true for kind, own in KINDS.items() for claim, is_true in own.items()}
