"""A writer that is any OpenAI-compatible server: several requests at a time, retried, limited, kept on the disk.

A reply that came is never paid for twice: it is on the disk before it is used. After a kill, only the requests under
way, at most `concurrency`, are sent again, because their replies were lost.

Replies are in one file for each request, named by its content and written whole. A file holds every reply to its
request, those without a verdict too, because they were paid for as well. No file holds a key. One more file counts all
replies: a line for each, with its tokens and the model that gave it.

A reply is counted before it is stored. So a kill never loses a count, and a reply that a kill lost counts.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from vestige.core.errors import InputError
from vestige.core.files import append_lines, drop_torn_line, json_line, locked, read_json, write_json
from vestige.core.ids import content_id
from vestige.core.text import Fields, Record, TextTuple, one_line
from vestige.judges.base import WriterPrompt, Written
from vestige.judges.spec import ServerSettings
from vestige.models.address import Amount
from vestige.models.http import Client, Fault, Garbled, Job, Ledger, used_tokens

# The bytes per token of English text in common tokenisers. An estimate: bookings against a limit use the bound below.
BYTES_PER_TOKEN = 4
# A generous bound for the tokens that a chat template adds to two messages.
_TEMPLATE_TOKENS = 64


def estimated_tokens(text: str) -> int:
    """Estimate the number of tokens in a text."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def most_of(prompt: WriterPrompt, reasoning_tokens: int) -> Amount:
    """The most that one call can take: no tokeniser of bytes makes more tokens than there are bytes."""
    sent = len(prompt.system.encode()) + len(prompt.user.encode()) + _TEMPLATE_TOKENS
    return Amount(1, sent, prompt.max_tokens + reasoning_tokens)


VERSION = 1
"""Part of each request's identity. Raised when an old reply must not represent a new one."""


class Kept(NamedTuple):
    """One reply with its tokens. `estimated` if the server did not report their number."""

    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    estimated: bool
    model: str


class ServerReplies:
    """The replies in a folder, and their count.

    `taken` is the sum of the counted replies, and `models` how many there are by (model asked for, model told).
    `update` reads the count on from where it ended. `told` has the printed notes, so that each is printed once.
    """

    def __init__(self, folder: Path) -> None:
        """Begin with nothing read."""
        self.folder = folder
        self.listed = folder / "replies.jsonl"
        self._n_read = 0
        self.taken = Amount(0, 0, 0)
        self.models: Counter[tuple[str, str]] = Counter()
        self.told: set[str] = set()

    def read(self, name: str) -> list[Kept]:
        """Return all replies to the request, oldest first."""
        path = self._path(name)
        if not path.exists():
            return []
        stored = read_json(path)
        try:
            return [Kept(**reply) for reply in stored["replies"]]
        except (TypeError, KeyError) as error:
            raise InputError(f"{path} is not a file of stored replies. Remove it to repeat its request") from error

    def write(self, name: str, url: str, body: Record, replies: Sequence[Kept]) -> None:
        """Count the last reply to a request, and store all replies."""
        reply = replies[-1]
        row = {
            "request": name,
            "asked": body["model"],
            "answered": reply.model,
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.completion_tokens,
        }
        append_lines(self.listed, [json_line(row)])
        write_json(self._path(name), {"url": url, "request": body, "replies": [r._asdict() for r in replies]})

    def _path(self, name: str) -> Path:
        # Folders have two digits: some systems are slow with a hundred thousand files in one.
        return self.folder / name[:2] / f"{name}.json"

    def mend(self) -> None:
        """Drop a line that a kill left torn. Only who has the folder's lock may."""
        drop_torn_line(self.listed)

    def update(self) -> None:
        """Read new entries of the list."""
        if not self.listed.exists():
            if next(self.folder.glob("[0-9a-f][0-9a-f]/*.json"), None) is not None:
                raise InputError(
                    f"{self.folder} holds replies and no {self.listed.name}, which lists them. Take another "
                    "output folder, or remove this one to have everything asked again"
                )
            return
        with self.listed.open("rb") as file:
            file.seek(self._n_read)
            added = file.read()
        # A line that another process is writing is read the next time.
        added = added[: added.rfind(b"\n") + 1]
        self._n_read += len(added)
        try:
            for row in map(json.loads, added.splitlines()):
                self.taken = self.taken.plus(Amount(1, int(row["prompt_tokens"]), int(row["completion_tokens"])))
                self.models[str(row["asked"]), str(row["answered"])] += 1
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(f"{self.listed} is not a list of replies. Choose another output folder") from error

    def other_models(self) -> list[str]:
        """Return a sentence for each model whose replies carry another or several names."""
        sentences = []
        for model in dict.fromkeys(model for model, _ in self.models):
            counts = {served: n for (name, served), n in self.models.items() if name == model and served}
            if counts.keys() <= {model}:
                continue
            names = ", ".join(f"{one_line(served)!r} ({n:,} replies)" for served, n in counts.items())
            mixed = ""
            if len(counts) > 1:
                mixed = "; the replies of several models stand side by side"
            sentences.append(f"the server was asked for the model {one_line(model)!r} and answered as {names}{mixed}")
        return sentences


_FILTERED = "content_filter"
# The words of OpenAI, and of servers with Anthropic's interface.
_CUT = {"length", "max_tokens"}
# Errors of a single request. A wrong key, path or credit affects all.
_ONE_REQUESTS_FAULT = {0, 400, 413, 422}
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerWriter:
    """The server as a writer. Replies are in `folder`. One command at a time may work there."""

    settings: ServerSettings
    folder: Path

    @property
    def name(self) -> str:
        """The model's."""
        return self.settings.model

    @property
    def reserved(self) -> TextTuple:
        """Not known of a server. The common templates' marks are made harmless everywhere (`texts`)."""
        return ()

    def write(self, prompts: Sequence[WriterPrompt]) -> list[Written]:
        """One reply each, in order. Equal prompts are sent once. An error that no request can fix is an InputError."""
        names = []
        for prompt in prompts:
            # The name of a request is the digest of all that can change its reply.
            asked = {"version": VERSION, "url": self.settings.url, "body": body_of(self.settings, prompt)}
            names.append(content_id(asked, length=32))
        by_name = dict(zip(names, prompts, strict=True))
        with locked(self.folder / ".lock", patience_seconds=0.0):
            self._replies.mend()
            self._replies.update()
            client = Client(self.settings, Ledger(self.settings, self._replies.taken))
            rejections: list[str] = []
            written = client.each(by_name.items(), lambda job: self._ask(client, rejections, *job), finish=True)
            self._replies.update()
        # A single rejection among many is the text's fault. If all are rejected, the settings are wrong.
        if written and all(w.failure == "rejected" for w in written):
            text = f"{rejections[-1]}{_hint(rejections[-1])}"
            raise InputError(f"the judge's server at {self.settings.url} rejects every request: {text}")
        replies = dict(zip(by_name, written, strict=True))
        self._tell(prompts, [replies[name] for name in names])
        return [replies[name] for name in names]

    @cached_property
    def _replies(self) -> ServerReplies:
        # One instance serves all writes, so that it continues its list and prints no note twice.
        return ServerReplies(self.folder)

    def _tell(self, prompts: Sequence[WriterPrompt], written: Sequence[Written]) -> None:
        """Print an urgent message once, immediately."""
        notes = self._replies.other_models()
        pairs = zip(prompts, written, strict=True)
        # A verdict before the cut counts, so it needs no note.
        n_cut = sum(w.failure == "cut short" and not p.accepts(w.text) for p, w in pairs)
        if n_cut:
            notes.append(
                f"{n_cut} of {len(prompts)} replies of {self.settings.model!r} ended at their limit of tokens without "
                "a verdict and are not counted; a model that thinks before it answers needs more tokens: "
                "--judge 'URL?reasoning_tokens=8192#NAME'"
            )
        for note in notes:
            # Growing counts are not worth a new note.
            if (news := re.sub(r"\(?[\d,]+ ", "", note)) not in self._replies.told:
                self._replies.told.add(news)
                _LOG.warning("%s", note)

    async def _ask(self, client: Client, rejections: list[str], name: str, prompt: WriterPrompt) -> Written:
        """Ask until a reply is taken, the readings are used up, or no reply can be had."""
        replies, body = self._replies.read(name), body_of(self.settings, prompt)
        most = most_of(prompt, self.settings.reasoning_tokens)
        job = Job(
            "chat/completions",
            body,
            partial(_reply, client, prompt),
            most,
            lambda reply: Amount(1, reply.prompt_tokens, reply.completion_tokens),
        )
        # The disk may contain replies of an earlier run, of which the last may be enough.
        while (done := _come_to(prompt, replies, self.settings.readings)) is None:
            try:
                replies.append(await client.reply(job))
            except Fault as fault:
                words = client.told(str(fault))
                self._refuse_for_all(fault, words, answered=client.answered)
                if fault.failure == "rejected":
                    rejections.append(words)
                return Written(replies[-1].text if replies else "", fault.failure)
            self._replies.write(name, self.settings.url, body, replies)
        return done

    def _refuse_for_all(self, fault: Fault, words: str, *, answered: bool) -> None:
        """Raise InputError for errors that no request can fix."""
        # After a server has answered, a broken connection is the fault of one request.
        if fault.failure == "connection" and not answered:
            raise InputError(f"no judge answers at {self.settings.url} ({words}). Start the server or correct the URL")
        if not fault.again and fault.code not in _ONE_REQUESTS_FAULT:
            raise InputError(
                f"the judge's server at {self.settings.url} refuses the model {self.settings.model!r} ({words}). "
                f"Look at the URL, the model's name and the key in {self.settings.key_variable}"
            )


def body_of(settings: ServerSettings, prompt: WriterPrompt) -> Fields:
    """Return the request's body."""
    # Without a system message, the template's own one applies.
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    body: Fields = {
        "model": settings.model,
        "messages": [*system, {"role": "user", "content": prompt.user}],
        settings.tokens_field: prompt.max_tokens + settings.reasoning_tokens,
    }
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.seed is not None:
        body["seed"] = settings.seed
    return body


def _reply(client: Client, prompt: WriterPrompt, body: Any) -> Kept:
    """Return the model's text. A reasoning model's trace is stored with it, and is not a verdict."""
    try:
        choice, tokens = body["choices"][0], used_tokens(body)
        text, finish = _text(choice["message"]["content"]), choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Garbled(str(body)) from error
    clean = client.text(text)
    if tokens[0] is None:
        n_asked = estimated_tokens(prompt.system + prompt.user)
    else:
        n_asked = tokens[0]
    if tokens[1] is None:
        wrote = estimated_tokens(clean)
    else:
        wrote = tokens[1]
    finished, model = (client.told(str(words or "")) for words in (finish, body.get("model")))
    return Kept(clean, finished, n_asked, wrote, None in tokens, model)


def _text(content: Any) -> Any:
    """A message's content: a string, parts with text, or nothing at all."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") == "text")
    return content


def _come_to(prompt: WriterPrompt, replies: Sequence[Kept], readings: int) -> Written | None:
    if not replies:
        return None
    last = replies[-1]
    if last.finish == _FILTERED:
        return Written(last.text, "filtered")
    # An unreadable reply is requested again: with a temperature, or by chance, the next one may be readable.
    if prompt.accepts(last.text) or len(replies) >= readings:
        return Written(last.text, "cut short" if last.finish in _CUT else "")
    return None


def _hint(rejection: str) -> str:
    """Return a suggestion if a server rejects a setting, as some reasoning models do."""
    if "max_completion_tokens" in rejection:
        return "; try ?tokens_field=max_completion_tokens in the judge's address"
    if "temperature" in rejection:
        return "; try ?temperature=none in the judge's address"
    return ""
