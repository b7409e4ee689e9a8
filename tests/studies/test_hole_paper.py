"""The paper's settings: each section builds, and what the paper does not publish says so."""

import pytest

from vestige.core.errors import InputError
from vestige.data.passages import BIO_CORPUS
from vestige.data.probe_sources import SAFE_RLHF
from vestige.data.probe_sources import WIKITEXT_CONFIG as CONFIG
from vestige.data.probe_sources import WIKITEXT_HUB as HUB
from vestige.data.probe_sources import WIKITEXT_SPLIT as SPLIT
from vestige.methods import build_method
from vestige.probes.filters import FilterSettings
from vestige.probes.latent import LatentSettings
from vestige.probes.questions import AdjacentSettings
from vestige.studies.hole_study_settings import find_preset, presets
from vestige.training.policy.settings import PolicySettings
from vestige.training.settings import UnlearningSettings
from vestige.training.trajectory import TrajectorySettings


@pytest.mark.parametrize("name", list(presets()))
def test_every_section_builds_its_settings(name):
    own = {part: {k: v for k, v in values.items() if k != "by"} for part, values in find_preset(name).items()}
    build_method(name, own["method_settings"])
    UnlearningSettings.build(own["unlearning"])
    TrajectorySettings.build(own.get("trajectory", {}))
    AdjacentSettings.build(own["adjacent"])
    AdjacentSettings.build(own.get("retain_adjacent", {}))
    PolicySettings.build(own["policy"])
    LatentSettings.build(own["latent"])
    FilterSettings.build(own["filters"]).check()


def test_the_numbers_are_those_of_appendix_a_and_section_4():
    llmu, npo, rmu = (find_preset(name) for name in ("llmu", "npo_gd", "rmu"))
    # 4 keywords of 50 samples are 200 questions, 5 of 200 are 1,000, 2 of 400 Wikitext entries are 800.
    assert llmu["adjacent"]["k"] * llmu["forget"]["n"] == 200
    assert rmu["adjacent"]["k"] * rmu["forget"]["n"] == 1000
    assert rmu["retain_adjacent"]["k"] * rmu["retain"]["n"] == 800
    # 50 epochs of 128 episodes are 6,400 attempts; 600 + 100 + 117 are as many as TruthfulQA's 817.
    assert llmu["latent"]["n_iterations"] * llmu["policy"]["n_rollouts"] == 6400
    mended = llmu["mitigation"]
    assert mended["latent"] + mended["adjacent"] + mended["retain"] == llmu["retain"]["n"] == 817
    training = llmu["unlearning"]
    assert (training["learning_rate"], training["batch_size"], training["max_steps"]) == (5e-5, 2, 1000)
    assert training["epochs"] * llmu["forget"]["n"] == training["max_steps"] * training["batch_size"]
    assert (npo["unlearning"]["learning_rate"], npo["unlearning"]["epochs"]) == (1e-6, 10)
    assert find_preset("gakl")["unlearning"] == training


def test_what_the_paper_does_not_publish_names_who_says_it():
    missing = {part: values.get("by", {}) for part, values in find_preset("llmu").items()}
    # Table 5's values are not public.
    assert (missing["policy"]["ours"], missing["latent"]["ours"]) == (
        ["kl_coef", "entropy_coef"],
        ["ngram_coef", "semantic_coef"],
    )
    assert "learning_rate" in missing["policy"]["2402.19464, code"]
    assert not any("learning_rate" in names for names in missing["unlearning"].values())
    for preset in presets().values():
        for values in preset.values():
            assert values.keys() > {name for names in values.get("by", {}).values() for name in names}


def test_the_data_are_those_that_are_read_here():
    llmu, rmu = find_preset("llmu"), find_preset("rmu")
    assert (llmu["forget"]["source"], rmu["forget"]["source"]) == (SAFE_RLHF, BIO_CORPUS)
    kept = rmu["retain"]
    assert (kept["source"], kept["config"], kept["split"]) == (HUB, CONFIG, SPLIT)


def test_an_unknown_preset_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'rmu'"):
        find_preset("rmu2")
