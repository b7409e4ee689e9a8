"""What a server, a full disk or a reasoning model does to a run: it ends in time, it is told, and it counts nothing."""

import errno
import json
from pathlib import Path

import pytest
from tests.judges.faulty_server import completion, dripping, serving
from tests.judges.test_judge_server import KEY, VARIABLE, rating, requests_of, scores, writer

from vestige.core.errors import InputError, MachineError
from vestige.judges.server import ServerReplies
from vestige.judges.spec import ServerSettings
from vestige.judges.tasks import PromptedJudge
from vestige.models.address import Limits
from vestige.models.http import Client, Fault, Job, Ledger


@pytest.mark.slow
@pytest.mark.parametrize(
    "begin",
    [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nX-Long: ",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 500 No\r\nContent-Length: 9999\r\n\r\n",
    ],
)
def test_a_server_that_sends_a_byte_now_and_then_is_cut_off_and_asked_twice(begin):
    with dripping(begin.encode(), b"1") as log, pytest.raises(Fault, match=r"no whole reply within 0\.3 s") as raised:
        one_reply(log.url, timeout_seconds=0.3, first_wait_seconds=0.0)
    assert raised.value.failure == "timeout"
    assert log.connections == 2, "of six attempts"


def one_reply(url, **settings):
    client = Client(ServerSettings(url=url, model="judge", **settings), Ledger(Limits()))
    return client.each([Job("chat/completions", {}, lambda found: found)], client.reply)


def test_on_a_full_disk_a_run_with_a_limit_ends_and_says_so(tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    # Room for one request at a time, so that the others wait for what it has booked.
    for limits in (Limits(most_tokens=4000), Limits()):
        with serving(rating) as log, monkeypatch.context() as patched:
            patched.setattr("vestige.core.files.os.fsync", full)
            with pytest.raises(MachineError, match="No space left") as error:
                PromptedJudge(writer(log, tmp_path, limits, concurrency=4)).judge(requests_of(8))
            assert len(log.bodies) <= 4, "what cannot be kept is not asked for"
        assert error.value.exit_code == 6
    with serving(rating) as log:
        assert scores(PromptedJudge(writer(log, tmp_path, concurrency=4)).judge(requests_of(8))) == [*range(1, 9)]


def test_what_a_server_calls_itself_and_why_it_ended_is_cleared_of_the_key_and_cleaned(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, KEY)
    told = {"finish_reason": f"stop \ud800 {KEY}\x1b[2J", "index": 0}
    reply = json.loads(completion("Rating: [[3]]", **told)) | {"model": f"m \ud800 {KEY}\x1b[2J"}
    with serving(rating, raw=lambda body: json.dumps(reply).encode()) as log:
        (judged,) = PromptedJudge(writer(log, tmp_path)).judge(requests_of(1))
    assert judged.score == 3
    text = "".join(path.read_text() for path in tmp_path.rglob("*.json*"))
    assert KEY not in text
    assert "stop · [key]·[2J" in text
    assert "m · [key]·[2J" in text


def test_garbage_does_not_show_half_of_a_key(monkeypatch):
    monkeypatch.setenv(VARIABLE, KEY)
    with serving(raw=lambda body: b"x" * 280 + KEY.encode()) as log, pytest.raises(Fault) as raised:
        one_reply(log.url, attempts=1)
    assert raised.value.failure == "garbage"
    assert "sk-" not in str(raised.value)


def notes_on(folder):
    replies = ServerReplies(folder)
    replies.update()
    return replies.other_models()


def test_another_model_than_the_one_asked_for_is_told_once_and_listed(tmp_path, caplog):
    names = iter(["judge", "judge", "other", "other", "other"])
    raw = lambda body: json.dumps(json.loads(completion("Rating: [[3]]")) | {"model": next(names)}).encode()  # noqa: E731
    with serving(rating, raw=raw) as log:
        own = writer(log, tmp_path, concurrency=1)
        PromptedJudge(own).judge(requests_of(2))
        assert not caplog.messages
        assert notes_on(tmp_path) == []
        for first in (2, 3, 4):
            PromptedJudge(own).judge(requests_of(1, first=first))
    (said,) = caplog.messages
    assert said == (
        "the server was asked for the model 'judge' and answered as 'judge' (2 replies), 'other' (1 replies); the "
        "replies of several models stand side by side"
    )
    assert notes_on(tmp_path) == [said.replace("(1 ", "(3 ")]


def test_room_for_thoughts_is_sent_booked_and_part_of_who_judges_and_running_out_of_it_is_told(tmp_path, caplog):
    message = {"role": "assistant", "content": None, "reasoning_content": "Rating: [[9]]?"}
    cut = completion(None, message=message, finish_reason="length")
    with serving(rating, raw=lambda body: cut) as log:
        own = writer(log, tmp_path, reasoning_tokens=1000, tokens_field="max_completion_tokens", readings=1)
        (judged,) = PromptedJudge(own).judge(requests_of(1))
        limited = writer(log, tmp_path / "b", Limits(most_tokens=3048), reasoning_tokens=1000)
        assert PromptedJudge(limited).judge(requests_of(1))[0].failure == "limit"
    assert judged.failure == "cut short"
    assert log.bodies[0]["max_completion_tokens"] == 3048
    assert "?reasoning_tokens=8192#" in caplog.text
    settings = ServerSettings.build({"url": log.url, "model": "m", "temperature": "none"})
    assert settings.temperature is None
    assert settings.judge_identity() != settings.model_copy(update={"reasoning_tokens": 9}).judge_identity()


def test_a_setting_that_a_reasoning_model_refuses_is_told_with_what_it_takes(tmp_path):
    said = b'{"error": {"message": "\'max_tokens\' is not supported with this model. Use \'max_completion_tokens\'."}}'
    match = r"try \?tokens_field=max_completion_tokens in the judge's address"
    with serving(rating, lambda call, body: "400", refusal=said) as log, pytest.raises(InputError, match=match):
        PromptedJudge(writer(log, tmp_path)).judge(requests_of(1))


def test_replies_on_the_disk_are_counted_without_reading_each_of_them_again(tmp_path, monkeypatch):
    limits = Limits(most_requests=100)
    opened = []
    read_text = Path.read_text
    with serving(rating) as log:
        PromptedJudge(writer(log, tmp_path, limits)).judge(requests_of(20))
        monkeypatch.setattr(Path, "read_text", lambda self, **how: (opened.append(self), read_text(self, **how))[1])
        own = writer(log, tmp_path, limits)
        for first in range(20, 25):
            PromptedJudge(own).judge(requests_of(1, first=first))
    assert not opened
    replies = ServerReplies(tmp_path)
    replies.update()
    assert replies.taken == (25, 2500, 250)


def test_a_torn_line_of_the_count_is_dropped_and_a_folder_without_its_count_is_refused(tmp_path):
    with serving(rating) as log:
        PromptedJudge(writer(log, tmp_path)).judge(requests_of(3))
        listed = ServerReplies(tmp_path).listed
        whole = listed.read_text().splitlines(keepends=True)
        listed.write_text("".join(whole) + whole[1][:20])
        PromptedJudge(writer(log, tmp_path)).judge(requests_of(4))
        assert listed.read_text().splitlines(keepends=True)[:3] == whole
        assert len(listed.read_text().splitlines()) == 4
        listed.write_text('{"request": 1}\n')
        with pytest.raises(InputError, match=r"replies\.jsonl is not a list of replies"):
            PromptedJudge(writer(log, tmp_path)).judge(requests_of(3))
        listed.unlink()
        with pytest.raises(InputError, match=r"holds replies and no replies\.jsonl"):
            PromptedJudge(writer(log, tmp_path)).judge(requests_of(3))
