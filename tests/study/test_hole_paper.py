"""The paper's settings: each section builds, and what the paper does not publish says so."""

import pytest

from vestige.core.errors import InputError
from vestige.data.harmful import SAFE_RLHF
from vestige.data.passages import BIO_CORPUS
from vestige.data.wikitext import CONFIG, HUB, SPLIT
from vestige.methods import build_method
from vestige.probes.filters import FilterSettings
from vestige.probes.latent import LatentSettings
from vestige.probes.questions import AdjacentSettings
from vestige.study.hole_paper import find_preset, presets
from vestige.training.policy.settings import PolicySettings
from vestige.training.settings import UnlearningSettings
from vestige.training.trajectory import TrajectorySettings


@pytest.mark.parametrize("name", list(presets()))
def test_every_section_builds_its_settings(name):
    preset = find_preset(name)
    build_method(preset.method, preset.values("method_settings"))
    UnlearningSettings.build(preset.values("unlearning"))
    TrajectorySettings.build(preset.values("trajectory"))
    AdjacentSettings.build(preset.values("adjacent"))
    AdjacentSettings.build(preset.values("retain_adjacent"))
    PolicySettings.build(preset.values("policy"))
    LatentSettings.build(preset.values("latent"))
    FilterSettings.build(preset.values("filters")).check()


def test_the_numbers_are_those_of_appendix_a_and_section_4():
    llmu, npo, rmu = (find_preset(name) for name in ("llmu", "npo_gd", "rmu"))
    # 4 keywords of 50 samples are 200 questions, 5 of 200 are 1,000, 2 of 400 Wikitext entries are 800.
    assert llmu.values("adjacent")["k"] * llmu.values("forget")["n"] == 200
    assert rmu.values("adjacent")["k"] * rmu.values("forget")["n"] == 1000
    assert rmu.values("retain_adjacent")["k"] * rmu.values("retain")["n"] == 800
    # 50 epochs of 128 episodes are 6,400 attempts; 600 + 100 + 117 are as many as TruthfulQA's 817.
    assert llmu.values("latent")["n_iterations"] * llmu.values("policy")["n_rollouts"] == 6400
    mended = llmu.values("mitigation")
    assert mended["latent"] + mended["adjacent"] + mended["retain"] == llmu.values("retain")["n"] == 817
    training = llmu.values("unlearning")
    assert (training["learning_rate"], training["batch_size"], training["max_steps"]) == (5e-5, 2, 1000)
    assert training["epochs"] * llmu.values("forget")["n"] == training["max_steps"] * training["batch_size"]
    assert (npo.values("unlearning")["learning_rate"], npo.values("unlearning")["epochs"]) == (1e-6, 10)
    assert find_preset("gakl").values("unlearning") == training


def test_what_the_paper_does_not_publish_names_who_says_it():
    missing = find_preset("llmu").by
    # Table 5's values are not public.
    for name in ("policy.kl_coef", "policy.entropy_coef", "latent.ngram_coef", "latent.semantic_coef"):
        assert missing[name] == "ours"
    assert missing["policy.learning_rate"] == "2402.19464, code"
    assert "unlearning.learning_rate" not in missing
    for preset in presets().values():
        stated = {f"{part}.{name}" for part, values in preset.sections.items() for name in values}
        assert preset.by.keys() < stated


def test_the_data_are_those_that_are_read_here():
    llmu, rmu = find_preset("llmu"), find_preset("rmu")
    assert (llmu.values("forget")["source"], rmu.values("forget")["source"]) == (SAFE_RLHF, BIO_CORPUS)
    kept = rmu.values("retain")
    assert (kept["source"], kept["config"], kept["split"]) == (HUB, CONFIG, SPLIT)


def test_an_unknown_preset_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'rmu'"):
        find_preset("rmu2")
