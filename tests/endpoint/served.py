"""The scripted server, as a model in memory answers behind it: like vLLM's, like others, and as it is told."""

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from tests.judges import faulty_server
from tests.judges.faulty_server import Log, Rejection, Trouble

from vestige.models.generation import Sampling, generate
from vestige.models.load import LoadedModel, context_tokens

Kind = Literal["vllm", "replies"]
"""Like vLLM's; with replies to tokens and to chats alone."""


@dataclass
class Model:
    """What answers: `alter` changes what a reply says just before it is sent."""

    loaded: LoadedModel
    kind: Kind
    alter: Callable[[dict, dict], None]

    def completion(self, body: dict) -> dict:
        ids, known = body["prompt"], {"prompt_logprobs", "return_token_ids", "stop_token_ids"}
        if self.kind != "vllm" and known & set(body):
            raise Rejection("unknown parameters")
        if self.kind == "replies" and "logprobs" in body:
            raise Rejection("no logprobs")
        choice = self._reply(ids, body)
        if "prompt_logprobs" in body:
            choice["prompt_logprobs"] = [None, *(ranked(*row) for row in self._prompt(ids))]
        found = {"choices": [choice], "usage": {"prompt_tokens": len(ids)}}
        self.alter(body, found)
        return found

    def chat(self, body: dict) -> dict:
        if self.kind != "vllm" and "top_k" in body:
            raise Rejection("unknown parameters")
        text = self.loaded.prompter.chat(body["messages"], answered=False)
        choice = self._reply(self.loaded.tokenizer(text, add_special_tokens=False)["input_ids"], body)
        choice["message"] = {"role": "assistant", "content": choice.pop("text")}
        tops = choice.pop("logprobs", {}).get("top_logprobs", [])
        choice["logprobs"] = {"content": [{"top_logprobs": [{"logprob": v} for v in t.values()]} for t in tops]}
        found = {"choices": [choice], "usage": {"prompt_tokens": 7}}
        self.alter(body, found)
        return found

    def _reply(self, ids: list[int], body: dict) -> dict[str, Any]:
        heat = body["temperature"]
        (reply,) = generate(
            self.loaded.model,
            [ids],
            end_ids=body.get("stop_token_ids", self.loaded.prompter.end_ids),
            max_new_tokens=body["max_tokens"],
            context=context_tokens(self.loaded.model),
            sampling=Sampling(heat, body.get("top_p", 1.0), (body.get("seed", 0),)) if heat else None,
        )
        said: dict[str, Any] = {
            "text": self.loaded.tokenizer.decode(list(reply.ids), skip_special_tokens=True),
            "finish_reason": reply.finish,
        }
        if body.get("logprobs"):
            said["logprobs"] = {"top_logprobs": [{"a": -0.5, "b": -0.5 - reply.margin}]}
        if body.get("return_token_ids"):
            said["token_ids"] = [*reply.ids, *(self.loaded.prompter.end_ids[:1] if reply.finish == "stop" else ())]
        return said

    def _prompt(self, ids: list[int]) -> list[tuple[list[float], int]]:
        """All tokens' log-probabilities at each place but the first, and the token that stands there."""
        with torch.inference_mode():
            logits = self.loaded.model(input_ids=torch.tensor([ids])).logits[0].float()
        return list(zip(logits.log_softmax(-1)[:-1].tolist(), ids[1:], strict=True))


def ranked(row: list[float], token: int) -> dict[str, dict]:
    """As vLLM sends it: the token and the likeliest, by id."""
    top = max(range(len(row)), key=row.__getitem__)
    rank = {i: 1 + sum(value > row[i] for value in row) for i in (token, top)}
    return {str(i): {"logprob": row[i], "rank": rank[i], "decoded_token": "\x1b[31m<b>"} for i in (token, top)}


def serving(
    loaded: LoadedModel,
    kind: Kind = "vllm",
    trouble: Trouble = lambda call, body: "",
    alter: Callable[[dict, dict], None] = lambda body, found: None,
) -> contextlib.AbstractContextManager[Log]:
    model, one_at_a_time = Model(loaded, kind, alter), threading.Lock()

    def raw(body: dict) -> bytes:
        with one_at_a_time:
            return json.dumps(model.chat(body) if "messages" in body else model.completion(body)).encode()

    def listed(path: str) -> Any:
        if path == "/version":
            return {"version": "0.1.nano"} if kind == "vllm" else None
        window = {"max_model_len": context_tokens(loaded.model)} if kind == "vllm" else {}
        return {"data": [{"id": "nano", "owned_by": kind} | window]}

    return faulty_server.serving(trouble=trouble, raw=raw, listed=listed)
