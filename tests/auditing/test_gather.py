"""From files to scores: keys, sources, ids, and the bits that were carried."""

import json
from dataclasses import replace

import pytest

from vestige.artifacts.audits import (
    AskedPlace,
    AttackPlace,
    AuditPlan,
    Carried,
    FactLine,
    PlannedAttack,
    PromptLine,
    Soundness,
    SoundnessLine,
)
from vestige.artifacts.layout import AttackFolder, EvalFolder, RunFolder
from vestige.artifacts.records import KeptPrompt, SampleReply, write_collected, write_scores
from vestige.artifacts.scores import Source
from vestige.auditing.gather import QA_FORCED, freeform_attacks, read_answers, with_replies, with_soundness
from vestige.auditing.ground import Case
from vestige.core.errors import InputError
from vestige.core.files import write_json, write_jsonl
from vestige.core.store import SCHEMA, save, write_sealed
from vestige.evals.qa import QASettings


def scores(run: RunFolder, path: str, rows: dict[str, dict[str, float]], records=()) -> None:
    place = EvalFolder(run.path / path)
    write_jsonl(place.records, records)
    write_collected(place, len(records))
    write_scores(place, ({"item": i, **values} for i, values in rows.items()))


def plan(evaluations=(), attacked=(), attacks=()) -> AuditPlan:
    return AuditPlan(
        forget="edge:A_B",
        target="target",
        unlearned=("ga",),
        retrained=(),
        folders={},
        splits={"forget": ("a", "b")},
        edges={},
        scopes={},
        attacks=attacks,
        settings={},
        seed=0,
        evaluations=evaluations,
        attacked=attacked,
    )


def read_case(run, asked) -> Case:
    return Case(*read_answers(run, with_soundness(run, asked)))


@pytest.fixture
def run(tmp_path) -> RunFolder:
    return RunFolder(tmp_path)


def test_values_stand_under_their_format_and_those_of_qa_get_one(run):
    scores(run, "q", {"a": {"exact_match": 1.0, "answer_bits": -2.0}, "b": {"exact_match": 0.0, "answer_bits": -3.0}})
    scores(run, "c", {"a": {"choose/accuracy": 1.0}, "b": {}})
    case = read_case(run, plan((AskedPlace("ga", "", "", "qa", "q"), AskedPlace("ga", "", "", "choices", "c"))))
    assert case.scores.values == {
        Source("ga"): {
            "generate/exact_match": {"a": 1.0, "b": 0.0},
            "forced/answer_bits": {"a": -2.0, "b": -3.0},
            # An item that could not be asked has no value, and not 0.
            "choose/accuracy": {"a": 1.0},
        }
    }


def test_an_evaluation_that_scores_what_another_scores_is_refused(run):
    for path, value in (("q", 1.0), ("copy", 0.0)):
        scores(run, path, {"a": {"exact_match": value}})
    asked = (AskedPlace("ga", "", "", "qa", "q"), AskedPlace("ga", "", "", "other", "copy"))
    with pytest.raises(InputError, match="qa and other both score generate/exact_match of the same item"):
        read_case(run, plan(asked))


def test_who_told_leaks_is_said_with_the_error(run):
    scores(run, "f", {"a": {"generate_plain/leaked": 0.0}})
    place = (AskedPlace("ga", "", "", "freeform", "f"),)
    assert read_case(run, plan(())).plan.told_by == ""
    for answer, long in (("Amber Prize", False), ("It won the Amber Prize in 1993.", True)):
        write_jsonl(EvalFolder(run.path / "f").records, [{"item": "a", "answer": answer}])
        assert ("words saw 40.5 %" in read_case(run, plan(place)).plan.told_by) == long
    error = {"missed": 2, "true": 20, "alarms": 1, "false": 29}
    write_jsonl(EvalFolder(run.path / "f").records, [{"item": "a", "judge": {"name": "local", "error": error}}])
    write_collected(EvalFolder(run.path / "f"), 1)
    write_scores(EvalFolder(run.path / "f"), [{"item": "a", "generate_plain/leaked": 0.0}])
    said = read_case(run, plan(place)).plan.told_by
    assert "by the judge local, which misses 2 of 20 leaks and sees 1 in 29 replies without one" in said
    # 18 of 20 less 1 in 29.
    assert said.endswith("an excess of such shares reads 0.87 of its size.")


def test_qa_is_split_into_formats_as_qa_itself_splits_it():
    record = {"reply": "x", "answer": "x", "logp": [-1.0], "ranks": [1.0], "finish": "end"}
    for metric in QASettings.score(record):
        assert (QASettings.measure(metric).format == "forced") == (metric in QA_FORCED), metric


def test_help_in_freeform_becomes_an_attack_that_is_compared_with_the_plain_reply(run):
    plain = {"generate_plain/leaked": 0.0, "generate_prefilled/leaked": 1.0}
    given = {"generate_prefilled/given_bits": 3.0, "sampled/leak_at_1": 0.25, "sampled/leak_at_4": 0.75}
    scores(run, "f", {"a": {**plain, **given}, "b": {"generate_plain/leaked": 0.0, "sampled/leak_at_4": 0.5}})
    attacks = freeform_attacks(prefilled=1, leaks=(1, 4), samples=4, tested=("a", "b"))
    # No item of any split is shown for them.
    assert [(a.material, a.n_shown) for a in attacks] == [("nothing", 0)] * 2
    case = read_case(run, plan((AskedPlace("ga", "", "", "freeform", "f"),), attacks=attacks))
    match = "generate_plain/leaked"
    assert case.scores.values[Source("ga")] == {match: {"a": 0.0, "b": 0.0}}
    prefilled = {match: {"a": 1.0}, "generate_plain/given_bits": {"a": 3.0}}
    assert case.scores.values[Source("ga", "prefill", "given")] == prefilled
    assert case.scores.values[Source("ga", "sampling", "k=1")] == {match: {"a": 0.25}}
    assert case.scores.values[Source("ga", "sampling", "k=4")] == {match: {"a": 0.75, "b": 0.5}}
    # Three bits were put into the reply; to be told which of 4 replies is right is 2 bits, of each of two items.
    assert case.plan.carried["prefill"]["ga"] == Carried({"code length of the tokens given": 3.0}, {"items": 1})
    assert case.plan.carried["sampling"]["ga"] == Carried({"choice among the replies": 4.0}, {"replies": 8})
    # The target was not asked, so nothing is said of it.
    assert "target" not in case.plan.carried["prefill"]


def test_without_samples_or_prefilled_answers_there_are_no_such_attacks():
    assert freeform_attacks(prefilled=None, leaks=(), samples=10, tested=("a",)) == ()
    (only,) = freeform_attacks(prefilled=None, leaks=(1, 2), samples=2, tested=("a",))
    assert (only.kind, only.points, only.shows_answers) == ("sampling", ("k=1", "k=2"), False)


def test_items_asked_in_other_words_stand_under_the_items_they_stand_for(run):
    attack = PlannedAttack("in_context n=1", "in_context", "retain", 1, ("given",), ("a",), False, {})
    place = AttackFolder(run.path / "x")
    write_json(place.asked, {"a with facts": "a"})
    write_sealed(place.done, {"bounds_bits": {"tokens": 11.0}, "spent": {"tokens_shown": 1}})
    scores(run, "x/e", {"a with facts": {"exact_match": 1.0, "generate_prefilled/leaked": 1.0}})
    asked = (AskedPlace("ga", attack.name, "given", "qa", "x/e"),)
    case = read_case(run, plan(asked, (AttackPlace("ga", attack.name, "x"),), (attack,)))
    # What prefilling adds to an attack is no attack that was planned.
    assert case.scores.values == {Source("ga", attack.name, "given"): {"generate/exact_match": {"a": 1.0}}}
    assert case.plan.carried == {attack.name: {"ga": Carried({"tokens": 11.0}, {"tokens_shown": 1})}}
    write_json(place.asked, {"a with facts": {"id": "a"}})
    with pytest.raises(InputError, match=r"asked\.json: a with facts: .*Run the audit again"):
        read_case(run, plan(asked, (AttackPlace("ga", attack.name, "x"),), (attack,)))


def test_scores_that_are_gone_are_named(run):
    with pytest.raises(
        InputError,
        match=r"gone/scores\.jsonl is gone or was changed after it was written. .* run the command that made it again",
    ):
        read_case(run, plan((AskedPlace("ga", "", "", "qa", "gone"),)))


def test_an_attack_that_does_not_say_what_it_carried_is_refused(run):
    write_sealed(AttackFolder(run.path / "x").done, {"bounds_bits": [], "spent": {}})
    with pytest.raises(InputError, match="lacks the capacity of the attack 'a'"):
        read_case(run, plan(attacked=(AttackPlace("ga", "a", "x"),)))


def test_a_found_prompt_comes_with_what_became_of_the_replies_it_was_searched_for(run):
    place = AttackFolder(run.path / "x")
    write_sealed(place.done, {"bounds_bits": {"tokens": 11.0}, "spent": {}})
    # Verified, given without it: brought, given anyway, lost, neither.
    both = [(True, False), (True, True), (False, True), (False, False)]
    samples = tuple(SampleReply("Which?", "oak", "elm", with_it, True, "ash", without) for with_it, without in both)
    ended = {"claimed": True, "verified": False, "ended": "steps", "steps": 3, "loss": 0.5, "admissible_bits": 6.0}
    costs = {"spent": {}, "seen_bits": None, "bounds_bits": {}, "points": {}}
    save(place.prompt, KeptPrompt("a <b>", (1, 2, 3), "suffix", samples=samples, **ended, **costs))
    case = read_case(run, plan(attacked=(AttackPlace("ga", "gcg n=4", "x"),)))
    assert case.plan.prompts == (PromptLine("ga", "gcg n=4", "suffix", "a <b>", 3, True, 4, 2, 2, 1),)


def test_what_is_known_of_the_data_comes_with_the_case(run):
    asked = replace(plan(), data="d")
    assert read_case(run, asked).plan.soundness == ()
    line = SoundnessLine("copied items", False, None, 0.01, "3 of 20 are copies")
    save(run.soundness, Soundness("edge:A_B", (line,), {}, "d"))
    assert read_case(run, asked).plan.soundness == (line,)
    # What leaks and is set apart decides nothing of what is judged.
    entailed = SoundnessLine("entailed answers", False, None, None, "1 of 3 answers is stated by retained contracts.")
    apart = replace(asked, scopes={asked.splits["forget"][0]: "entailed"})
    for leaking, sound in ((asked.splits["forget"][:1], True), (asked.splits["forget"][:2], False)):
        known = Soundness("edge:A_B", (entailed,), {}, "d", leaking={"entailed answers": leaking})
        save(run.soundness, known)
        assert [one.sound for one in read_case(run, apart).plan.soundness] == [sound]
    # A forget set of the same name with other items is another one.
    assert read_case(run, replace(asked, data="e")).plan.soundness == ()
    run.soundness.write_text(json.dumps({"schema": SCHEMA, "lines": "none"}))
    with pytest.raises(InputError, match="check-data again"):
        read_case(run, asked)


def test_a_fact_is_told_with_the_wording_and_the_reply_that_give_it(run):
    def record(item, question, **said):
        return {"item": item, "question": question, "answer": "Rome", **said}

    def collected(path, row):
        write_jsonl(EvalFolder(run.path / path).records, [row])
        write_collected(EvalFolder(run.path / path), 1)

    collected("q", record("a", "Where?", reply="I do not know."))
    forms = {"plain": {"reply": "No."}, "paraphrase": {"reply": "It is in Rome."}, "sampled": {"replies": []}}
    collected("f", record("b", "In which city?", forms=forms))
    asked = (AskedPlace("ga", "", "", "qa", "q"), AskedPlace("ga", "", "", "freeform", "f"))
    both = replace(plan(asked), facts={"b": "a"})
    lines = (FactLine("ga", "", "a", "stated", 0.01), FactLine("ga", "relearn", "a", "stated", 0.01))
    told, untold = with_replies(run, both, lines)
    assert (told.question, told.answer, told.reply) == ("In which city?", "Rome", "It is in Rome.")
    # Nothing was asked after the attack.
    assert untold == lines[1]
    # What asks round a corner has an answer of its own, and is quoted with it.
    forms["khop"] = {"asked": "In which country?", "answer": "Italy", "reply": "Italy."}
    collected("f", record("b", "In which city?", forms={name: forms[name] for name in ("plain", "khop")}))
    (told,) = with_replies(run, both, lines[:1])
    assert (told.question, told.answer, told.reply) == ("In which country?", "Italy", "Italy.")
    # Multiple choice has a number for its answer, and another package's evaluation perhaps no question, or no answer.
    options = ["Bern", "Rome"]
    collected("f", {"item": "b", "question": "Which one?", "options": options, "answer": 1, "reply": "Rome"})
    (told,) = with_replies(run, both, lines[:1])
    assert (told.question, told.answer, told.reply) == ("Which one?", "Rome", "Rome")
    for strange in ({"answer": "Rome"}, {"question": "Where?"}):
        collected("f", {"item": "b", "reply": "Rome", **strange})
        (told,) = with_replies(run, both, lines[:1])
        assert (told.question, told.reply) == (("", "Rome") if "answer" in strange else ("Where?", "I do not know."))
