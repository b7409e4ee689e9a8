"""What a GPU does here beside what it can: scoring, decoding, digests, by number format and by rows together.

`python -m benchmarks.gpu` needs one CUDA device and no download: a Llama of half a billion random weights. The share is
2 x parameters x tokens a second of the rate that a product of two 8192 x 8192 matrices reaches on the same card.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from vestige.models import forward
from vestige.models.folders import weights_digest
from vestige.models.generation import generate
from vestige.models.prompts import Encoded
from vestige.models.scoring import score_answers

PROMPT, ANSWER, ROWS, NEW = 48, 12, 1024, 32


def seconds(run: Callable[[], Any], repeats: int = 3) -> float:
    """Median wall time, after one run that is not counted."""
    run()
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def product_rate(dtype: torch.dtype) -> float:
    """TFLOP/s of a large product."""
    a, b = (torch.randn(8192, 8192, dtype=dtype, device="cuda") for _ in range(2))
    return 2 * 8192**3 / seconds(lambda: a @ b) / 1e12


@contextmanager
def cpu_sizes() -> Iterator[None]:
    """Within it a GPU gets no more tokens a pass than a processor."""
    sizes = forward.GPU_COST, forward.GPU_TOKENS
    forward.GPU_COST, forward.GPU_TOKENS = 1, 1
    try:
        yield
    finally:
        forward.GPU_COST, forward.GPU_TOKENS = sizes


def half_billion() -> LlamaForCausalLM:
    """28 blocks of width 1024, 49,152 tokens, tied: 0.52 billion parameters."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=16,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    model: LlamaForCausalLM = LlamaForCausalLM(config).eval()
    return model


def main() -> None:
    """Print a row for each format."""
    rng = np.random.default_rng(0)
    prompts = [[int(t) for t in rng.integers(5, 49_000, PROMPT)] for _ in range(ROWS)]
    rows = [
        Encoded((*p, *(int(t) for t in rng.integers(5, 49_000, ANSWER)), 2), PROMPT, PROMPT + ANSWER, PROMPT + ANSWER)
        for p in prompts
    ]
    model = half_billion()
    nn.Module.to(model, "cuda")
    n = sum(p.numel() for p in model.parameters())
    line: dict[str, Any] = {"card": torch.cuda.get_device_name(), "torch": torch.__version__, "parameters": n}
    line["digest_s"] = seconds(lambda: weights_digest(model), 1)
    print(json.dumps(line))
    exact: np.ndarray[Any, Any] | None = None
    for name in ("float32", "tf32", "bfloat16"):
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        dtype = torch.bfloat16 if name == "bfloat16" else torch.float32
        nn.Module.to(model, dtype)
        peak = product_rate(dtype)
        logp = np.array([a.logp for a in score_answers(model, rows)])
        exact = logp if exact is None else exact
        scoring = seconds(lambda: score_answers(model, rows))
        decoding = seconds(lambda: generate(model, prompts[:512], end_ids=[2], max_new_tokens=NEW), 1)
        with cpu_sizes():
            small_scoring = seconds(lambda: score_answers(model, rows), 1)
            small_decoding = seconds(lambda: generate(model, prompts[:512], end_ids=[2], max_new_tokens=NEW), 1)
        read = ROWS * (PROMPT + ANSWER + 1)
        line = {
            "format": name,
            "product_tflops": round(peak, 1),
            "scoring_tokens_s": round(read / scoring),
            "scoring_share": round(2 * n * read / scoring / peak / 1e12, 3),
            "scoring_gain_of_larger_passes": round(small_scoring / scoring, 2),
            "decoding_tokens_s": round(512 * NEW / decoding),
            "decoding_share": round(2 * n * 512 * (NEW + PROMPT) / decoding / peak / 1e12, 3),
            "decoding_gain_of_more_rows": round(small_decoding / decoding, 2),
            "largest_difference_nats": float(np.abs(logp - exact).max()),
            "median_difference_nats": float(np.median(np.abs(logp - exact))),
            "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 1),
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
