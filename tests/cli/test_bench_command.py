"""`vestige bench` as a person runs it: MT-bench with a server and by likeness, tasks where the harness is there."""

import json
from importlib.util import find_spec

import pytest
from tests.judges.faulty_server import serving
from tests.probed import make_probed
from typer.testing import CliRunner

from vestige.artifacts.bench import BenchFolder, read_bench
from vestige.cli.app import app
from vestige.core.errors import InputError

pytestmark = pytest.mark.usefixtures("few_resamples")


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    folder = make_probed(tmp_path_factory.mktemp("benched"))
    (folder / "mt/reference_answer").mkdir(parents=True)
    asked = [
        {"question_id": n, "category": c, "turns": ["Who tunes the organ?", "Why?"]}
        for n, c in enumerate(["writing", "math", "math"])
    ]
    (folder / "mt/question.jsonl").write_text("".join(json.dumps(r) + "\n" for r in asked))
    references = [{"question_id": n, "choices": [{"turns": ["A clockmaker.", "He can."]}]} for n in (1, 2)]
    (folder / "mt/reference_answer/gpt-4.jsonl").write_text("".join(json.dumps(r) + "\n" for r in references))
    return folder


def bench(folder, *words):
    shared = ["--output-dir", folder, "--device", "cpu", "--max-new-tokens", "4"]
    done = CliRunner().invoke(app, ["bench", *map(str, [*words, *shared])])
    if isinstance(done.exception, InputError):
        raise done.exception
    return done


@pytest.mark.slow
def test_mt_bench_with_a_server_is_paid_once_and_shown_with_the_difference(probed, tmp_path):
    def rated(body):
        return "[[3]]" if "second answer" in body["messages"][-1]["content"] else "[[8]]"

    models = [probed / "target", probed / "unlearned"]
    with serving(rated) as log:
        judge = ["--judge", "server", "--judge-url", log.url, "--judge-model", "m", "--set", "judge.concurrency=2"]
        done = bench(tmp_path, *models, "--mt-bench", probed / "mt", *judge)
        assert done.exit_code == 0, done.output
        # Two models, two turns of two different conversations: the second of math is the first again.
        assert len(log.paid) == len(set(log.paid)) == 8
        again = bench(tmp_path, *models, "--mt-bench", probed / "mt", *judge, "--json")
        bench(tmp_path, *models, "--mt-bench", probed / "mt", *judge, "--questions", 1)
    assert len(log.paid) == 8
    results = {(r["model"], r["metric"]): r for r in json.loads(again.stdout)["results"]}
    assert results["target", "score"]["value"]["value"] == 5.5
    assert results["target", "score"]["n"] == 6
    assert results["unlearned", "score/turn 1"]["value"]["value"] == 8
    assert results["unlearned", "score/math"]["difference"]["value"] == 0
    assert "mt_bench, score, 6" in done.stdout
    # The table is that of the last command: one conversation of each category.
    assert read_bench(BenchFolder(tmp_path))[0].n == 4


def test_by_likeness_a_silent_model_has_lost_everything(probed, tmp_path):
    models = [probed / "target", probed / "unlearned"]
    done = bench(tmp_path, *models, "--mt-bench", probed / "mt", "--embedder", probed / "embedder")
    assert done.exit_code == 0, done.output
    results = read_bench(BenchFolder(tmp_path))
    assert {(r.model, r.value.value) for r in results} == {("unlearned", 1.0)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["http://h/v1#m", "--tasks", "arc_easy"], "http://h/v1#m is behind an address, and tasks of lm-evaluation"),
        (["m", "--mt-bench", "mt"], "MT-bench needs two models with it"),
        (["m", "m", "--tasks", "mmlu"], "a model is given twice"),
        (["m", "--set", "latent.n_iterations=2"], "unknown key 'latent.n_iterations'"),
        (["m"], "nothing is asked for"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, words, message):
    with pytest.raises(InputError, match=message):
        bench(tmp_path, *words)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm_eval is not installed")
def test_tasks_from_files_side_by_side(probed, tmp_path):
    rows = [{"question": f"Where is {n}?", "choices": ["Tarn", "slate", "a", "b"], "answer": n % 4} for n in range(6)]
    path = tmp_path / "mmlu_anatomy.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    words = ["--tasks", "mmlu_anatomy", "--task-data", f"mmlu_anatomy={path}", "--questions", 5]
    done = bench(tmp_path / "out", probed / "target", probed / "unlearned", *words)
    assert done.exit_code == 0, done.output
    first, second = read_bench(BenchFolder(tmp_path / "out"))
    assert (first.task, first.metric, first.n, first.model) == ("mmlu_anatomy", "acc", 5, "target")
    assert second.difference.n == 5
    assert "mmlu_anatomy, acc, 5" in done.stdout
