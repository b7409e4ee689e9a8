"""An OpenAI-compatible server for tests that a model in memory answers: like vLLM's, like others, and as it is told."""

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import torch

from vestige.models.generation import Sampling, generate
from vestige.models.load import LoadedModel, context_tokens

Kind = Literal["vllm", "echo", "replies"]
"""Like vLLM's; with `echo` for tokens, and without ranks; with replies to text and to chats alone."""
Trouble = Callable[[int, dict], str]
"""From the number of the call and its body to what goes wrong; "" for a good reply."""


@dataclass
class Log:
    url: str = ""
    bodies: list[dict] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    paths: Counter = field(default_factory=Counter)
    connections: int = 0
    under_way: int = 0
    most_under_way: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Rejection(Exception):
    """A request that this kind of server does not take."""


@dataclass
class Model:
    """What answers: `alter` changes what a reply says just before it is sent."""

    loaded: LoadedModel
    kind: Kind
    alter: Callable[[dict, dict], None]

    def completion(self, body: dict) -> dict:
        tokenizer = self.loaded.tokenizer
        asked, known = body["prompt"], {"prompt_logprobs", "return_token_ids", "stop_token_ids"}
        if self.kind != "vllm" and known & set(body):
            raise Rejection("unknown parameters")
        if self.kind == "replies" and (not isinstance(asked, str) or "logprobs" in body):
            raise Rejection("prompt must be a string, without logprobs")
        ids = tokenizer(asked, add_special_tokens=False)["input_ids"] if isinstance(asked, str) else asked
        choice = self._reply(ids, body)
        if body.get("echo"):
            rows = self._prompt(ids)
            choice["logprobs"] = {
                "token_logprobs": [None, *(row[token] for row, token in rows), -0.1],
                "top_logprobs": [None, *({"top": max(row)} for row, _ in rows), {"top": -0.1}],
            }
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


@contextlib.contextmanager
def serving(
    loaded: LoadedModel,
    kind: Kind = "vllm",
    trouble: Trouble = lambda call, body: "",
    alter: Callable[[dict, dict], None] = lambda body, found: None,
) -> Iterator[Log]:
    log, model, one_at_a_time = Log(), Model(loaded, kind, alter), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            with log.lock:
                log.connections += 1

        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == "/version":
                self._send(200 if kind == "vllm" else 404, {"version": "0.1.nano"})
            else:
                row = {"id": "nano", "owned_by": kind}
                window = {"max_model_len": context_tokens(loaded.model)} if kind == "vllm" else {}
                self._send(200, {"data": [row | window]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with log.lock:
                call = len(log.bodies)
                log.bodies.append(body)
                log.paths[self.path] += 1
                log.keys.add(self.headers.get("Authorization", ""))
                log.under_way += 1
                log.most_under_way = max(log.most_under_way, log.under_way)
            try:
                self._answer(trouble(call, body), body)
            finally:
                with log.lock:
                    log.under_way -= 1

        def _answer(self, wrong: str, body: dict) -> None:
            if wrong.isdecimal():
                self._send(int(wrong), {"error": f"no: {self.headers.get('Authorization')}"})
            elif wrong == "drop":
                self.close_connection = True
            elif wrong == "garbage":
                self._send(200, "<html>")
            else:
                try:
                    with one_at_a_time:
                        found = model.chat(body) if self.path.endswith("chat/completions") else model.completion(body)
                except Rejection as error:
                    self._send(422, {"error": str(error)})
                    return
                self._send(200, found)

        def _send(self, status: int, content: Any) -> None:
            data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Retry-After", "0")
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(data)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

    server = Server(("127.0.0.1", 0), Handler)
    log.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield log
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
