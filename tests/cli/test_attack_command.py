"""`vestige attack` as a person runs it: what it prints, what it keeps, what it refuses."""

import json

import pytest
from tests.small import vestige
from transformers import LlamaForCausalLM

from vestige.artifacts.records import KeptPrompt, PromptPart, SampleReply
from vestige.cli.asking import NO_EVIDENCE
from vestige.core.errors import InputError
from vestige.models.load import ModelSettings, load
from vestige.report.text import bits_at_most, said_of

PROMPTS = ("in-context", "gcg", "prefix")
pytestmark = pytest.mark.usefixtures("few_resamples")


def attack(taught, kind, *words):
    shared = ["--data", taught / "qa.jsonl", "--forget", taught / "forget.jsonl", "--device", "cpu"]
    return vestige("attack", kind, taught / "target", *shared, "--max-new-tokens", 4, *words)


@pytest.mark.slow
def test_a_relearning_prints_its_last_epoch_or_with_a_curve_each_beside_before_and_that_it_is_no_evidence(taught):
    words = ("--items", 3, "--set", "rank=2", "--set", "epochs=2")
    done = attack(taught, "relearn", *words)
    curve = attack(taught, "relearn", *words, "--set", "curve=true")
    for printed in (done.stdout, curve.stdout):
        assert "relearn retain n=3: 4 forget items" in printed
        for head in ("before", "epoch 2", "forced/answer_bits", "generate/rouge1_recall"):
            assert head in printed
        assert "epoch 3" not in printed
        assert "(prequential code length of what was shown)" in printed
        assert NO_EVIDENCE in printed
    assert "epoch 1" not in done.stdout
    assert "epoch 1" in curve.stdout
    # Each is evidence of its own, and asking between epochs changes no answer after the last.
    assert len(list((taught / "target/attacks").glob("relearn*/done.json"))) == 2
    last, each = (
        json.loads(attack(taught, "relearn", *words, *more, "--json").stdout)["levels"]
        for more in ((), ("--set", "curve=true"))
    )
    assert (list(last), list(each)) == (["before", "2"], ["before", "1", "2"])
    assert last["2"] == each["2"]


@pytest.mark.parametrize(
    ("kind", "words", "name"),
    [("quantize", ["--bits", 8], "quantize 8 bits"), ("in-context", ["--items", 2], "in_context n=2")],
)
def test_one_json_document_has_levels_before_and_after(taught, kind, words, name):
    done = attack(taught, kind, *words, "--json")
    found = json.loads(done.stdout)
    assert found["attack"]["name"] == name
    assert list(found["levels"]) == ["before", "given"]
    assert list(found["levels"]["before"]) == list(found["levels"]["given"])
    assert {e["n"] for at in found["levels"].values() for e in at.values()} == {4}
    assert found.keys() == {"attack", "evidence", "bounds_bits", "spent", "notes", "levels"}


@pytest.mark.parametrize(
    ("kind", "words", "complaint"),
    [
        ("relearn", ["--material", "retained"], "--material = 'retained': must be 'retain', 'related'"),
        ("relearn", ["--set", "ranks=2"], "unknown key 'ranks'. Did you mean 'rank'"),
        ("quantize", ["--set", "quantize.bits=8"], "unknown key 'quantize.bits'"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_a_sentence(taught, kind, words, complaint):
    with pytest.raises(InputError, match=complaint):
        attack(taught, kind, *words)


def test_attacks_are_listed_with_a_line_each():
    rows = json.loads(vestige("list", "attacks", "--json").stdout)
    assert [row["name"] for row in rows] == ["relearn", "quantize", "ablate", *PROMPTS]
    assert all(row["about"].endswith(".") for row in rows)


def sets(**values):
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


GCG = ["--items", 2, *sets(tokens=4, steps=2, width=6, topk=16)]
PREFIX = ["--items", 2, *sets(tokens=6, steps=2, candidates=4, topk=16)]


def run(kind, subjects, *words):
    return vestige("attack", kind, *subjects, *words, "--device", "cpu")


def on_data(taught, *words):
    return ["--data", taught / "qa.jsonl", "--forget", taught / "forget.jsonl", *words]


def asked(taught, *words):
    return on_data(taught, *words, "--max-new-tokens", 4)


def target_of(taught):
    return ["--target", taught / "target"]


def files_in(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_suffix_is_printed_with_levels_by_share_of_it_and_what_was_claimed_and_seen(taught):
    done = run("gcg", [taught / "target"], *asked(taught, *GCG))
    assert "gcg n=2: 2 forget items" in done.stdout
    for row in ("before ", "shuffled, ", "0 %, 0 bits ", "50 %, ", "100 %, "):
        assert f"│ {row}" in done.stdout
    assert "suffix of 4 tokens: '" in done.stdout
    assert "claimed by the search: not all of its 2 samples; verified by replies to its text: 0 of 2" in done.stdout
    assert "(tokens x log2(admissible vocabulary) of the prompt)" in done.stdout
    assert NO_EVIDENCE in done.stdout


def test_a_prefix_for_the_target_itself_is_verified_on_what_it_says_anyway(taught):
    done = run("prefix", [taught / "target"], *target_of(taught), *asked(taught, *PREFIX, "--json"))
    found = json.loads(done.stdout)
    assert found["prompt"]["placement"] == "prefix"
    assert (found["prompt"]["claimed"], found["prompt"]["verified"]) == (True, True)
    assert [s["wanted"] == s["replied"] for s in found["prompt"]["samples"]] == [True, True]
    # Which is no success of the prompt: it says so without it.
    assert [(s["plain"] == s["wanted"], s["plain_right"]) for s in found["prompt"]["samples"]] == [(True, True)] * 2
    assert list(found["levels"]) == ["before", "shuffled", *(f"{p} %" for p in range(0, 101, 10))]
    # Nothing of the prompt is the question itself.
    assert found["levels"]["before"] == found["levels"]["0 %"]
    assert {e["n"] for at in found["levels"].values() for e in at.values()} == {2}


def test_a_model_without_a_matrix_of_input_embeddings_is_refused(taught, monkeypatch):
    monkeypatch.setattr(LlamaForCausalLM, "get_input_embeddings", lambda model: None)
    with pytest.raises(InputError, match="has no matrix of input embeddings"):
        run("gcg", [taught / "target"], *asked(taught, *GCG, "--seed", 5))


def loaded(taught):
    return load(ModelSettings(model=str(taught / "target"), device="cpu"))


def kept_prompt(*samples):
    return KeptPrompt(
        text="\x1b[2J[red]x\n\u202e",
        ids=(1, 2),
        placement="prefix",
        loss=0.5,
        claimed=True,
        verified=False,
        ended="reached",
        steps=3,
        admissible_bits=6.0,
        spent={"tokens_read": 1200},
        seen_bits=None,
        bounds_bits={},
        samples=samples,
        points={"100 %": PromptPart("x", (1, 2), 12.0)},
    )


def test_a_prompt_is_printed_as_the_hostile_text_that_it_is():
    said = said_of(kept_prompt(SampleReply("Which\x1b?", "oak", "elm", False, False, "oak\x07", True)))
    assert said[0] == "prefix of 2 tokens: '·[2J[red]x··'"
    assert said[1] == "loss 0.500 after 3 steps (ended: reached); spent: 1,200 tokens read"
    assert said[2] == "claimed by the search: all of its 1 sample; verified by replies to its text: 0 of 1"
    assert said[3] == "without the prompt: 1 of 1 already; so 0 are brought by it, and 1 is lost with it"
    assert said[4] == "'Which·?': wanted 'oak', with the prompt 'elm', without it 'oak·'"
    assert said[5] == "in 1 of 1 samples the text is read as other tokens than the search scored"
    assert said[6].startswith("the search saw the target's inner states")


def test_what_is_said_without_the_prompt_is_not_the_prompts_doing():
    right, wrong = ("oak", True), ("elm", False)
    # With and without: brought, said anyway, lost, neither.
    both = [(right, wrong), (right, right), (wrong, right), (wrong, wrong)]
    samples = [
        SampleReply("Which?", "oak", replied, verified, True, plain, plain_right)
        for (replied, verified), (plain, plain_right) in both
    ]
    assert [s.brought for s in samples] == [True, False, False, False]
    lines = said_of(kept_prompt(*samples))
    assert lines[3] == "without the prompt: 2 of 4 already; so 1 is brought by it, and 1 is lost with it"


@pytest.mark.parametrize(
    ("bits", "said"),
    [
        (0.0, "0 bits"),
        # A bound that is not 0 never reads as 0, and none reads as less than it is.
        (0.004, "0.1 bits"),
        (0.7, "0.7 bits"),
        (0.96, "1 bit"),
        (1.02, "1.1 bits"),
        (9.94, "10 bits"),
        (217.2, "218 bits"),
        (3000.5, "3,001 bits"),
    ],
)
def test_a_bound_is_rounded_up(bits, said):
    assert bits_at_most(bits) == said


FEW = "and only 107 tokens of the vocabulary are allowed in the"
REFUSED = [
    ("gcg", sets(topk=100000), f"topk is 100000, {FEW} prompt"),
    ("gcg", ["--set", "initial=\udcff"], "initial holds half of a surrogate"),
    ("gcg", ["--placement", "inside"], "placement = 'inside': must be 'prefix' or 'suffix'"),
    ("prefix", sets(tokens=250, topk=16), "a prefix of 250 tokens and its longest question take"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "words", "complaint"), REFUSED)
def test_a_refused_search_is_one_sentence_and_leaves_nothing_where_the_evidence_was_to_go(
    taught, tmp_path, kind, words, complaint
):
    named = target_of(taught) if kind == "prefix" else []
    own = asked(taught, "--items", 2, *words)
    # A folder that was there stays; what would have been made in it is gone.
    (tmp_path / "evidence").mkdir()
    before = files_in(taught)
    # A model from elsewhere: its folder is not Vestige's.
    model = loaded(taught)
    model.tokenizer.save_pretrained(tmp_path / "model")
    model.model.save_pretrained(tmp_path / "model")
    place = ["--output-dir", tmp_path / "evidence/of/it"]
    for subject, more in ((taught / "target", []), (taught / "target", place), (tmp_path / "model", place)):
        with pytest.raises(InputError, match=complaint):
            run(kind, [subject], *named, *own, *more)
        assert list((tmp_path / "evidence").iterdir()) == []
    assert files_in(taught) == before


@pytest.mark.slow
def test_evidence_that_is_there_outlives_a_refusal_and_says_whose_it_is(taught, tmp_path):
    place = tmp_path / "evidence"
    run("gcg", [taught / "target"], *asked(taught, *GCG), "--output-dir", place)
    assert {"spec.json", "done.json"} <= set(files_in(place))
    before = files_in(place)
    with pytest.raises(InputError):
        run("gcg", [taught / "target"], *asked(taught, "--set", "topk=5000"), "--output-dir", place)
    assert files_in(place) == before


def test_a_prefix_needs_the_model_that_knows(taught):
    refused = vestige("attack", "prefix", taught / "target", *asked(taught), code=2)
    assert "--target" in refused.output
