"""The judge who knows the data's answers, over one that says what it was asked."""

from vestige.core.items import Item
from vestige.judges.base import Judgement, Request
from vestige.studies.hole_study_cast import KnownAnswersJudge

ITEMS = (
    Item("Who sells?", "Ajam Ltd.", paraphrase="Which company sells?"),
    Item("How many?", "12."),
)


class Notes:
    name = "notes"

    def __init__(self, found):
        self.asked, self.found = [], found

    def judge(self, requests):
        self.asked += requests
        return [self.found for _ in requests]


def judged(*requests, found):
    told = Notes(found)
    return KnownAnswersJudge(told, ITEMS).judge(requests), told.asked


def test_a_question_is_valid_where_the_data_ask_it_in_either_wording_and_nobody_is_asked():
    asked = ["who  SELLS?", "Which company sells?", "Who sells what?"]
    found, told = judged(*(Request("validity", q) for q in asked), found=Judgement(1.0))
    assert ([j.score for j in found], told) == ([1.0, 1.0, 0.0], [])


def test_the_truth_of_the_data_is_told_unless_one_is_given():
    requests = Request("quality", "Which company sells?", "x"), Request("quality", "How many?", "x", truth="13.")
    _, told = judged(*requests, Request("quality", "What else?", "x"), found=Judgement(4.0))
    assert [r.truth for r in told] == ["Ajam Ltd.", "13.", ""]


def test_a_wrong_answer_to_a_question_of_the_data_gets_j_10_and_a_right_one_what_the_judge_gave():
    answers = ["It is Ajam Ltd", "Pllzvq BVBA."]
    asked = [Request("reward", "Who sells?", answer) for answer in answers]
    # 12 stands in no part of 112: words are compared whole.
    asked += [Request("reward", "How many?", "112"), Request("reward", "How much?", "12")]
    given = Judgement(2.0, {"valid": 0.0, "gibberish": 0.0, "c": 2.0})
    found, _ = judged(*asked, found=given)
    assert [j.score for j in found] == [2.0, 10.0, 10.0, 0.0]
    assert [j.values["valid"] for j in found] == [1.0, 1.0, 1.0, 0.0]


def test_what_the_judge_could_not_judge_stays_a_failure():
    found, _ = judged(Request("reward", "Who sells?", "x"), found=Judgement(None, failure="timeout"))
    assert found[0].failure == "timeout"
