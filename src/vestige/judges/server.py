"""A writer that is any OpenAI-compatible server: several requests at a time, retried, limited, kept on the disk.

A reply that came is never paid for twice: it is on the disk before it is used. After a kill, only the requests under
way, at most `concurrency`, are sent again, because their replies were lost.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from vestige.core.errors import InputError
from vestige.core.files import locked
from vestige.judges.base import Prompt, Written
from vestige.judges.spec import ServerSettings
from vestige.judges.spending import Kept, ServerReplies, estimated_tokens, most_of, request_name
from vestige.models.address import Amount
from vestige.models.http import Client, Fault, Garbled, Job, Ledger, used_tokens

_FILTERED = "content_filter"
# OpenAI's word, and that of servers which speak like Anthropic's.
_CUT = {"length", "max_tokens"}
# What is wrong with one request. A key, a path or a credit is everybody's trouble.
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
    def reserved(self) -> tuple[str, ...]:
        """Not known of a server. The common templates' marks are made harmless everywhere (`texts`)."""
        return ()

    def write(self, prompts: Sequence[Prompt]) -> list[Written]:
        """One reply each, in order. Equal prompts are sent once. An error that no request can fix is an InputError."""
        names = [request_name(self.settings.url, body_of(self.settings, prompt)) for prompt in prompts]
        by_name = dict(zip(names, prompts, strict=True))
        with locked(self.folder / ".lock", patience_seconds=0.0):
            self._replies.mend()
            self._replies.update()
            client = Client(self.settings, Ledger(self.settings, self._replies.taken))
            rejections: list[str] = []
            written = client.each(by_name.items(), lambda job: self._ask(client, rejections, *job), finish=True)
            self._replies.update()
        # Of one among many the text is at fault; of all of them the settings.
        if written and all(w.failure == "rejected" for w in written):
            text = f"{rejections[-1]}{_hint(rejections[-1])}"
            raise InputError(f"the judge's server at {self.settings.url} rejects every request: {text}")
        replies = dict(zip(by_name, written, strict=True))
        self._tell(prompts, [replies[name] for name in names])
        return [replies[name] for name in names]

    @cached_property
    def _replies(self) -> ServerReplies:
        # One for all that is written, so that the list is read on and no note is told twice.
        return ServerReplies(self.folder)

    def _tell(self, prompts: Sequence[Prompt], written: Sequence[Written]) -> None:
        """Print an urgent message once, immediately."""
        notes = self._replies.other_models()
        pairs = zip(prompts, written, strict=True)
        # A verdict before the cut counts, so that it is no news.
        n_cut = sum(w.failure == "cut short" and not p.accepts(w.text) for p, w in pairs)
        if n_cut:
            notes.append(
                f"{n_cut} of {len(prompts)} replies of {self.settings.model!r} ended at their limit of tokens without "
                "a verdict and are not counted; a model that thinks before it answers needs more tokens: "
                "--judge 'URL?reasoning_tokens=8192#NAME'"
            )
        for note in notes:
            # Their counts grow, and are no news.
            if (news := re.sub(r"\(?[\d,]+ ", "", note)) not in self._replies.told:
                self._replies.told.add(news)
                _LOG.warning("%s", note)

    async def _ask(self, client: Client, rejections: list[str], name: str, prompt: Prompt) -> Written:
        """Ask until a reply is taken, the readings are used up, or no reply can be had."""
        replies, body = self._replies.read(name), body_of(self.settings, prompt)
        most = most_of(prompt, self.settings.reasoning_tokens)
        job = Job("chat/completions", body, partial(_reply, client, prompt), most, _amount)
        # The disk may hold replies of an earlier run, of which the last may be enough.
        while (done := _come_to(prompt, replies, self.settings.readings)) is None:
            try:
                replies.append(await client.reply(job))
            except Fault as fault:
                words = client.told(str(fault))
                self._refuse_for_all(fault, words, answered=client.answered)
                rejections += [words] if fault.failure == "rejected" else []
                return Written(replies[-1].text if replies else "", fault.failure)
            self._replies.write(name, self.settings.url, body, replies)
        return done

    def _refuse_for_all(self, fault: Fault, words: str, *, answered: bool) -> None:
        """Raise InputError for errors that no request can fix."""
        # Once a server has answered, a broken line is a fault of one request.
        if fault.failure == "connection" and not answered:
            raise InputError(f"no judge answers at {self.settings.url} ({words}). Start the server or correct the URL")
        if not fault.again and fault.code not in _ONE_REQUESTS_FAULT:
            raise InputError(
                f"the judge's server at {self.settings.url} refuses the model {self.settings.model!r} ({words}). "
                f"Look at the URL, the model's name and the key in {self.settings.key_variable}"
            )


def body_of(settings: ServerSettings, prompt: Prompt) -> dict[str, Any]:
    """Return the request's body."""
    # Without a system message a model is asked as it stands, under its template's own one.
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    body: dict[str, Any] = {
        "model": settings.model,
        "messages": [*system, {"role": "user", "content": prompt.user}],
        settings.tokens_field: prompt.max_tokens + settings.reasoning_tokens,
    }
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.seed is not None:
        body["seed"] = settings.seed
    return body


def _reply(client: Client, prompt: Prompt, body: Any) -> Kept:
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


def _come_to(prompt: Prompt, replies: Sequence[Kept], readings: int) -> Written | None:
    if not replies:
        return None
    last = replies[-1]
    if last.finish == _FILTERED:
        return Written(last.text, "filtered")
    # A reply that cannot be read is asked for again: at a temperature, or by chance, the next one may be.
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


def _amount(reply: Kept) -> Amount:
    return Amount(1, reply.prompt_tokens, reply.completion_tokens)
