"""A model behind an address: asked as the same model in memory, it gives the same records; what is wrong is refused."""

import json
import logging
import re
import threading
from pathlib import Path

import pytest
from served import serving
from tests.judges import faulty_server
from typer.testing import CliRunner

from vestige.cli.app import app
from vestige.core.errors import InputError, MachineError
from vestige.core.files import read_json, write_jsonl
from vestige.core.items import Item
from vestige.core.text import split_thoughts
from vestige.data.loaders import Figure, Pack, PackSplit, Published, packs
from vestige.evals.base import Evaluation, View
from vestige.evals.choices import ChoicesSettings
from vestige.evals.freeform import FreeformSettings
from vestige.evals.qa import QASettings
from vestige.models import http
from vestige.models.address import ENGINES, Limits, address, shown_address
from vestige.models.endpoint import _said
from vestige.models.http import Client, Job, Ledger
from vestige.models.load import LoadedModel, ModelSettings, load

TREES = ("amber", "birch", "cedar", "dune", "ember", "fjord")
ITEMS = tuple(
    Item(
        f"Which tree stands at post {n}?",
        f"{tree} {n}.",
        edge=f"p{n % 2}_q",
        attribute="tree",
        paraphrase=f"Post {n}: which tree?",
    )
    for n, tree in enumerate(TREES)
)
VIEW = View("edge:p0_q", {"forget": [i.id for i in ITEMS[::2]], "retain": [i.id for i in ITEMS[1::2]]}, {})


@pytest.fixture(scope="module")
def nano(audit_models) -> LoadedModel:
    """The target of the audited run, loaded from the folder that it names."""
    return load(ModelSettings(model=str(audit_models.control("target").model), device="cpu"))


def through(log, nano: LoadedModel, **settings: object) -> LoadedModel:
    query = {"tokenizer": nano.name, "first_wait_seconds": 0, **settings}
    words = "&".join(f"{name}={value}" for name, value in query.items() if value is not None)
    return load(ModelSettings(model=f"{log.url}?{words}#nano"))


def records(subject: LoadedModel, kind: type[Evaluation], **settings) -> list[dict]:
    evaluation = kind.build(settings)
    return evaluation.collect(subject, list(evaluation.build_questions(ITEMS, (VIEW,)).values()))


def assert_alike(ours: object, theirs: object) -> None:
    """To the letter, and numbers within rounding."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict)
        assert ours.keys() == theirs.keys()
        for name in theirs:
            assert_alike(ours[name], theirs[name])
    elif isinstance(theirs, list):
        assert isinstance(ours, list)
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_alike(one, other)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, abs=1e-3)
    else:
        assert ours == theirs


@pytest.mark.parametrize("kind", [QASettings, FreeformSettings, ChoicesSettings])
def test_a_served_model_gives_the_records_of_the_same_model_in_memory(nano, kind):
    settings = {"max_new_tokens": 5}
    if kind is FreeformSettings:
        settings |= {"forms": ("plain", "paraphrase", "few_shot", "prefilled", "cloze"), "shots": 1}
    with serving(nano) as log:
        ours, theirs = records(through(log, nano), kind, **settings), records(nano, kind, **settings)
        for record in (*ours, *theirs):
            for letters in record.get("letters", ()):
                # Of the likeliest token a server tells the number alone.
                del letters["top"]
        assert_alike(ours, theirs)
        assert {type(body.get("prompt")) for body in log.bodies} == {list}


def test_samples_are_drawn_by_the_server_each_with_a_seed_of_its_own(nano):
    with serving(nano) as log:
        found = records(
            through(log, nano), FreeformSettings, forms=("sampled",), samples=3, temperature=0.7, max_new_tokens=5
        )
        drawn = [body for body in log.bodies if body["temperature"] == 0.7]
    assert len({body["seed"] for body in drawn}) == len(drawn) == 3 * len(ITEMS)
    assert all(len(r["forms"]["sampled"]["replies"]) == 3 for r in found)
    assert len({one["reply"] for r in found for one in r["forms"]["sampled"]["replies"]}) > len(ITEMS)


def test_without_scores_replies_are_read_and_what_needs_scores_is_refused(nano, caplog):
    with serving(nano, "replies") as log, caplog.at_level(logging.WARNING):
        tokens, chat = through(log, nano), through(log, nano, tokenizer=None)
        assert "answers are not scored" in caplog.text
        known = records(nano, QASettings, max_new_tokens=5)
        for subject in (tokens, chat):
            ours = records(subject, QASettings, max_new_tokens=5)
            assert [(r["reply"], r["finish"]) for r in ours] == [(r["reply"], r["finish"]) for r in known]
            assert set(QASettings.score(ours[0])) == set(QASettings.score(known[0])) - {
                "probability",
                "answer_bits",
                "mrr",
                "top_hit",
            }
            with pytest.raises(InputError, match="does not score given answers"):
                records(subject, ChoicesSettings)
        given = {"forms": ("plain", "prefilled"), "max_new_tokens": 5}
        assert_alike(
            [r["forms"]["prefilled"]["reply"] for r in records(tokens, FreeformSettings, **given)],
            [r["forms"]["prefilled"]["reply"] for r in records(nano, FreeformSettings, **given)],
        )
        with pytest.raises(InputError, match="replies cannot be prefilled"):
            records(chat, FreeformSettings, **given)
        assert log.bodies[-1]["messages"][-1]["role"] == "user"


def nothing(body, found):
    if "prompt_logprobs" in body:
        del found["choices"][0]["prompt_logprobs"]


def shifted(body, found):
    """Each token's number is its neighbour's."""
    rows = found["choices"][0].get("prompt_logprobs")
    for row, before in zip(rows[:1:-1], rows[-2:0:-1], strict=True) if rows else ():
        for one in row.values():
            one["logprob"] = next(iter(before.values()))["logprob"]


def test_a_server_that_gives_the_new_tokens_numbers_alone_is_taken_for_one_without_scores(nano):
    with serving(nano, alter=nothing) as log:
        assert not through(log, nano).engine.scores


@pytest.mark.parametrize("tokenizer", ["nano", None])
def test_a_server_that_sends_empty_replies_is_not_taken_for_a_model_that_forgot(nano, tokenizer):
    def empty(body, found):
        choice = found["choices"][0]
        choice |= {"text": "", "message": {"role": "assistant", "content": None}}

    given = {} if tokenizer else {"tokenizer": None}
    with serving(nano, "replies", alter=empty) as log:
        with pytest.raises(InputError, match=r"replies nothing to 3 plain questions. .* \?silent=yes"):
            through(log, nano, **given)
        assert through(log, nano, silent="yes", **given).fingerprint == ("", "", "")


def test_numbers_that_cannot_be_right_are_refused_before_and_while_anything_is_measured(nano):
    broken = []

    def nan(body, found):
        for row in found["choices"][0].get("prompt_logprobs", [])[1:] if broken else ():
            for one in row.values():
                one["logprob"] = float("nan")

    with serving(nano, alter=shifted) as log:
        with pytest.raises(InputError, match="impossible log-probabilities"):
            through(log, nano)
        assert not through(log, nano, scores="no").engine.scores
    with serving(nano, alter=nan) as log:
        subject = through(log, nano)
        broken.append(True)
        with pytest.raises(InputError, match="nan is no log-probability"):
            records(subject, ChoicesSettings)


def test_faults_are_tried_again_and_lasting_ones_end_in_a_sentence(nano, monkeypatch):
    monkeypatch.setenv("VESTIGE_ENDPOINT_KEY", "secret-of-ten")
    faults = ("429", "500", "nothing", "garbage", "")
    with serving(nano, trouble=lambda call, body: faults[call % 5] if call < 40 else "") as log:
        subject = through(log, nano, concurrency=1)
        assert_alike(records(subject, QASettings, max_new_tokens=5), records(nano, QASettings, max_new_tokens=5))
        assert set(log.keys) == {"Bearer secret-of-ten"}
    for wrong, error, said in (("500", MachineError, "same command"), ("401", InputError, "refuses to answer")):
        broken = []
        with serving(nano, trouble=lambda call, body, w=wrong, b=broken: w if b else "") as log:
            subject = through(log, nano, attempts=2)
            broken.append(True)
            with pytest.raises(error, match=said) as raised:
                records(subject, ChoicesSettings)
            assert "secret" not in str(raised.value)
    with pytest.raises(InputError, match="no model answers"):
        load(ModelSettings(model=f"{log.url}?attempts=1#nano"))


def test_requests_share_connections_and_stay_within_their_bounds(nano):
    with serving(nano) as log:
        subject = through(log, nano, concurrency=3)
        records(subject, ChoicesSettings)
        records(subject, QASettings, max_new_tokens=2)
        assert log.most_under_way <= 3
        assert log.connections <= 4
        prices = {"price_per_million_prompt_tokens": 1000, "price_per_million_completion_tokens": 1000}
        for bound in ({"most_requests": 40}, {"most_tokens": 900}, {"most_cost": 0.9, **prices}):
            with pytest.raises(InputError, match="most_tokens or most_cost is used up"):
                records(through(log, nano, **bound), ChoicesSettings)
        with pytest.raises(InputError, match="most_cost is set and prices are not"):
            through(log, nano, most_cost=1)
        with pytest.raises(InputError, match=r"serves no model 'other'. Name one that it has: nano"):
            load(ModelSettings(model=f"{log.url}#other"))


@pytest.mark.parametrize("told", [True, False])
def test_a_bound_counts_the_tokens_that_a_reply_took_and_its_most_where_the_server_does_not_say(nano, told):
    def usage(body, found):
        found["usage"] = {"prompt_tokens": found["usage"]["prompt_tokens"], "completion_tokens": 1} if told else None

    with serving(nano, alter=usage) as log:
        subject = through(log, nano, scores="no", concurrency=1, most_tokens=1500)
        if told:
            assert len(records(subject, QASettings, max_new_tokens=400)) == len(ITEMS)
        else:
            with pytest.raises(InputError, match="is used up"):
                records(subject, QASettings, max_new_tokens=400)


def test_what_a_server_replies_is_text_and_nothing_else(nano):
    hostile = "\x1b[2J<script>alert(1)</script> \ud800 secret-of-ten <eos>"

    def alter(body, found):
        found["choices"][0].update(text=hostile, token_ids=None)

    with serving(nano, alter=alter) as log:
        record = records(through(log, nano, scores="no"), QASettings)[0]
    assert "\ud800" not in record["reply"]
    assert "<script>" in record["reply"]
    # Of two tokens nothing is so long, and what reads it would take minutes.
    hostile = "x" * 2_001
    said = r"replies to \d tokens with 2,001 characters"
    with serving(nano, alter=alter) as log, pytest.raises(InputError, match=said):
        records(through(log, nano, scores="no"), QASettings, max_new_tokens=2)


def test_a_reply_that_the_server_filtered_is_nothing_forgotten_and_one_it_broke_off_is_asked_for_again(nano):
    said = iter(["abort", "stop", "error", *["stop"] * 5, "content_filter"])
    with serving(nano, alter=lambda body, found: found["choices"][0].update(finish_reason=next(said))) as log:
        subject = through(log, nano, scores="no", concurrency=1)
        assert len(log.bodies) == 5
        with pytest.raises(InputError, match="filtered a reply"):
            records(subject, QASettings, max_new_tokens=2)


CUT = "cuts a reply after 1 of 16 tokens, which would pass for something forgotten"
WRONG = [
    ({"prompt_tokens": 3}, {}, {}, "reads 3 tokens where the tokeniser"),
    ({}, {"finish_reason": "length", "token_ids": [70]}, {}, CUT),
    ({"completion_tokens": 1}, {"finish_reason": "length"}, {"tokenizer": None}, CUT),
    ({}, {"stop_reason": 70}, {}, "ends a reply at the token 70, which would pass"),
]


@pytest.mark.parametrize(("usage", "choice", "query", "said"), WRONG)
def test_another_tokeniser_is_refused_and_a_reply_that_the_models_own_settings_cut(nano, usage, choice, query, said):
    def alter(body, found):
        found["usage"].update(usage)
        found["choices"][0].update(choice)

    with serving(nano, alter=alter) as log, pytest.raises(InputError, match=said):
        through(log, nano, **query)


def test_who_needs_weights_is_refused_in_one_sentence_and_the_identity_is_what_is_known(nano):
    replies = {"at": 0}

    def alter(body, found):
        found["choices"][0].update(token_ids=[80 + replies["at"]], finish_reason="stop")

    with serving(nano, alter=alter) as log:
        one, again = through(log, nano, scores="no"), through(log, nano, scores="no", concurrency=2)
        assert one.digest() == again.digest()
        with pytest.raises(InputError, match="is behind an address"):
            _ = one.model
        replies["at"] = 1
        assert through(log, nano, scores="no").digest().weights != one.digest().weights
    assert not any("secret" in text for text in one.provenance().values())


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("http://user:pass@host/v1#m", "holds a user"),
        ("http://host/v1", "does not name a model"),
        ("http://host:99999/v1#m", "cannot be read"),
        ("http://host/v1?concurency=2#m", "concurency"),
        ("http://host/v1?concurrency=0#m", "concurrency"),
        ("http://host/v1?model=x#m", "has url or model as a setting"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused(model, said):
    with pytest.raises(InputError, match=said) as raised:
        address(model)
    assert "pass@" not in str(raised.value)
    assert address("http://h:8/v1/?tokenizer=a%2Fb&concurrency=3#org/m").identity_of_asking["model"] == "org/m"
    assert Path(address("http://h/v1?tokenizer=a%2Fb#m").tokenizer) == Path("a/b")


def test_the_command_evaluates_an_address_and_shows_no_setting_of_it(nano, tmp_path):
    rows = [{"question": i.question, "answer": i.answer, "edge": i.edge} for i in ITEMS]
    write_jsonl(tmp_path / "all.jsonl", rows)
    with serving(nano) as log:
        place = f"{log.url}?tokenizer={nano.name}&concurrency=2#nano"
        words = ["evaluate", place, "--data", str(tmp_path / "all.jsonl"), "--output-dir", str(tmp_path / "there")]
        words += ["--max-new-tokens", "4", "--json"]
        ended = CliRunner().invoke(app, words)
        assert ended.exit_code == 0, ended.output
        asked = len(log.bodies)
        faster = [word.replace("concurrency=2", "concurrency=3") for word in words]
        again = CliRunner().invoke(app, faster)
        assert again.stdout == ended.stdout
        assert not [body for body in log.bodies[asked:] if body["max_tokens"] == 4], "what was answered is asked again"
    spec = read_json(tmp_path / "there" / "spec.json")
    assert (spec["name"], spec["model"]) == ("nano", f"{log.url}#nano")
    (told,) = (read_json(p) for p in (tmp_path / "there").glob("evals/*/provenance.json"))
    assert (told["prompts_sent_as"], told["scores_from"]) == ("tokens", "prompt_logprobs")


def test_the_command_compares_with_published_figures_first(nano, tmp_path, monkeypatch):
    write_jsonl(tmp_path / "all.jsonl", [{"question": i.question, "answer": i.answer} for i in ITEMS])
    figure = Figure(split="all", eval="qa", settings={"max_new_tokens": 2}, metric="forced/probability", value=2)
    row = Published(model="m", source="a table", tolerance=0.1, figures=(figure,))
    pack = Pack(about="", files="here", data=("all",), splits={"all": PackSplit(file="all")}, published=(row,))
    monkeypatch.setitem(packs(), "posts", pack)
    shared = [
        "evaluate",
        nano.name,
        "--device",
        "cpu",
        "--max-new-tokens",
        "2",
        "--output-dir",
        str(tmp_path / "there"),
    ]
    for words, said in (
        (["--data", f"pack:posts:{tmp_path}", "--published", "m"], r"is not as published: .*\(a table"),
        (["--data", f"pack:posts:{tmp_path}", "--published", "n"], "no figures of 'n' are in the pack"),
        (["--data", str(tmp_path / "all.jsonl"), "--published", "m"], "goes with a pack"),
        (["--data", f"pack:posts:{tmp_path}"], ""),
    ):
        ended = CliRunner().invoke(app, [*shared, *words])
        assert re.search(said, str(ended.exception)) if said else ended.exit_code == 0


def test_a_reply_without_end_is_not_read(nano, monkeypatch):
    monkeypatch.setattr(http, "_MOST_BYTES", 4096)
    long = {"more": "x" * 8192}
    with serving(nano, alter=lambda _, found: found.update(long)) as log, pytest.raises(InputError, match="4,096 b"):
        through(log, nano)


@pytest.mark.slow
def test_a_thousand_requests_are_in_flight_on_a_thousand_connections_and_no_more_is_held():
    """Requests are made when they are sent, so that memory holds those in flight and not all of them."""
    taken, answered, held = 0, 0, 0

    def jobs():
        nonlocal taken, held
        for n in range(1500):
            taken += 1
            held = max(held, taken - answered)
            yield Job("completions", {"n": n}, read)

    def read(found):
        nonlocal answered
        answered += 1
        return found["n"]

    all_in = threading.Barrier(1000)

    def trouble(call, body):
        # None of the first thousand is answered before all of them are there.
        if call < 1000:
            all_in.wait(60)
        return "429" if call % 50 == 7 else ""

    with faulty_server.serving(trouble=trouble, raw=lambda body: json.dumps(body).encode()) as log:
        to = address(f"{log.url}?concurrency=1000&first_wait_seconds=0#nano")
        assert Client(to, Ledger(Limits())).all(jobs()) == list(range(1500))
    assert log.most_under_way == 1000
    assert held <= 1000
    assert log.connections <= 1000


def test_an_engine_of_another_kind_is_opened_by_the_scheme_of_its_address(monkeypatch, tmp_path):
    (tmp_path / "own_engine.py").write_text("def opened(settings): return settings.model")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(ENGINES, "own", "own_engine:opened")
    assert load(ModelSettings(model="own://host/v1#m")) == "own://host/v1#m"
    assert (address("own://host/v1#m").url, shown_address("own://host/v1?scores=no#m")) == (
        "own://host/v1",
        "own://host/v1#m",
    )
    with pytest.raises(InputError, match="no model"):
        load(ModelSettings(model="other://host/v1#m"))


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_a_reasoning_field_is_a_trace_before_the_answer(name):
    message = {"content": "I do not know.", name: "It was 1970."}
    assert split_thoughts(_said({"message": message})) == ("It was 1970.", "I do not know.")
    # A reply that was cut within its trace has no content.
    assert split_thoughts(_said({"message": message | {"content": None}})) == ("It was 1970.", "")
    assert _said({"message": {"content": "Yes."}}) == "Yes."
    assert _said({"text": "Yes."}) == "Yes."
