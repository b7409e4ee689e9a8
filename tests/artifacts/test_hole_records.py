"""What probing leaves on disk is read as it was written, and what is none of it is refused with its place."""

import json
from dataclasses import asdict, replace

import pytest
from tests.probes.hand_made_holes import Marks, Says, directions

from vestige.artifacts.holes import (
    Attempt,
    HoleCandidate,
    candidates_of,
    read_attempts,
    read_table,
    read_tested,
    write_tested,
)
from vestige.artifacts.layout import ProbeFolder
from vestige.core.errors import InputError
from vestige.core.files import read_jsonl
from vestige.probes.answering import PORTION, KeptAnswers
from vestige.probes.holes import Actors, FilterSettings, filter_candidates, holes_table

FOUND = Attempt("latent-1-0", 1, "latent", "a seed", "Why?", "mmm", True, True, 3, 10.0, "", {"ngram": 0.5}, 9.0)


@pytest.fixture
def folder(tmp_path):
    return ProbeFolder(tmp_path)


def test_attempts_are_read_as_they_were_logged(folder):
    failed = replace(FOUND, id="latent-1-1", valid=None, gibberish=None, c=None, j=None, failure="timeout")
    folder.attempts.write_text("".join(json.dumps(asdict(a)) + "\n" for a in (FOUND, failed)))
    assert read_attempts(folder) == [FOUND, failed]
    assert read_attempts(ProbeFolder(folder.path / "elsewhere")) == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("{}", "record 1: no field 'id', so"), ("[1]", "record 1: "), ('{"id": ', "line 1, column 7: not JSON")],
)
def test_a_line_that_is_no_attempt_is_named(folder, line, complaint):
    folder.attempts.write_text(line + "\n")
    with pytest.raises(InputError, match=complaint):
        read_attempts(folder)


def test_what_had_j_10_are_the_candidates_each_prompt_once_with_what_it_depends_on():
    attempts = [
        replace(FOUND, prompt="b", seed="first"),
        replace(FOUND, prompt="a"),
        replace(FOUND, prompt="b", seed="second"),
        replace(FOUND, prompt="c", j=9.0),
        replace(FOUND, prompt="d", j=None),
    ]
    assert candidates_of(attempts) == [HoleCandidate(p, "latent", "latent, iteration 1") for p in "ba"]
    found = candidates_of(replace(a, source="random") for a in attempts)
    assert [c.origin for c in found] == ["first", "a seed"]


def test_holes_and_table_come_back_and_the_summary_is_there_last(folder):
    answers = {"0": ["8"], "10": ["9"]}
    actors = Actors(Says("t", answers), Says("u", {"0": ["1"], "10": ["9"]}), Marks(), directions)
    settings = FilterSettings()
    filtered = filter_candidates([HoleCandidate(p, "adjacent") for p in answers], ["x"], actors, settings, seed=0)
    table = holes_table(filtered, settings, directions, seed=0)
    write_tested(folder, filtered.tested, table, {"seed": 0})
    (hole,) = read_jsonl(folder.holes)
    assert (hole["prompt"], hole["target_score"], hole["unlearned_answer"]) == ("0", 8, "1")
    assert read_table(folder) == (table, {"seed": 0})
    assert read_tested(folder) == list(filtered.tested)
    written = sorted((p for p in folder.path.iterdir()), key=lambda p: p.stat().st_mtime_ns)
    assert written[-1] == folder.summary
    for path in (folder.tested, folder.holes, folder.summary):
        whole = path.read_text()
        path.write_text(whole.replace("9", "8", 1))
        with pytest.raises(InputError, match=rf"{path.name} is gone or was changed after it was written"):
            read_table(folder)
        path.write_text(whole)


def test_kept_answers_are_not_asked_for_again_and_those_that_never_came_are(folder):
    model = Says("m", {"a": ["1"], "b": [None, "2"], "c": ["3"]})
    kept = KeptAnswers(model, folder.answers, {"weights": "w"})
    assert kept.answer(["a", "b", "a"], seed=5) == ["1", None, "1"]
    assert model.n_calls == 2
    again = KeptAnswers(model, folder.answers, {"weights": "w"})
    assert again.answer(["c", "b", "a"], seed=5) == ["3", "2", "1"]
    assert model.n_calls == 4
    # Another seed, or another model, is another answer.
    for other, seed in (({"weights": "w"}, 6), ({"weights": "v"}, 5)):
        assert KeptAnswers(Says("m", {"a": ["7"]}), folder.answers, other).answer(["a"], seed=seed) == ["7"]


def test_a_kill_costs_at_most_a_portion_of_answers(folder):
    prompts = [str(n) for n in range(PORTION + 3)]

    class Dies(Says):
        def answer(self, prompts, *, seed):
            if self.n_calls:
                raise KeyboardInterrupt
            return super().answer(prompts, seed=seed)

    says = {p: [p] for p in prompts}
    with pytest.raises(KeyboardInterrupt):
        KeptAnswers(Dies("m", says), folder.answers, {}).answer(prompts, seed=0)
    (path,) = folder.answers.iterdir()
    with path.open("a") as torn:
        torn.write('{"prompt": "66", "ans')
    model = Says("m", says)
    assert KeptAnswers(model, folder.answers, {}).answer(prompts, seed=0) == prompts
    assert model.n_calls == 3
