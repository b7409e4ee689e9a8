"""Results of lm-evaluation-harness as Table 1 takes them in."""

import json
from pathlib import Path
from typing import Any

import pytest

from vestige.core.errors import InputError
from vestige.studies.lm_eval import read_benchmarks, scores_of


def harness_file(folder: Path, name: str, model: Any, date: float, **tasks: dict[str, Any]) -> Path:
    """What `lm_eval --output_path` writes, as far as it is read."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"results_{name}.json"
    path.write_text(json.dumps({"results": tasks, "config": {"model_args": model}, "date": date}))
    return path


def arc(value: float) -> dict[str, Any]:
    return {"alias": "arc_easy", "acc,none": value, "acc_stderr,none": 0.05, "acc_norm,none": 0.5}


def test_the_newest_numbers_of_a_models_own_folder_are_taken(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    text = f"pretrained={model},dtype=float32"
    harness_file(tmp_path / "out" / "a", "2026-01-02", {"pretrained": str(model)}, 200.0, arc_easy=arc(0.5))
    harness_file(tmp_path / "out" / "b", "2026-01-01", text, 100.0, arc_easy=arc(0.3), mmlu={"acc,none": 0.25})
    harness_file(tmp_path / "out" / "c", "2026-01-03", "pretrained=org/name", 300.0, arc_easy=arc(0.9))
    scores = read_benchmarks(tmp_path / "out")
    # 0.5 +- 1.96 * 0.05; without a standard error there is no interval.
    expected = scores_of(scores, str(model), finished=50.0)
    assert expected["arc_easy, acc"].ends() == pytest.approx((0.402, 0.598), abs=1e-5)
    assert {name: score.value for name, score in expected.items()} == {
        "arc_easy, acc": 0.5,
        "arc_easy, acc_norm": 0.5,
        "mmlu, acc": 0.25,
    }
    assert expected["mmlu, acc"].ends() == ("", "")
    link = tmp_path / "link"
    link.symlink_to(model)
    assert scores_of(scores, link, finished=None) == expected
    assert scores_of(scores, "org/name", finished=None)["arc_easy, acc"].value == 0.9
    assert scores_of(scores, tmp_path / "other", finished=None) == {}


def test_a_result_that_is_older_than_the_model_is_refused(tmp_path):
    harness_file(tmp_path / "out", "1", f"pretrained={tmp_path}", 100.0, arc_easy=arc(0.5))
    with pytest.raises(InputError, match=r"results_1\.json is older than .*, so it is of another model"):
        scores_of(read_benchmarks(tmp_path / "out"), tmp_path, finished=101.0)


@pytest.mark.parametrize("text", ["[]", "{}", '{"results": {}, "config": {"model_args": "dtype=float32"}, "date": 1}'])
def test_a_file_of_another_form_is_refused_by_name(tmp_path, text):
    (tmp_path / "results_1.json").write_text(text)
    with pytest.raises(InputError, match=r"results_1\.json is not what lm-evaluation-harness writes"):
        read_benchmarks(tmp_path)


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no results_\*\.json of lm-evaluation-harness"):
        read_benchmarks(tmp_path)
