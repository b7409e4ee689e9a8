"""nanoGCG 0.3.0 in a process of its own: one step at a time, each when a line comes in, its own loop unchanged.

It runs under another Python, with another transformers, and so imports nothing of ours. `benchmarks.gcg` starts it.
Every step prints a line of JSON: the prompt that the step began with, the candidates that it drew, their losses, and
the processor seconds of the gradient and of the losses alone.

    PEER_PYTHON benchmarks/peers/nanogcg_process.py FOLDER CASE.json
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast


def main(folder: str, case_file: str) -> None:
    """Search, pausing after every step."""
    # Here, since only the peer's Python has the package.
    import nanogcg.gcg as peer  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    case: dict[str, Any] = json.loads(Path(case_file).read_text())
    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(Path(folder) / "tokenizer.json"), unk_token="w0")
    tokenizer.chat_template = case["chat_template"]
    seen: dict[str, Any] = {}
    gradient_of, sampled_from, losses_of = (
        peer.GCG.compute_token_gradient,
        peer.sample_ids_from_grad,
        peer.GCG._compute_candidates_loss_original,
    )

    def gradient(self: Any, ids: torch.Tensor) -> torch.Tensor:
        began = time.process_time()
        found: torch.Tensor = gradient_of(self, ids)
        seen.update(gradient_s=time.process_time() - began, prompt=ids[0].tolist())
        return found

    def sampled(*given: Any, **named: Any) -> torch.Tensor:
        found: torch.Tensor = sampled_from(*given, **named)
        seen["candidates"] = found.tolist()
        return found

    def losses(self: Any, batch: int, embedded: torch.Tensor) -> torch.Tensor:
        began = time.process_time()
        found: torch.Tensor = losses_of(self, batch, embedded)
        if "candidates" in seen:
            seen.update(losses_s=time.process_time() - began, losses=found.tolist())
            print(json.dumps(seen), flush=True)
            sys.stdin.readline()
        return found

    peer.GCG.compute_token_gradient = gradient
    peer.sample_ids_from_grad = sampled
    peer.GCG._compute_candidates_loss_original = losses
    peer.run(model, tokenizer, case["messages"], case["target"], peer.GCGConfig(**case["config"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
