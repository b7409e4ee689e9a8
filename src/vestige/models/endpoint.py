"""A model behind an OpenAI-compatible server, with the same interface as one in memory.

With the model's tokeniser prompts are rendered here and sent as tokens. Without it they are sent as chat messages,
which the server renders. Answers are scored from the log-probabilities of prompts, which vLLM gives
(`prompt_logprobs`). A server's abilities are tested before use, with pairs of texts of which one must be likelier: a
server with wrong scores would put every model at chance.

Log-probabilities are in nats.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal
from urllib.parse import urlsplit

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.text import Fields, Record, TextByName, TextTuple, one_line
from vestige.models.address import Address, Amount, address
from vestige.models.folders import ModelDigest, tokenizer_digest
from vestige.models.generation import Reply, Sampling
from vestige.models.http import Client, Fault, Garbled, Job, Ledger, Rejected, numbers, used_tokens
from vestige.models.load import LoadedModel, ModelSettings, read_tokenizer
from vestige.models.places import find
from vestige.models.prompts import Encoded, Prompter
from vestige.models.reading import Asking, LetterPrompt, LetterScore, Prompted, TextReading, TextScore, Way
from vestige.models.scoring import AnswerScore

VERSION = 2
"""Part of a served model's identity. Raised when requests to the same server change."""

_LOG = logging.getLogger(__name__)
# Some servers only accept seeds of 31 bits.
_SEEDS = 2**31
# These must never change: other questions would give every served model another identity.
_FINGERPRINT = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Which number comes after 1, 1, 2, 3, 5, 8?",
)
_FINGERPRINT_TOKENS = 16
_USER, _ASSISTANT, _END = "\ue0f1", "\ue0f2", "\ue0f3"
"""The marks around turns that the server renders: characters of the private use area, which no text should contain."""
_CUT = {"length", "max_tokens"}
_GENERATION_CONFIG = (
    "which would pass for something forgotten. Serve the model without the limits in its generation_config.json (vLLM: "
    "--generation-config vllm)"
)
_SCORES = "prompt_logprobs"
_MOST_LETTERS = 1_000
"""The maximum length of a token. No vocabulary has longer ones."""
_NO_SCORES = (
    "qa and freeform read replies alone, and so does choices with texts=false and letters=false; scores need the "
    "model's tokeniser in the address (?tokenizer=FOLDER) and a server that gives log-probabilities of prompts (vLLM)"
)


@dataclass(frozen=True)
class Ability:
    """The input that a server accepts: prompts as tokens or as chats, and the further settings."""

    form: Literal["tokens", "chat"]
    more: Record
    tokens_field: str = "max_tokens"


@dataclass(frozen=True)
class Endpoint:
    """The engine."""

    to: Address
    client: Client
    tokenizer: PreTrainedTokenizerBase
    ability: Ability
    scores: bool = False

    @property
    def prefills(self) -> bool:
        """Whether the server can continue a given beginning of a reply. Chat messages do not allow it."""
        return self.ability.form != "chat"

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        end_ids: Sequence[int],
        max_new_tokens: int,
        context: int | None = None,
        sampling: Sampling | None = None,
    ) -> list[Reply]:
        """Return replies to `prompts`, in order. A server without seeds draws its own samples."""
        return self.client.all(self._reply_jobs(prompts, end_ids, max_new_tokens, context, sampling))

    def generate_each(
        self,
        prompts: Sequence[Sequence[int]],
        take: Callable[[int, Reply | None], None],
        *,
        end_ids: Sequence[int],
        max_new_tokens: int,
        context: int | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        """Like `generate`, but `take` receives each prompt's number and reply immediately.

        The reply is None if the server rejects the prompt or filters the reply.
        """
        self.client.tell_each(self._reply_jobs(prompts, end_ids, max_new_tokens, context, sampling), take)

    def _reply_jobs(
        self,
        prompts: Sequence[Sequence[int]],
        end_ids: Sequence[int],
        max_new_tokens: int,
        context: int | None,
        sampling: Sampling | None,
    ) -> Iterator[Job[Reply]]:
        options: list[Fields] = [{"temperature": 0.0} for _ in prompts]
        if sampling is not None:
            draws = {"temperature": sampling.temperature, "top_p": sampling.top_p}
            options = [{**draws, "seed": seed % _SEEDS} for seed in sampling.seeds]
        room = [min(max_new_tokens, (context or sys.maxsize) - len(p)) for p in prompts]
        return (self._reply_job(*row, end_ids) for row in zip(prompts, room, options, strict=True))

    def score_answers(self, encoded: Sequence[Encoded], *, whole: bool = False) -> list[AnswerScore]:
        """Scores of the answers, in the order given."""
        scores = self.client.all(self._score_job(e.ids[: e.end + 1], e.start) for e in encoded)
        return [score.answer(e) for score, e in zip(scores, encoded, strict=True)]

    def read(self, prompted: Sequence[Prompted], asking: Asking) -> list[TextReading]:
        """Return the requested values of each prompt, in order. Equal texts are read once."""
        texts: dict[tuple[tuple[int, ...], tuple[int, ...]], None] = {}
        for p in prompted:
            texts |= dict.fromkeys((p.prompt, text) for text in p.texts)
        to_answer = dict.fromkeys((p.prompt, p.most_new) for p in prompted if p.most_new)

        def jobs() -> Iterator[Job[TextScore | Reply]]:
            for prompt, text in texts:
                yield self._score_job((*prompt, *text), len(prompt))
            for prompt, most in to_answer:
                room = min(most, asking.context - len(prompt))
                yield self._reply_job(prompt, room, {"temperature": 0.0}, asking.end_ids)

        answers = dict(zip([*texts, *to_answer], self.client.all(jobs()), strict=True))
        readings = []
        for p in prompted:
            scores = [answers[p.prompt, text] for text in p.texts]
            reply = answers[p.prompt, p.most_new] if p.most_new else None
            assert reply is None or isinstance(reply, Reply)
            readings.append(TextReading(tuple(s for s in scores if isinstance(s, TextScore)), reply))
        return readings

    def score_letters(self, prompts: Sequence[LetterPrompt]) -> list[LetterScore]:
        """Return the next letters after each prompt, in order. Letters among the likeliest tokens are included."""

        # One request per letter, because a server reports only the given token and the likeliest ones.
        def jobs() -> Iterator[Job[TextScore]]:
            for a in prompts:
                for letter in a.letters:
                    yield self._score_job((*a.prompt, letter), len(a.prompt))

        found = iter(self.client.all(jobs()))
        scores = []
        for a in prompts:
            of_letters = [next(found) for _ in a.letters]
            logp = tuple(score.logp[0] for score in of_letters)
            best = max(*(score.best[0] for score in of_letters if score.best), *logp)
            tied = [letter for letter, value in zip(a.letters, logp, strict=True) if value == best]
            scores.append(LetterScore(logp, tied[0] if tied else -1, best, max(1, len(tied))))
        return scores

    def _reply_job(self, prompt: Sequence[int], room: int, how: Record, end_ids: Sequence[int]) -> Job[Reply]:
        path, body = self._asked(prompt)
        body |= {self.ability.tokens_field: room, **self.ability.more, **how}
        if "return_token_ids" in body:
            body["stop_token_ids"] = list(end_ids)
        # A reply's margin shows near-ties of greedy decoding. A sample has no margin.
        if how["temperature"]:
            for name in ("logprobs", "top_logprobs"):
                body.pop(name, None)
        n = len(prompt) if self.ability.form != "chat" else None

        def read(body: Any) -> Reply:
            return self._reply(body, n, room, end_ids)

        return Job(path, body, read, Amount(1, len(prompt), room))

    def _asked(self, prompt: Sequence[int]) -> tuple[str, Fields]:
        """Return the path and the body's part with the prompt."""
        if self.ability.form == "tokens":
            return "completions", {"model": self.to.model, "prompt": list(prompt)}
        text = self.tokenizer.decode(list(prompt), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return "chat/completions", {"model": self.to.model, "messages": messages_of(text)}

    def _reply(self, body: Any, n_prompt: int | None, room: int, end_ids: Sequence[int]) -> Reply:
        """Return the first reply in `body`, with the prompt's number of tokens, if known."""
        choice = _choice(body)
        self._check_read(body, n_prompt)
        text = self.client.text(_said(choice))
        if len(text) > _MOST_LETTERS * room:
            raise Rejected(f"{self.to.shown} replies to {room} tokens with {len(text):,} characters")
        ids: Any = choice.get("token_ids")
        why = choice.get("finish_reason")
        if _are_ids(ids):
            n_received: int | None = len(ids)
            # A `Reply` excludes the token that ended it.
            if ids and ids[-1] in end_ids:
                ids = ids[:-1]
        elif "return_token_ids" in self.ability.more:
            raise Rejected(f"{self.to.shown} does not say which tokens a reply has")
        else:
            n_received = used_tokens(body)[1]
            ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        end: Any = choice.get("stop_reason")
        expected = n_prompt is None or end in end_ids or not _are_ids([end])
        if not expected and self.tokenizer.decode([end], skip_special_tokens=True):
            raise InputError(f"{self.to.shown} ends a reply at the token {end}, {_GENERATION_CONFIG}")
        # Some servers do not count the last token.
        if why in _CUT and n_received is not None and n_received + 1 < room:
            raise InputError(f"{self.to.shown} cuts a reply after {n_received} of {room} tokens, {_GENERATION_CONFIG}")
        if why == "content_filter":
            raise Fault("filtered", "its finish_reason is content_filter", again=False)
        if why in ("abort", "error"):
            raise Garbled(f"the server ended the reply ({why})")
        return Reply(tuple(ids), "length" if why in _CUT else "stop", _margin(choice.get("logprobs")))

    def _check_read(self, body: Any, n_prompt: int | None) -> None:
        usage = body.get("usage")
        n_read = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if n_prompt is not None and isinstance(n_read, int) and n_read not in (0, n_prompt):
            raise Rejected(
                f"{self.to.shown} reads {n_read} tokens where the tokeniser {one_line(self.to.tokenizer)} makes "
                f"{n_prompt}; give the tokeniser of the served model, or leave it out, and the server renders prompts"
            )

    def _score_job(self, ids: Sequence[int], start: int) -> Job[TextScore]:
        """Return the job that scores `ids[start:]` after the earlier tokens."""
        if not self.scores:
            raise InputError(f"{self.to.shown} does not score given answers: {_NO_SCORES}")
        path, body = self._asked(ids)
        body |= {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 1}

        def read(body: Any) -> TextScore:
            self._check_read(body, len(ids))
            return _prompt_scores(_choice(body), list(ids), start)

        return Job(path, body, read, Amount(1, len(ids), 1))


def _choice(body: Any) -> Fields:
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Garbled(str(body))
    return choices[0]


def _are_ids(value: Any) -> bool:
    # Python treats JSON's true as the number 1.
    return isinstance(value, list) and all(type(i) is int and i >= 0 for i in value)


def _margin(logprobs: Any) -> float | None:
    """Return the smallest difference between the two likeliest tokens of a reply, or None if not reported."""
    try:
        places = logprobs.get("content") or logprobs["top_logprobs"]
        gaps = []
        for token in places:
            # Chats return a list of entries, completions a table of tokens.
            tops = token.get("top_logprobs", token)
            values = [entry["logprob"] for entry in tops] if isinstance(tops, list) else [*tops.values()]
            first, second = sorted(numbers(values, len(values)))[-2:]
            gaps.append(second - first)
        return min(gaps)
    except (Rejected, TypeError, KeyError, ValueError, AttributeError):
        return None


def _prompt_scores(choice: Record, ids: list[int], start: int) -> TextScore:
    """vLLM's: at each place the token and the likeliest one, by id, with log-probability and rank."""
    places = choice.get("prompt_logprobs")
    if not isinstance(places, list) or len(places) != len(ids):
        raise Rejected("it gives no log-probabilities of prompts")
    try:
        chosen = [token[str(i)] for token, i in zip(places[start:], ids[start:], strict=True)]
        best = []
        for token in places[start:]:
            best.append(max(entry["logprob"] for entry in token.values()))
        ranks = [float(entry["rank"]) for entry in chosen]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Rejected("its log-probabilities of prompts are not those of the prompt's tokens") from error
    n = len(chosen)
    return TextScore(tuple(numbers([entry["logprob"] for entry in chosen], n)), tuple(ranks), tuple(numbers(best, n)))


def _said(choice: Record) -> Any:
    """The text of a reply. A reasoning field precedes the answer as a trace, since it is a part of the output."""
    message = choice.get("message")
    if not isinstance(message, dict):
        return choice.get("text")
    content = message.get("content")
    trace = message.get("reasoning_content") or message.get("reasoning")
    if not isinstance(trace, str):
        return content
    # A reply that was cut off within its trace has no content.
    return f"<think>{trace}</think>{content or ''}"


def messages_of(text: str) -> list[TextByName]:
    """Return the turns of a chat rendered by `text_tokenizer`'s template, up to the model's answer."""
    roles = {_USER: "user", _ASSISTANT: "assistant"}
    *turns, last = text.split(_END)
    if last != _ASSISTANT or not all(turn[:1] in roles for turn in turns):
        raise InputError(
            "without the model's tokeniser, replies cannot be prefilled and plain text cannot be continued. Give the "
            "tokeniser in the address (?tokenizer=FOLDER), or leave that out (prefilled, rendering=plain)"
        )
    return [{"role": roles[turn[0]], "content": turn[1:]} for turn in turns]


def text_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokeniser of bytes, for servers that render and tokenise."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_alone = Tokenizer(models.BPE({sign: n for n, sign in enumerate(alphabet)}, []))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bytes_alone.decoder = decoders.ByteLevel()
    bytes_alone.add_special_tokens([AddedToken(mark, special=True) for mark in (_USER, _ASSISTANT, _END)])
    template = (
        f"{{% for m in messages %}}{{% if m.role == 'user' %}}{_USER}{{% else %}}{_ASSISTANT}{{% endif %}}"
        f"{{{{ m.content }}}}{_END}{{% endfor %}}{{% if add_generation_prompt %}}{_ASSISTANT}{{% endif %}}"
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bytes_alone,
        eos_token=_END,
        additional_special_tokens=[_USER, _ASSISTANT],
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


@dataclass(frozen=True)
class EndpointModel(LoadedModel):
    """A model behind an address. It has no local weights: access to `model` raises an error.

    `told` is the server's own description, and `fingerprint` its model's replies to a few fixed prompts. `device` is
    where other models of the same command are loaded, such as the target that writes questions.
    """

    endpoint: Endpoint = field(kw_only=True)
    max_tokens: int = field(kw_only=True)
    told: str = field(kw_only=True)
    fingerprint: TextTuple = field(kw_only=True)
    device: str = field(kw_only=True)

    @cached_property
    def prompter(self) -> Prompter:
        """Renders and tokenises questions for this model."""
        return Prompter(self.tokenizer, self.max_tokens)

    @property
    def engine(self) -> Endpoint:
        """The answering model."""
        return self.endpoint

    @property
    def way(self) -> Way:
        """Each text has its own request."""
        return "plain"

    @property
    def advice(self) -> str:
        """The next step if the model has changed."""
        return "its server says otherwise or replies otherwise than before: take a new --output-dir"

    def provenance(self) -> TextByName:
        """Return its entry in provenance.json."""
        return {
            "device": f"behind the address {self.endpoint.to.shown}",
            "chat_template": self.template,
            "server": self.told,
            "prompts_sent_as": self.endpoint.ability.form,
            "scores_from": _SCORES if self.endpoint.scores else "none",
            "fingerprint": content_id(self.fingerprint),
        }

    def digest(self, weights: str = "") -> ModelDigest:
        """Return the digest of everything known about the model. A served model has no digest of its weights."""
        to, ability = self.endpoint.to, self.endpoint.ability
        return ModelDigest(
            weights=content_id([VERSION, to.url, to.model, self.told, self.fingerprint], length=64),
            config=content_id([ability.form, _SCORES if self.endpoint.scores else "", self.max_tokens], length=32),
            generation=content_id(sorted(ability.more), length=32),
            tokenizer=tokenizer_digest(self.tokenizer),
            template=self.prompter.template_digest,
        )


def open_endpoint(settings: ModelSettings) -> EndpointModel:
    """The model behind an address, once it was tried what its server is able to do.

    Rejects a server without an answer, without the model or with empty replies, a tokeniser other than the model's, and
    impossible log-probabilities.
    """
    to = address(settings.model)
    client = Client(to, Ledger(to))
    told, most = _told_by(to, client)
    if to.tokenizer:
        tokenizer, template = read_tokenizer(find(to.tokenizer, weights=False)[0], settings)
        tokenizer_most = tokenizer.model_max_length
        most = to.context or most or (tokenizer_most if tokenizer_most < 10**9 else None)
        if most is None:
            raise InputError(f"{to.shown} does not say how many tokens its model reads. Add ?context=4096")
    elif settings.chat_template:
        raise InputError(f"{to.shown} renders prompts itself. Leave --chat-template out, or give ?tokenizer=FOLDER")
    else:
        # Only the server can count its tokens.
        tokenizer, template, most = text_tokenizer(), "the server's", sys.maxsize
    prompter = Prompter(tokenizer, most)
    prompts = [prompter.prompt(question) for question in _FINGERPRINT]
    refusals = []
    for ability in _ABILITIES[bool(to.tokenizer)]:
        endpoint, most_new = Endpoint(to, client, tokenizer, ability), _FINGERPRINT_TOKENS
        try:
            # One by one, since a batching server's rounding depends on the other prompts.
            replies = [endpoint.generate([p], end_ids=prompter.end_ids, max_new_tokens=most_new)[0] for p in prompts]
            break
        except Rejected as error:
            refusals.append(error)
    else:
        way_out = ""
        if to.tokenizer:
            way_out = "; leave the tokeniser out where the server takes no tokens"
        raise InputError(f"{refusals[0]}{way_out}") from refusals[0]
    if to.tokenizer and to.scores:
        endpoint = _with_scores(endpoint, prompts, replies, prompter.end_ids[0])
    if not (endpoint.scores or to.silent or any(reply.ids for reply in replies)):
        raise InputError(
            f"{to.shown} replies nothing to {len(replies)} plain questions. If that is its model and not its server, "
            "say so: ?silent=yes"
        )
    return EndpointModel(
        None,
        tokenizer,
        to.shown,
        "",
        template,
        endpoint=endpoint,
        max_tokens=most,
        told=told,
        fingerprint=tuple(prompter.decode(reply.ids) for reply in replies),
        device=settings.device,
    )


def _told_by(to: Address, client: Client) -> tuple[str, int | None]:
    """Return the server's own description (`owned_by`, version, loaded model), and its context length."""
    try:
        listed = client.get(f"{to.url}/models")
    except Rejected:
        return "", None
    rows = listed.get("data") if isinstance(listed, dict) else None
    by_id = {str(row.get("id")): row for row in rows or () if isinstance(row, dict)}
    if by_id and to.model not in by_id:
        names = ", ".join(one_line(name, width=60) for name in list(by_id)[:8])
        raise InputError(f"{to.url} serves no model {one_line(to.model)!r}. Name one that it has: {names}")
    row = by_id.get(to.model, {})
    parts = urlsplit(to.url)
    try:
        version = client.get(f"{parts.scheme}://{parts.netloc}/version").get("version", "")
    except (Rejected, AttributeError):
        version = ""
    most = row.get("max_model_len")
    said = [client.text(v) for v in (row.get("owned_by"), version, row.get("root")) if isinstance(v, str) and v]
    return one_line(" ".join(said), width=300), most if isinstance(most, int) and most > 0 else None


_VLLM = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""vLLM would take these from the model's generation_config.json, and greedy replies would not be greedy."""
_ABILITIES: Mapping[bool, tuple[Ability, ...]] = {
    True: (
        Ability("tokens", {"logprobs": 2, "return_token_ids": True, **_VLLM}),
        Ability("tokens", {"logprobs": 2}),
        Ability("tokens", {}),
    ),
    False: (
        Ability("chat", {"logprobs": True, "top_logprobs": 2, **_VLLM}),
        Ability("chat", {"logprobs": True, "top_logprobs": 2}),
        Ability("chat", {}),
        Ability("chat", {}, tokens_field="max_completion_tokens"),
    ),
}
"""The tests in order, with a tokeniser and without."""


def _with_scores(
    endpoint: Endpoint, prompts: Sequence[tuple[int, ...]], replies: Sequence[Reply], end_id: int
) -> Endpoint:
    """Return the engine with scores, or unchanged if the server gives none.

    A model's greedy reply is likelier, token by token, than any other text: other scores are rejected.
    """
    scoring = replace(endpoint, scores=True)
    pairs = []
    for prompt, reply in zip(prompts, replies, strict=True):
        for n in (0, 3):
            if n <= len(reply.ids):
                before = (*prompt, *reply.ids[:n])
                token = (*reply.ids, end_id)[n]
                pairs += [(*before, token), (*before, next(i for i in (*before, 0, 1) if i != token))]
    try:
        if "return_token_ids" not in endpoint.ability.more:
            raise Rejected("it does not say which tokens a reply has")
        scores = endpoint.client.all([scoring._score_job(ids, len(ids) - 1) for ids in pairs])
    except Rejected as error:
        _LOG.warning("%s: answers are not scored, only replies are read: %s", endpoint.to.shown, error)
        return endpoint
    for likely, unlikely in zip(scores[::2], scores[1::2], strict=True):
        if not likely.logp[0] > unlikely.logp[0]:
            raise InputError(
                f"{endpoint.to.shown} gives impossible log-probabilities: {likely.logp[0]:.3g} for its model's "
                f"own reply and {unlikely.logp[0]:.3g} for another token in its place. Ask without scores (?scores=no)"
            )
    return scoring
