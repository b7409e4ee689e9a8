"""A judge behind HTTP: faults are retried and counted, nothing is paid twice, keys are written nowhere."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest
from tests.judges.faulty_server import completion, serving
from tests.judges.replay import tally

from vestige.core.errors import InputError
from vestige.judges.base import Request, WriterPrompt
from vestige.judges.server import ServerReplies, ServerWriter, _reply
from vestige.judges.spec import ServerSettings, judge_spec
from vestige.judges.tasks import PromptedJudge
from vestige.models.address import Amount, Limits
from vestige.models.http import Client, Garbled, Ledger

KEY = "sk-secret-0123456789"
VARIABLE = "VESTIGE_JUDGE_KEY"
FAULTS = ("500", "429", "503", "garbage", "half", "nothing", "empty", "orders")


def writer(log, folder, limits=None, **settings):
    quick = {"first_wait_seconds": 0.0, "timeout_seconds": 5.0, "longest_wait_seconds": 0.01}
    bounds = limits.model_dump() if limits else {}
    return ServerWriter(ServerSettings(url=log.url, model="judge", **(quick | settings | bounds)), folder)


def requests_of(n, first=0):
    return [Request("quality", f"Question {i}?", f"Answer {i}.") for i in range(first, first + n)]


def number(body):
    return int(re.search(r"Answer (\d+)\.", body["messages"][1]["content"])[1])


def rating(body):
    return f"Well. Rating: [[{1 + number(body) % 10}]]"


def scores(judged):
    return [j.score for j in judged]


def test_at_thirty_percent_faults_the_scores_are_those_of_a_faultless_server(tmp_path):
    requests = requests_of(60)
    with serving(rating) as log:
        clean = PromptedJudge(writer(log, tmp_path / "clean")).judge(requests)
    # Calls 0, 3 and 7 of every ten fail, each in another way.
    trouble = lambda call, body: FAULTS[call // 3 % len(FAULTS)] if call % 10 in {0, 3, 7} else ""  # noqa: E731
    with serving(rating, trouble) as log:
        judged = PromptedJudge(writer(log, tmp_path / "faulty", attempts=8, readings=6)).judge(requests)
        assert len(log.bodies) > 80
    assert scores(judged) == scores(clean) == [1.0 + i % 10 for i in range(60)]


@pytest.mark.parametrize(
    ("wrong", "failure"),
    [
        ("500", "server error"),
        ("429", "rate limited"),
        ("400", "rejected"),
        ("garbage", "garbage"),
        ("half", "garbage"),
        ("nothing", "connection"),
        ("empty", "empty"),
        ("orders", "unreadable"),
        ("slow", "timeout"),
    ],
)
def test_what_stays_wrong_is_named_left_out_of_the_mean_and_does_not_stop_the_rest(tmp_path, wrong, failure):
    # Answer 2 fails for good, and its neighbours are judged.
    with serving(rating, lambda call, body: wrong if number(body) == 2 else "") as log:
        settings = {"attempts": 2, "timeout_seconds": 0.3, "concurrency": 1}
        judged = PromptedJudge(writer(log, tmp_path, **settings)).judge(requests_of(4))
    assert [j.failure for j in judged] == ["", "", failure, ""]
    assert tally(judged).mean == (1 + 2 + 4) / 3
    assert tally(judged).failures == {failure: 1}


def test_a_reply_is_never_paid_for_twice(tmp_path):
    requests = requests_of(5)
    with serving(rating) as log:
        first = PromptedJudge(writer(log, tmp_path)).judge(requests)
        again = PromptedJudge(writer(log, tmp_path)).judge([*requests, *requests_of(2, first=4)])
        assert len(log.paid) == 6, "five, and the one that is new"
    assert scores(again) == [1, 2, 3, 4, 5, 5, 6]
    assert scores(first) == scores(again)[:5]
    # Unreadable replies were paid for as well: two of them, then no more.
    with serving(lambda body: "no idea") as log:
        for _ in range(2):
            (judged,) = PromptedJudge(writer(log, tmp_path / "b", readings=2)).judge(requests[:1])
            assert judged.failure == "unreadable"
        assert len(log.paid) == 2


def test_another_model_setting_or_text_is_another_request(tmp_path):
    with serving(rating) as log:
        for settings in ({}, {"seed": 1}, {"temperature": 0.5}, {"temperature": None}, {}):
            PromptedJudge(writer(log, tmp_path, **settings)).judge(requests_of(1))
        other = ServerWriter(ServerSettings(url=log.url, model="other"), tmp_path)
        PromptedJudge(other).judge(requests_of(1))
        assert len(log.bodies) == 5
    assert "temperature" not in log.bodies[3]
    assert log.bodies[2]["temperature"] == 0.5


_CHILD = """
import sys
from pathlib import Path
from vestige.judges.base import Request
from vestige.judges.server import ServerWriter
from vestige.judges.spec import ServerSettings
from vestige.judges.tasks import PromptedJudge
requests = [Request("quality", f"Question {i}?", f"Answer {i}.") for i in range(40)]
settings = ServerSettings(url=sys.argv[1], model="judge", concurrency=2)
PromptedJudge(ServerWriter(settings, Path(sys.argv[2]))).judge(requests)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_and_asks_again_only_what_was_under_way(tmp_path):
    def slowly(body):
        time.sleep(0.01)
        return rating(body)

    with serving(slowly) as log:
        kills = 0
        for wanted in (5, 17, 30):
            child = subprocess.Popen([sys.executable, "-c", _CHILD, log.url, str(tmp_path)])
            until = time.monotonic() + 60
            while len(log.paid) < wanted + 2 * kills and time.monotonic() < until and child.poll() is None:
                time.sleep(0.005)
            child.send_signal(signal.SIGKILL)
            child.wait()
            kills += 1
        judged = PromptedJudge(writer(log, tmp_path)).judge(requests_of(40))
        time.sleep(0.1)
        twice = len(log.paid) - len(set(log.paid))
        counted = ServerReplies(tmp_path)
        counted.update()
    assert scores(judged) == [1.0 + i % 10 for i in range(40)]
    assert len(set(log.paid)) == 40
    assert twice <= 2 * kills, "two requests at a time, so that a kill loses at most two"
    assert 40 <= counted.taken.calls <= 40 + twice


def test_the_key_goes_into_the_header_and_into_nothing_else(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv(VARIABLE, KEY)
    with serving(
        lambda body: f"Your key is {KEY}. Rating: [[3]]", lambda call, body: "500" if call == 0 else ""
    ) as log:
        judged = PromptedJudge(writer(log, tmp_path)).judge(requests_of(2))
        assert set(log.keys) == {f"Bearer {KEY}"}
        whole = [judged, writer(log, tmp_path), writer(log, tmp_path).settings]
        with serving(rating, lambda call, body: "401") as refusing, pytest.raises(InputError) as refused:
            PromptedJudge(writer(refusing, tmp_path / "b")).judge(requests_of(2))
        with serving(rating, lambda call, body: "400") as refusing, pytest.raises(InputError) as rejected:
            PromptedJudge(writer(refusing, tmp_path / "c")).judge(requests_of(2))
    assert "Your key is [key]" in judged[0].text
    assert "no: Bearer [key]" in str(refused.value)
    said = [repr(x) for x in (*whole, refused.value, rejected.value)] + list(capfd.readouterr())
    said += [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] + list(map(str, tmp_path.rglob("*")))
    assert len(said) > 10
    assert not any(KEY in text for text in said)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://me:hunter22@host/v1", "holds a user"),
        ("https://host/v1?api-key=hunter22", "unknown key 'api-key'"),
        ("http://host:99999999/v1", "cannot be read"),
        ("http://ho st/v1", "is not a model's address"),
    ],
)
def test_a_url_that_is_none_or_holds_a_secret_is_refused_without_showing_it(url, message):
    with pytest.raises(InputError, match=message) as error:
        judge_spec(f"{url}#m")
    assert "hunter22" not in str(error.value)


def test_a_key_that_would_break_the_header_is_refused_without_showing_it(monkeypatch):
    monkeypatch.setenv(VARIABLE, "sk-1234\r\nX-Evil: 1")
    with pytest.raises(InputError, match="than ASCII") as error:
        Client(ServerSettings(url="http://host/v1", model="m"), Ledger(Limits()))
    assert "sk-1234" not in str(error.value)


@pytest.mark.parametrize("status", ["401", "403", "404", "307"])
def test_what_no_request_can_mend_ends_the_run_at_once(tmp_path, status):
    with serving(rating, lambda call, body: status) as log:
        with pytest.raises(InputError, match=f"refuses the model 'judge' \\(HTTP {status}"):
            PromptedJudge(writer(log, tmp_path, concurrency=2)).judge(requests_of(30))
        assert len(log.bodies) <= 4, "the others are not sent"


def test_where_no_server_answers_it_is_said_so(tmp_path):
    with serving(rating) as log:
        pass
    with pytest.raises(InputError, match=r"no judge answers at http://127\.0\.0\.1"):
        PromptedJudge(writer(log, tmp_path, attempts=2)).judge(requests_of(3))


@pytest.mark.parametrize(("status", "said", "waited"), [("429", "1", 1.0), ("503", "86400", 5.0)])
def test_a_server_may_say_how_long_to_wait_but_not_for_a_day(tmp_path, monkeypatch, status, said, waited):
    waits = []

    async def at_once(waiting, seconds):
        waiting.close()
        waits.append(seconds)

    monkeypatch.setattr("vestige.models.http.asyncio.wait_for", at_once)
    with serving(rating, lambda call, body: status if call == 0 else "", retry_after=said) as log:
        PromptedJudge(writer(log, tmp_path, longest_wait_seconds=5, attempts=2)).judge(requests_of(1))
    assert waits == [waited]


def test_a_limit_stops_before_it_is_passed_and_counts_what_was_paid_before(tmp_path):
    # A call takes 110 tokens, and before it at most some 1,400 bytes and 2,048 tokens of reply are set aside.
    limits = Limits(most_tokens=4000)
    with serving(rating) as log:
        judged = PromptedJudge(writer(log, tmp_path, limits)).judge(requests_of(20))
        done = sum(j.score is not None for j in judged)
        assert 0 < done < 20
        assert tally(judged).failures == {"limit": 20 - done}
        assert done * 110 <= 4000
        again = PromptedJudge(writer(log, tmp_path, limits)).judge(requests_of(20))
        assert sum(j.score is not None for j in again) == done, "started anew, the run may not spend it all again"
        (few,) = {
            sum(j.score is not None for j in PromptedJudge(w).judge(requests_of(20)))
            for w in [writer(log, tmp_path / "b", Limits(most_requests=7))]
        }
        assert few == 7


def test_a_limit_holds_for_all_that_is_asked_in_a_folder(tmp_path):
    with serving(rating) as log:
        for first in (0, 3):
            PromptedJudge(writer(log, tmp_path, Limits(most_requests=6))).judge(requests_of(3, first=first))
        assert len(log.paid) == 6
        seventh = PromptedJudge(writer(log, tmp_path, Limits(most_requests=6))).judge(requests_of(1, first=6))
        eighth = PromptedJudge(writer(log, tmp_path, Limits(most_requests=7))).judge(requests_of(1, first=7))
    assert [j.failure for j in (*seventh, *eighth)] == ["limit", ""]


def test_a_limit_of_money_needs_prices():
    with pytest.raises(InputError, match="prices are not"):
        Ledger(Limits(most_cost=1.0))
    priced = Limits(most_cost=1.0, price_per_million_prompt_tokens=2.0, price_per_million_completion_tokens=10.0)
    # 100,000 at 2 and 50,000 at 10 a million: 0.2 + 0.5.
    assert priced.cost(100_000, 50_000) == pytest.approx(0.7)
    ledger = Ledger(priced)
    assert ledger.book(Amount(1, 100_000, 50_000))
    ledger.settle(Amount(1, 100_000, 50_000), Amount(1, 100_000, 50_000))
    assert not ledger.book(Amount(1, 200_000, 0))
    assert ledger.book(Amount(1, 150_000, 0))
    with pytest.raises(InputError, match="at least 0"):
        Limits.build({"most_requests": -1})


def test_equal_requests_are_asked_once(tmp_path):
    with serving(rating) as log:
        judged = PromptedJudge(writer(log, tmp_path)).judge(requests_of(1) * 5)
        assert len(log.bodies) == 1
    assert scores(judged) == [1] * 5


def test_two_commands_in_one_folder_are_refused_and_a_damaged_file_is_named(tmp_path):
    from vestige.core.files import locked

    with serving(rating) as log:
        with locked(tmp_path / ".lock", patience_seconds=0), pytest.raises(InputError, match="another command"):
            PromptedJudge(writer(log, tmp_path)).judge(requests_of(1))
        PromptedJudge(writer(log, tmp_path)).judge(requests_of(1))
        (kept,) = tmp_path.rglob("*.json")
        kept.write_text('{"replies": [{"text": 1')
        with pytest.raises(InputError, match=kept.name):
            PromptedJudge(writer(log, tmp_path)).judge(requests_of(1))
        kept.write_text(json.dumps({"replies": [{"wrong": 1}]}))
        with pytest.raises(InputError, match="is not a file of stored replies"):
            PromptedJudge(writer(log, tmp_path)).judge(requests_of(1))


def test_a_writer_serves_prompts_of_any_kind(tmp_path):
    with serving(lambda body: '["a", "b"]') as log:
        (written,) = writer(log, tmp_path).write([WriterPrompt("Be brief.", "Two keywords as JSON.", 20)])
    assert written.text == '["a", "b"]'
    assert written.failure == ""
    assert log.bodies[0]["max_tokens"] == 20


def test_what_servers_say_of_tokens_and_refusals_is_read_with_care():
    client = Client(ServerSettings(url="http://host/v1", model="m"), Ledger(Limits()))

    def read(text="x", finish="stop", usage=None):
        choice = {"message": {"content": text}, "finish_reason": finish}
        return _reply(client, WriterPrompt("", "12345", 9), {"choices": [choice], "usage": usage})

    assert read(usage={"prompt_tokens": 3, "completion_tokens": 4})[2:5] == (3, 4, False)
    for usage in (None, {}, {"prompt_tokens": -1, "completion_tokens": 10**30}, {"prompt_tokens": "3"}):
        assert read(usage=usage)[2:5] == (2, 1, True)
    assert read(text=None).text == ""
    assert read(text=[{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]).text == "ab"
    assert read(text="\ud800 ok").text == "? ok"
    for found in ([], {}, {"choices": []}, {"choices": [{"message": {"content": 7}}]}, None):
        with pytest.raises(Garbled):
            _reply(client, WriterPrompt("", "", 9), found)


@pytest.mark.parametrize("content", [b"\xff", b"[" * 9999])
def test_what_is_no_json_is_garbage(tmp_path, content):
    with serving(raw=lambda body: content) as log:
        (judged,) = PromptedJudge(writer(log, tmp_path, attempts=1)).judge(requests_of(1))
    assert judged.failure == "garbage"


def test_tokens_that_a_server_does_not_tell_are_estimated_and_marked_so(tmp_path):
    without = json.dumps({"choices": [{"message": {"content": "[[4]]"}, "finish_reason": "stop"}]}).encode()
    with serving(rating, raw=lambda body: without) as log:
        PromptedJudge(writer(log, tmp_path)).judge(requests_of(1))
        sent = sum(len(m["content"]) for m in log.bodies[0]["messages"])
    # Four bytes a token, rounded up. The reply has five. Two '·' are two bytes each.
    ((reply,),) = (json.loads(path.read_text())["replies"] for path in tmp_path.glob("??/*.json"))
    assert (reply["estimated"], reply["completion_tokens"]) == (True, 2)
    assert reply["prompt_tokens"] == pytest.approx(sent / 4, abs=2)


def test_a_reply_that_the_server_filtered_is_not_asked_for_again(tmp_path):
    filtered = completion("", finish_reason="content_filter")
    with serving(rating, raw=lambda body: filtered) as log:
        for _ in range(2):
            (judged,) = PromptedJudge(writer(log, tmp_path)).judge(requests_of(1))
            assert judged.failure == "filtered"
        assert len(log.bodies) == 1


def test_a_verdict_in_a_reply_that_ran_out_of_tokens_counts_and_half_of_one_does_not(tmp_path):
    for said, score, failure in (("Rating: [[6]] because", 6.0, ""), ("I think it is", None, "cut short")):
        reply = completion(said, finish_reason="length")
        with serving(rating, raw=lambda body, reply=reply: reply) as log:
            (judged,) = PromptedJudge(writer(log, tmp_path / said)).judge(requests_of(1))
        assert (judged.score, judged.failure) == (score, failure)
