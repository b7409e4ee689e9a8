"""`indirect`: a fact is told by a generated, a combined or a two-hop question, and not by the question itself."""

from types import SimpleNamespace

import pytest
from tests.small import SPEC

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import write_finished, write_spec
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.evals import indirect
from vestige.evals.base import View
from vestige.evals.indirect import IndirectSettings, written_questions
from vestige.models.endpoint import EndpointModel

ANN = Item("Where does Ann live?", "Oslo", khop="Where does the owner of the red boat live?")
BEN = Item("Where does Ben live?", "Rome")
CARA = Item("Who lives in Oslo too?", "Cara")


def reply(asked, text):
    return {"asked": asked, "reply": text, "finish": "stop"}


def test_what_is_told_by_an_indirect_question_alone_is_a_further_leak():
    before = reply("Where does Ben live? Where does Ann live?", "Rome")
    after = reply("Where does Ann live? Where does Ben live?", "Oslo.")
    forms = {"generated": [reply("Which city is Ann's?", "No idea.")], "combined": [before, after]}
    forms |= {"plain": [reply(ANN.question, "I do not know.")], "two_hop": [reply(ANN.khop, "In Oslo")]}
    record = {"question": ANN.question, "answer": "Oslo", "fact": None, "accepted": [], "wrong": [], "forms": forms}
    record |= {"retained": ["Where does Ben live?", "Rome", None], "two_hop_answer": "Oslo"}
    expected = {"indirect_plain/leaked": 0.0, "indirect_combined/kept": 1.0}
    for form, told in (("generated", 0.0), ("combined", 1.0), ("two_hop", 1.0)):
        expected |= {f"indirect_{form}/{name}": told for name in ("leaked", "further")}
        expected[f"indirect_{form}/share_asked"] = 1.0
    assert IndirectSettings.score(record) == expected
    # What is told directly is no further leak.
    forms["plain"] = [reply(ANN.question, "Oslo")]
    assert IndirectSettings.score(record)["indirect_combined/further"] == 0.0


def test_a_retained_question_that_tells_the_answer_is_not_joined():
    view = View("ann", {"forget": (ANN.id,), "retain": (BEN.id, CARA.id)}, {})
    for seed in range(5):
        questions = IndirectSettings(seed=seed).build_questions((ANN, BEN, CARA), (view,))
        assert questions[ANN.id].retained == BEN
        assert questions[ANN.id].two_hop == (ANN.khop, "Oslo")
        assert questions[BEN.id].two_hop is None


def test_a_question_counts_that_the_target_wrote_and_answers(monkeypatch):
    """Ann's is answered. Ben's gives the fact away, Dan's is not answered, Eve's is her own question again.

    Ben's own reply has words beside its gap, Eve's and Dan's have none.
    """
    dan, eve = Item("Where does Dan live?", "Lima"), Item("Where does Eve live?", "Kyiv")
    items = (ANN, BEN, dan, eve)
    gap = indirect.COMPLETE.format(statement="Ben lives in ____.")
    said = {
        ANN.question: "Sure!\nWhich city is Ann's home?\nWhere is Ann?",
        BEN.question: "Is Rome the home of Ben?",
        dan.question: "Which city is Dan's home?",
        eve.question: eve.question,
        "Which city is Ann's home?": "It is Oslo.",
        "Which city is Dan's home?": "Paris",
        gap: "Rome",
    }
    plain = {ANN.question: "Oslo", BEN.question: "Ben lives in Rome.", dan.question: "Lima", eve.question: "Kyiv."}

    def replies(target, prompts, max_new_tokens):
        replies = []
        for text in prompts:
            told = next((said[i.question] for i in items if f'"{i.question}"' in text), None)
            replies.append(SimpleNamespace(ids=told or plain.get(text) or said[text]))
        return replies

    monkeypatch.setattr(indirect, "replies_to", replies)
    target = SimpleNamespace(prompter=SimpleNamespace(prompt=str, decode=str))
    assert written_questions(target, items, 64) == {0: "Which city is Ann's home?", 1: gap}


def test_the_weights_of_the_target_are_in_the_identity_and_other_weights_are_refused(monkeypatch, tmp_path):
    folder, parts = SubjectFolder(tmp_path), {"weights": "1" * 64}
    write_finished(folder.done, {"model": parts, "digest": content_id(parts, length=64)})
    write_spec(folder.spec, SPEC)
    settings = IndirectSettings.build({"target": str(tmp_path)}, where="settings")
    assert settings.identity()["target_weights"] == "1" * 64
    other = SimpleNamespace(digest=lambda: SimpleNamespace(weights="2" * 64), weights=None)
    loaded = []
    monkeypatch.setattr("vestige.models.load.load", lambda settings: loaded.append(settings) or other)
    served = EndpointModel(None, None, "s", "", endpoint=None, max_tokens=8, told="", fingerprint=(), device="cuda:1")
    for subject in (other, served):
        with pytest.raises(InputError, match="other weights than the target"):
            indirect._loaded_target(subject, settings.target, settings.target_weights)
    # The target is asked where the command asks its other models, a served one too.
    assert [settings.device for settings in loaded] == ["auto", "cuda:1"]
    with pytest.raises(InputError, match="no finished model"):
        IndirectSettings.build({"target": "elsewhere"}, where="settings")
