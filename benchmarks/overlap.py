"""How much memory the filter by overlap holds while it asks a server: RMU's size, many prompts against long texts.

    python -m benchmarks.overlap [--prompts 2000] [--texts 200] [--characters 32000] [--folder FOLDER]

The server is a process of its own and answers every request with "no". Printed are the resident set before the first
request, and after every tenth of the requests its peak and the processor's seconds; the replies lie in the folder until
the end, a file a request, each as long as a text.
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

REPLY = json.dumps(
    {
        "model": "fake",
        "choices": [{"message": {"role": "assistant", "content": '{"supported": false}'}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 8000, "completion_tokens": 5},
    }
).encode()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while head := await reader.readuntil(b"\r\n\r\n"):
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(REPLY), REPLY))
        await writer.drain()


def serve(told: Connection) -> None:
    """Answer on a port of its own, which is `told`, until the process is ended."""

    async def run() -> None:
        server = await asyncio.start_server(_answer, "127.0.0.1", limit=2**20)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def resident_mb() -> int:
    """The most that this process ever held (MB of 10^6 bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // 10**6


def main() -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("prompts", 2000), ("texts", 200), ("characters", 32_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        measure(asked, f"http://127.0.0.1:{ours.recv()}/v1", Path(folder))
    server.terminate()


def measure(asked: argparse.Namespace, url: str, folder: Path) -> None:
    """Hold every prompt against every text."""
    import numpy as np

    from vestige.artifacts.holes import Candidate
    from vestige.judges.base import Judgement, Request
    from vestige.judges.server import ServerWriter
    from vestige.judges.spec import ServerSettings
    from vestige.judges.tasks import PromptedJudge
    from vestige.probes.filters import Actors, FilterSettings, _Desk, _drop_overlapping

    texts = [(f"{n} alpha beta gamma " * asked.characters)[: asked.characters] for n in range(asked.texts)]
    candidates = [Candidate(f"What is the role of subject {n}?", "search", "") for n in range(asked.prompts)]
    asks = PromptedJudge(ServerWriter(ServerSettings(url=url, model="fake", concurrency=64), folder))

    class Watched:
        """The judge, with a line after every tenth of what it is asked."""

        name, n = asks.name, 0

        def judge(self, requests: Sequence[Request]) -> list[Judgement]:
            found = asks.judge(requests)
            before, self.n = self.n, self.n + len(requests)
            if before // tenth < self.n // tenth:
                seconds = round(time.process_time() - began)
                told = {"requests": self.n, "peak_mb": resident_mb(), "cpu_seconds": seconds}
                print(json.dumps(told), flush=True)
            return found

    silent: Any = None
    actors = Actors(silent, silent, Watched(), lambda prompts: np.zeros((len(prompts), 1)))
    desk = _Desk(candidates, actors, FilterSettings(nearest_texts=0), {}, {})
    tenth = asked.prompts * asked.texts // 10
    print(json.dumps({"requests": 0, "peak_mb": resident_mb()}), flush=True)
    began = time.process_time()
    _drop_overlapping(desk, texts, dict.fromkeys(range(asked.prompts), "It matters."), {})


if __name__ == "__main__":
    main()
