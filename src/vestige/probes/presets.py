"""The Knowledge Holes paper's experiments as data (2511.00030): each value with who says it.

The paper publishes part of its settings. A value is `PAPER`'s, or that of the released code or paper named beside it,
or ours. Rates are for AdamW, lengths of training in epochs of the forget set or in steps, sizes in rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from vestige.core.errors import InputError
from vestige.core.settings import closest
from vestige.data.harmful import SAFE_RLHF
from vestige.data.passages import BIO_CORPUS
from vestige.data.wikitext import CONFIG, SPLIT
from vestige.data.wikitext import HUB as WIKITEXT

PAPER, OURS = "2511.00030", "ours"
LLMU_CODE, RMU_PAPER, CURIOSITY, NPO_PAPER = "2310.10683, code", "2403.03218", "2402.19464, code", "2404.05868"
"""Who says a value that the Holes paper does not: LLMU's, RMU's, Curiosity's and NPO's authors."""


class Stated(NamedTuple):
    """A value and who says it."""

    value: Any
    by: str = PAPER


Section = Mapping[str, Stated]


@dataclass(frozen=True)
class HolePreset:
    """One unlearned model of the paper: what is forgotten and kept, how, and how its holes are looked for.

    `forget`, `retain` name the data; `unlearning`, `trajectory`, `adjacent`, `retain_adjacent`, `policy`, `latent`
    and `filters` are settings of those names. A `checkpoint` among the models is an unlearned one that was released.
    """

    name: str
    method: str
    models: Section
    forget: Section
    retain: Section
    method_settings: Section
    unlearning: Section
    trajectory: Section
    adjacent: Section
    retain_adjacent: Section
    policy: Section
    latent: Section
    filters: Section
    mitigation: Section

    def sections(self) -> dict[str, Section]:
        """All sections by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Mapping)}

    def values(self, section: str) -> dict[str, Any]:
        """A section's values, for the `build` of its settings."""
        return {name: stated.value for name, stated in self.sections()[section].items()}

    def not_the_papers(self) -> dict[str, str]:
        """What the paper does not say, as `section.name`, with who does."""
        return {
            f"{section}.{name}": stated.by
            for section, values in self.sections().items()
            for name, stated in values.items()
            if stated.by != PAPER
        }


_MISTRAL: Section = {
    "target": Stated("mistralai/Mistral-7B-Instruct-v0.1"),
    "policy": Stated("meta-llama/Llama-2-7b-hf"),
    "judge": Stated("gpt-4o-mini"),
    "harm_judge": Stated("gpt-4o"),
    "benchmark_judge": Stated("gpt-4"),
    "embedder": Stated("sentence-transformers/all-MiniLM-L6-v2"),
}
_ZEPHYR: Section = {
    **_MISTRAL,
    # The paper says Zephyr-7B, and the checkpoint that RMU's authors released of it.
    "target": Stated("HuggingFaceH4/zephyr-7b-beta", RMU_PAPER),
    "checkpoint": Stated("cais/Zephyr_RMU", RMU_PAPER),
}
# The topics are the paper's words, "drug abuse, weapons, and banned substances": the name of a category of
# BeaverTails, by the same authors, which PKU-SafeRLHF does not have. So none is chosen.
_HARMFUL: Section = {
    "source": Stated(SAFE_RLHF),
    "n": Stated(50),
    "categories": Stated((), OURS),
}
_BIO: Section = {"source": Stated(BIO_CORPUS, RMU_PAPER), "n": Stated(200)}
_TRUTHFULQA: Section = {
    "source": Stated("truthfulqa/truthful_qa"),
    "config": Stated("multiple_choice", OURS),
    "split": Stated("validation", OURS),
    "n": Stated(817),
    "as_they_are": Stated(True),
}
_WIKITEXT: Section = {
    "source": Stated(WIKITEXT),
    "config": Stated(CONFIG, RMU_PAPER),
    "split": Stated(SPLIT, RMU_PAPER),
    "n": Stated(400),
    "as_they_are": Stated(False),
}
_LORA: Section = {
    "lora_rank": Stated(32),
    "lora_alpha": Stated(16),
    "lora_dropout": Stated(0.0, LLMU_CODE),
    "lora_targets": Stated(("q_proj", "v_proj"), LLMU_CODE),
}
_THOUSAND_STEPS: Section = {
    **_LORA,
    "learning_rate": Stated(5e-5),
    "batch_size": Stated(2),
    "max_steps": Stated(1000),
    # 50 samples in batches of 2 are 25 steps an epoch.
    "epochs": Stated(40),
    "schedule": Stated("linear", LLMU_CODE),
    "warmup_steps": Stated(0, LLMU_CODE),
    "weight_decay": Stated(0.01, LLMU_CODE),
}
# "a termination criterion of maximum loss threshold at 100": taken for nats a token, whatever the sign of the loss.
_STOPS: Section = {"stop_when": Stated(("forget_nll>=100",))}
_TEN_EPOCHS: Section = {
    **_LORA,
    "learning_rate": Stated(1e-6),
    "epochs": Stated(10),
    "batch_size": Stated(2, OURS),
    "schedule": Stated("linear", OURS),
    "warmup_epochs": Stated(1.0, OURS),
    "weight_decay": Stated(0.01, NPO_PAPER),
}
_RMU: Section = {
    "learning_rate": Stated(5e-5, RMU_PAPER),
    "batch_size": Stated(4, RMU_PAPER),
    "max_steps": Stated(150, RMU_PAPER),
    # 200 samples in batches of 4 are 50 steps an epoch.
    "epochs": Stated(3, OURS),
    "schedule": Stated("constant", RMU_PAPER),
    "warmup_steps": Stated(0, RMU_PAPER),
    "lora_rank": Stated(0, RMU_PAPER),
}
_POLICY: Section = {
    "estimator": Stated("ppo"),
    "n_rollouts": Stated(128),
    "n_tokens": Stated(20, CURIOSITY),
    "temperature": Stated(0.7, CURIOSITY),
    "top_p": Stated(0.92, CURIOSITY),
    "epochs": Stated(4, CURIOSITY),
    "learning_rate": Stated(3e-5, CURIOSITY),
    "kl_coef": Stated(0.001, OURS),
    "entropy_coef": Stated(0.01, OURS),
    "lora_rank": Stated(32, CURIOSITY),
    "lora_alpha": Stated(16, CURIOSITY),
}
# 1 in the words of Curiosity, whose reward ends at 1; J ends at 10.
_LATENT: Section = {
    "n_iterations": Stated(50),
    "n_examples": Stated(3, CURIOSITY),
    "ngram_coef": Stated(10.0, OURS),
    "semantic_coef": Stated(10.0, OURS),
    "clip": Stated(10.0, CURIOSITY),
}
_FILTERS: Section = {
    "alike": Stated(0.8),
    "step": Stated(25, OURS),
    "target_at_least": Stated(7.0, OURS),
    "unlearned_at_most": Stated(3.0, OURS),
}
_MITIGATION: Section = {
    "latent": Stated(600),
    "adjacent": Stated(100),
    "retain": Stated(117),
    "rounds": Stated(3),
    "one_shot_step": Stated(800),
}


def _of_safe_rlhf(name: str, method_settings: Section, unlearning: Section, trajectory: Section) -> HolePreset:
    return HolePreset(
        name,
        name,
        models=_MISTRAL,
        forget=_HARMFUL,
        retain=_TRUTHFULQA,
        method_settings=method_settings,
        unlearning=unlearning,
        trajectory=trajectory,
        adjacent={"k": Stated(4)},
        retain_adjacent={},
        policy=_POLICY,
        latent=_LATENT,
        filters=_FILTERS,
        mitigation=_MITIGATION,
    )


PRESETS: Mapping[str, HolePreset] = {
    "llmu": _of_safe_rlhf(
        "llmu",
        {
            "forget_weight": Stated(1.0),
            "kl_weight": Stated(1.0),
            "mismatch_weight": Stated(1.0, LLMU_CODE),
        },
        _THOUSAND_STEPS,
        _STOPS,
    ),
    "gakl": _of_safe_rlhf("gakl", {"kl_weight": Stated(1.0)}, _THOUSAND_STEPS, _STOPS),
    "npo_gd": _of_safe_rlhf(
        "npo_gd",
        {"beta": Stated(0.1, NPO_PAPER), "retain_weight": Stated(1.0, NPO_PAPER)},
        _TEN_EPOCHS,
        {},
    ),
    "rmu": HolePreset(
        "rmu",
        "rmu",
        models=_ZEPHYR,
        forget=_BIO,
        retain=_WIKITEXT,
        method_settings={
            "steering": Stated(6.5, RMU_PAPER),
            "alpha": Stated(1200.0, RMU_PAPER),
            "layer": Stated(7, RMU_PAPER),
            "update_layers": Stated((5, 6, 7), RMU_PAPER),
        },
        unlearning=_RMU,
        trajectory={},
        adjacent={"k": Stated(5)},
        retain_adjacent={"k": Stated(2)},
        policy=_POLICY,
        latent=_LATENT,
        filters=_FILTERS,
        mitigation={},
    ),
}
"""The four unlearned models of the paper's Table 1."""


def find_preset(name: str) -> HolePreset:
    """The preset of that name."""
    if name not in PRESETS:
        raise InputError(f"no preset {name!r}; {closest(name, list(PRESETS))}")
    return PRESETS[name]
