"""`vestige probe mitigate` as a person runs it: a table, what it would take, what is refused."""

import json

import pytest
from tests.judges.faulty_server import serving
from tests.probed import make_probed, verdict
from typer.testing import CliRunner

from vestige.cli.app import app
from vestige.core.errors import InputError

pytestmark = pytest.mark.usefixtures("few_resamples")
SMALL = ("answers.temperature=0.0", "answers.max_tokens=4", "filter.alike=1.0", "mitigation.answer_tokens=4")
FAST = ("training.max_steps=4", "training.lora_rank=0", "training.learning_rate=0.5", "training.schedule=constant")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Models, the finished probe of them in `holes`: three questions, each a hole; and the words for their judge."""
    folder = make_probed(tmp_path_factory.mktemp("probed"))
    with serving(verdict) as log:
        words = folder, ["--judge", f"{log.url}#m"]
        done = run(words, SMALL[:3], "all", *models(folder), "--k", 1, "--searches", "none")
        assert done.exit_code == 0, done.output
        yield words


def models(folder):
    return [folder / "target", folder / "unlearned"]


def run(made, settings, *words):
    folder, judge = made
    data = ["--data", folder / "qa.jsonl", "--forget", folder / "forget.jsonl", "--output-dir", folder / "holes"]
    more = ["--embedder", folder / "embedder", "--device", "cpu", *(w for s in settings for w in ("--set", s))]
    # The last of an option wins.
    return CliRunner().invoke(app, ["probe", *map(str, [words[0], *data, *words[1:], *more, *judge])])


def mitigate(made, *words, settings=(*SMALL, *FAST)):
    return run(made, settings, "mitigate", *models(made[0]), "--searches", "none", *words)


def test_a_mending_prints_its_table_and_is_not_made_twice(made):
    done = mitigate(made, "--way", "gd", "--every", "2 steps")
    assert done.exit_code == 0, done.output
    assert "gd, step 4, kept" in done.stdout
    assert "Of 100 adjacent prompts that were asked for, 2 can be used." in done.stdout
    again = mitigate(made, "--way", "gd", "--every", "2 steps", "--json")
    found = json.loads(again.stdout[again.stdout.index("{") :])
    assert [(r["arm"], r["at"]) for r in found["rows"]] == [("target", 0), ("unlearned", 0), ("gd", 2), ("gd", 4)]
    assert len(list((made[0] / "holes" / "mitigation").iterdir())) == 1


def test_harm_is_a_score_of_any_model_by_itself(made):
    with serving(lambda body: json.dumps({"harmful": "[begin answer" in body["messages"][-1]["content"]})) as log:
        judge = ["--judge", f"{log.url}#m"]
        done = run((made[0], judge), SMALL[:2], "harm", *models(made[0]), "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout[done.stdout.index("{") :])
    scores = {name: (own["harm"]["value"], own["not_judged"]) for name, own in found.items()}
    assert scores == {str(name): (1.0, {}) for name in models(made[0])}
    refused = run((made[0], []), SMALL[:2], "harm", models(made[0])[0])
    assert "--judge grounded cannot say" in str(refused.exception)


def test_an_unlearning_ends_where_a_judge_finds_no_harm_and_its_replies_are_paid_for_once(made, tmp_path):
    out = tmp_path / "out"
    with serving(lambda body: json.dumps({"harmful": False})) as log:
        words = ["--method", "ga", "--data", made[0] / "qa.jsonl", "--forget", made[0] / "forget.jsonl"]
        words += ["--stop-when", "harm<=0", "--harm-judge", f"{log.url}?most_requests=9#m", "--device", "cpu"]
        words += ["--lora-rank", 0, "--epochs", 2]
        words += ["--output-dir", out, "--trajectory.max-new-tokens", 4]
        done = CliRunner().invoke(app, ["unlearn", *map(str, [made[0] / "target", *words])])
        assert done.exit_code == 0, done.output
        assert "harm 0 is at or below 0" in done.stdout
        paid = len(log.paid)
        assert CliRunner().invoke(app, ["unlearn", *map(str, [made[0] / "target", *words])]).exit_code == 0
        assert 0 < paid == len(log.paid)
        assert (out / "train" / "judge" / "replies.jsonl").exists()
        grounded = CliRunner().invoke(
            app, ["unlearn", *map(str, [made[0] / "target", *words, "--harm-judge", "grounded"])]
        )
    assert "--harm-judge grounded cannot say whether an answer is harmful" in str(grounded.exception)


def test_a_mending_asks_as_the_probe_did_unless_told_otherwise(made):
    told = ("mitigation.answer_tokens=4", *FAST)
    done = mitigate(made, "--way", "gd", "--every", "4 steps", settings=told)
    assert done.exit_code == 0, done.output
    asked = [json.loads(p.read_text()) for p in (made[0] / "holes" / "mitigation").glob("*/asked.json")]
    assert {json.dumps(one["identity"]["answers"]) for one in asked} == {'{"temperature": 0.0, "max_tokens": 4}'}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--way", "kll"], "--way kll: did you mean 'kl'"),
        (["--method", "gd"], "--method goes with --way iterative"),
        (["--way", "iterative"], "nothing says how"),
        (["--harm"], "the judge of harm, m, judged no answer to the forget set (unreadable, the first)"),
        (["--set", "mitigation.n_latnt=1"], "unknown key 'mitigation.n_latnt'; did you mean"),
        (["--every", "often"], "'often' is no pace"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(made, words, complaint):
    refused = mitigate(made, *words)
    assert isinstance(refused.exception, InputError)
    assert complaint in str(refused.exception)


def test_what_cannot_be_judged_trained_or_asked_is_refused(made):
    refused = run((made[0], []), SMALL, "mitigate", *models(made[0]), "--harm")
    assert "which --judge grounded cannot say" in str(refused.exception)
    refused = run(made, SMALL, "mitigate", made[0] / "target", made[1][-1])
    assert "mending needs the weights" in str(refused.exception)
    texts = made[0] / "texts.jsonl"
    texts.write_text(json.dumps({"text": "The harbour crane was repaired with copper rivets. " * 20}) + "\n")
    refused = mitigate(made, "--forget", texts)
    assert "holds texts and no questions" in str(refused.exception)
