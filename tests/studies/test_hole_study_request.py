"""What a study of holes may be asked for, and what is refused before anything is made."""

import pytest

from vestige.core.errors import InputError
from vestige.studies.hole_study_settings import TABLES, refuse_sections_missing, study_named, tables_named

OWN = """
forget = "forget.jsonl"
[data]
data = "qa.jsonl"
[models]
target = "target"
policy = "builtin:smollm2"
[models.unlearned]
npo = "cells/npo"
"""


def named(tmp_path, text):
    path = tmp_path / "own.toml"
    path.write_text(text)
    return study_named(str(path))


def test_a_study_of_own_models_is_a_toml_file(tmp_path):
    found = named(tmp_path, OWN + '[checkpoints]\nruns = 2\n[checkpoints.models]\n"step 100" = "early"\n')
    assert (found.unlearned, found.steps(), found.runs) == (("npo",), ("step 100",), 2)


def test_an_ablation_changes_one_setting_at_a_time(tmp_path):
    asked = OWN + '[ablation]\nof = "npo"\n[ablation.variants]\n"policy.n_rollouts" = [4, 8]\n"latent.clip" = [5]\n'
    found = named(tmp_path, asked)
    assert [v.name for v in found.variants()] == ["policy.n_rollouts=4", "policy.n_rollouts=8", "latent.clip=5"]
    rollouts = [found.varied(v).policy.n_rollouts for v in found.variants()]
    assert (rollouts, found.policy.n_rollouts) == ([4, 8, 128], 128)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("\nbogus = 1\n", "unknown key 'bogus'"),
        ('[ablation]\nof = "npi"\n[ablation.variants]\n"policy.clip" = [0.1]\n', "no unlearned model 'npi'"),
        ('[ablation]\nof = "npo"\n[ablation.variants]\n"policy.klcoef" = [1]\n', "did you mean 'kl_coef'"),
        ('[ablation]\nof = "npo"\n[ablation.variants]\n"filter.alike" = [1]\n', "name policy.KEY or latent.KEY"),
        ('[ablation]\nof = "npo"\n[ablation.variants]\n"policy.clip" = [7]\n', "must be less than 1"),
        ('[judge]\nkind = "server"\n', "needs a model"),
        ('[judge]\nkind = "server"\nmodel = "m"\n', "needs a url"),
        ('[variance]\nof = "npo"\nseeds = [1]\n', "seeds are for a study with"),
        ("[filter]\nunlearned_at_most = 8\n", "must be below target_at_least"),
        ('[filter]\nname_groups = "writer"\n', "[filter]: filter.name_groups=writer needs a language model"),
        # A model of such a name would have been taken for the target.
        ('target = "cells/gd"\n', "two models of the study are called 'target'"),
        ('[checkpoints.models]\nnpo = "early"\n', "two models of the study are called 'npo'"),
        ('[variance]\nof = "npo"\n[variance.models]\nnpo = "again"\n', "two models of the study are called 'npo'"),
    ],
)
def test_what_does_not_go_together_is_refused_by_its_name(tmp_path, more, said):
    text = more.strip() + OWN if more.startswith("\n") else OWN + more
    with pytest.raises(InputError, match=said.replace("[", r"\[")):
        named(tmp_path, text)


def test_a_study_needs_models_or_a_way_to_make_them_and_not_both(tmp_path):
    with pytest.raises(InputError, match="give the one or the other"):
        named(tmp_path, 'forget = "forget.jsonl"\n')
    with pytest.raises(InputError, match=r"did you mean 'sample1'"):
        study_named("sample_1")


def test_tables_are_named_by_the_papers_numbers_in_its_order():
    assert (tables_named("10, 1,1"), tables_named(None)) == ((1, 10), TABLES)
    with pytest.raises(InputError, match="--only 5: no such table"):
        tables_named("1,5")
    with pytest.raises(InputError, match="names no table"):
        tables_named(",")


def test_where_the_embedder_lies_is_no_part_of_what_is_asked():
    found = study_named("sample1")
    other = found.model_copy(update={"judge": found.judge.model_copy(update={"embedder": "/x"}), "device": "cuda"})
    assert other.what_is_asked() == found.what_is_asked()
    assert found.model_copy(update={"seed": 1}).what_is_asked() != found.what_is_asked()


def test_a_table_that_is_asked_for_by_its_number_needs_its_section(tmp_path):
    found = named(tmp_path, OWN + '[checkpoints.models]\n"step 100" = "early"\n')
    for words in (None, "1,2", "7"):
        refuse_sections_missing(found, words)
    for number, section in ((3, "mitigation"), (4, "mitigation"), (6, "variance"), (10, "ablation")):
        with pytest.raises(InputError, match=rf"table {number} needs a section \[{section}\]"):
            refuse_sections_missing(found, f"1,{number}")
