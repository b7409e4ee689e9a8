"""How fast a policy learns beside TRL 0.11.4's PPO, the last that is given scores, and whether it is the same.

    python3 -m venv PEER && PEER/bin/pip install trl==0.11.4 transformers==4.45.1 peft==0.13.2 torch==2.13.0+cpu rich
    python -m benchmarks.policy --peer-python PEER/bin/python --json [--rounds 5]

The tiny shape, random but for its seed; 16 prompts of 24 tokens, replies of 24; adapters of rank 32 in all products of
the blocks, the reference is the model without them; 4 epochs in minibatches of 8, a step of the optimiser each. The
peer runs in a process of its own (`benchmarks/peers/trl_ppo_process.py`) with the same weights and first adapters. Arms
take turns, one thread each; a first round is dropped. `ratio` is the peer's CPU seconds of an iteration (drawing and
learning) over ours, the median of the rounds with the least and the greatest. What a target and a judge cost is not in.

`bfloat16`: the model's weights in bfloat16, adapters and value head in float32, products in bfloat16 throughout.

`equal`: one step of 4 epochs, all 16 rows a step of the optimiser, on the same replies and scores, learning rate 1e-3,
leaves log-probabilities within `tolerance` nats of the peer's, and values; `moved` is how far the step moved them. Both
are at temperature 1 and without the entropy bonus there, since the peer knows neither, and no gradient is held: the
peer keeps its parameters in an iterator, which is used up after one update, and holds none from then on.

`draw`: CPU milliseconds of drawing a token for each of 64 rows (bar: 50 at 128,256 words without a nucleus).
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from benchmarks.workload import SHAPES, model_of
from vestige.core.seeds import generator
from vestige.models.generation import draw
from vestige.training.policy.losses import standardised
from vestige.training.policy.rollouts import judged, sample
from vestige.training.policy.settings import PolicySettings, Precision
from vestige.training.policy.updates import Policy

N_PROMPTS, N_TOKENS, MINIBATCH = 16, 24, 8
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
TOLERANCE = 1e-4

Ask = Callable[[dict[str, Any]], dict[str, Any]]


def settings_of(precision: Precision, **changed: Any) -> PolicySettings:
    """Those of an iteration."""
    sizes = {"batch_size": MINIBATCH, "minibatch_size": MINIBATCH, "n_tokens": N_TOKENS, "n_rollouts": N_PROMPTS}
    return PolicySettings.build({"precision": precision, **sizes, **changed})


def policy_of(settings: PolicySettings) -> Policy:
    """The tiny shape as a policy."""
    model = model_of("tiny").eval()
    return Policy.of(model.to(torch.bfloat16) if settings.precision == "bfloat16" else model, settings, seed=0)


def drawn_prompts() -> list[tuple[int, ...]]:
    """16 prompts of 24 tokens."""
    tokens = generator(0, "prompts for policies").integers(3, SHAPES["tiny"]["vocab_size"], (N_PROMPTS, N_TOKENS))
    return [tuple(row) for row in tokens.tolist()]


@contextmanager
def peer(python: Path, settings: PolicySettings, *, batch: int) -> Iterator[Ask]:
    """TRL's trainer in a process of its own, with the weights and adapters that a policy of ours begins with."""
    policy = policy_of(settings)
    case = {
        "prompts": drawn_prompts(),
        "vocabulary": SHAPES["tiny"]["vocab_size"],
        "lora_rank": settings.lora_rank,
        "lora_alpha": settings.lora_alpha,
        "config": {
            "batch_size": N_PROMPTS,
            "mini_batch_size": batch,
            "ppo_epochs": settings.epochs,
            "init_kl_coef": settings.kl_coef,
            "adap_kl_ctrl": False,
            "gamma": settings.gamma,
            "lam": settings.gae_lambda,
            "cliprange": settings.clip,
            "cliprange_value": settings.value_clip,
            "vf_coef": settings.value_coef,
            "max_grad_norm": settings.max_gradient_norm,
        },
        "optimizer": {
            "lr": settings.learning_rate, "betas": [settings.beta1, settings.beta2],
            "weight_decay": settings.weight_decay, "fused": True,
        },
        "generation": {
            "do_sample": True, "temperature": settings.temperature, "top_p": settings.top_p, "top_k": 0,
            "max_new_tokens": N_TOKENS, "min_new_tokens": N_TOKENS, "pad_token_id": 2,
        },
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        model_of("tiny").save_pretrained(folder)
        adapters = {n: p.detach() for n, p in policy.actor.model.named_parameters() if p.requires_grad}
        save_file(adapters, Path(folder) / "adapters.safetensors")
        (Path(folder) / "case.json").write_text(json.dumps(case))
        script = Path(__file__).parent / "peers" / "trl_ppo_process.py"
        log = Path(folder) / "log"
        command = [str(python), str(script), folder, str(Path(folder) / "case.json")]
        with (
            log.open("w") as errors,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            given, said = process.stdin, process.stdout

            def ask(what: dict[str, Any]) -> dict[str, Any]:
                print(json.dumps(what), file=given, flush=True)
                line = said.readline()
                if not line:
                    raise SystemExit(f"the peer ended: {log.read_text()[-2000:]}")
                found: dict[str, Any] = json.loads(line)
                return found

            try:
                yield ask
            finally:
                given.close()


def iterate(policy: Policy, prompts: list[tuple[int, ...]], seed: int) -> dict[str, float]:
    """One iteration of ours: CPU seconds of drawing (with what is said of the replies at once) and of learning."""
    settings = policy.settings
    began = time.process_time()
    rollouts = sample(
        policy.actor,
        prompts,
        n_tokens=N_TOKENS,
        temperature=settings.temperature,
        top_p=settings.top_p,
        stop_ids=[],
        seed=seed,
    )
    drawn = time.process_time()
    policy.step(rollouts, [float(sum(token % 7 == 0 for token in reply)) for reply in rollouts.replies])
    return {"draw_s": drawn - began, "step_s": time.process_time() - drawn}


def speed(python: Path, rounds: int) -> list[dict[str, Any]]:
    """Ours in both precisions beside the peer's iteration."""
    prompts, policies = drawn_prompts(), {p: policy_of(settings_of(p)) for p in PRECISIONS}
    theirs: list[dict[str, Any]] = []
    ours: dict[str, list[dict[str, float]]] = {p: [] for p in PRECISIONS}
    with peer(python, settings_of("float32"), batch=MINIBATCH) as ask:
        for number in range(rounds + 1):
            theirs.append(ask({"do": "iterate"}))
            for precision, policy in policies.items():
                ours[precision].append(iterate(policy, prompts, number))
    if any(found["n_tokens"] != N_PROMPTS * N_TOKENS for found in theirs):
        raise SystemExit("the peer drew replies of another length")
    found = []
    for precision in PRECISIONS:
        ratios = [
            (t["draw_s"] + t["step_s"]) / (o["draw_s"] + o["step_s"])
            for t, o in zip(theirs[1:], ours[precision][1:], strict=True)
        ]
        seconds = {
            f"{side}{part}": round(statistics.median(one[part] for one in of[1:]), 4)
            for side, of in (("", ours[precision]), ("peer_", theirs))
            for part in ("draw_s", "step_s")
        }
        low, middle, high = (round(f(ratios), 2) for f in (min, statistics.median, max))
        found.append({"case": precision, "ratio": middle, "low": low, "high": high, **seconds})
    return found


def equality(python: Path) -> dict[str, Any]:
    """How far apart one step of both leaves what they say of the same replies."""
    settings = settings_of(
        "float32",
        batch_size=N_PROMPTS,
        minibatch_size=N_PROMPTS,
        learning_rate=1e-3,
        temperature=1.0,
        entropy_coef=0.0,
        max_gradient_norm=1e9,
    )
    policy, prompts = policy_of(settings), drawn_prompts()
    rng = generator(0, "replies for policies")
    replies = [tuple(rng.integers(3, 4096, int(rng.integers(2, N_TOKENS + 1))).tolist()) for _ in prompts]
    scores = rng.normal(size=N_PROMPTS).tolist()
    rollouts = judged(policy.actor, prompts, replies, [], 1.0)
    policy.step(rollouts, scores)
    after = judged(policy.actor, prompts, replies, [], 1.0)
    with peer(python, settings, batch=N_PROMPTS) as ask:
        # Ours are standardised before they are learnt from; the peer takes them as they are.
        told = standardised(torch.tensor(scores, dtype=torch.float64)).tolist()
        said = ask({"do": "step", "replies": replies, "scores": told})
    apart = {
        name: float(np.abs(np.concatenate(said[name]) - of[rollouts.mask].numpy()).max())
        for name, of in (("logp", after.logp), ("values", after.values))
    }
    moved = (after.logp - rollouts.logp).abs().max().item()
    return {"equal": max(apart.values()) <= TOLERANCE, "tolerance": TOLERANCE, "apart": apart, "moved": round(moved, 4)}


def sampling(rounds: int) -> Iterator[dict[str, Any]]:
    """CPU milliseconds of drawing one token for each of 64 rows, of two vocabularies, with and without a nucleus."""
    uniform = torch.rand(64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for width in (32_000, 128_256):
        logits = 5 * torch.randn(64, width, generator=torch.Generator().manual_seed(1))
        for top_p in (1.0, 0.92):
            spent = []
            for _ in range(rounds + 1):
                began = time.process_time()
                draw(logits, uniform, temperature=0.7, top_p=top_p)
                spent.append(1000 * (time.process_time() - began))
            yield {"case": "draw", "vocabulary": width, "top_p": top_p, "ms": round(statistics.median(spent[1:]), 1)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", type=Path, help="without it only the drawing of tokens is measured")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for line in sampling(asked.rounds):
        print(json.dumps(line) if asked.json else line, flush=True)
    if asked.peer_python is None:
        return
    same = equality(asked.peer_python)
    for found in speed(asked.peer_python, asked.rounds):
        line = {"bench": "policy", "peer": "TRL 0.11.4", **found, **same}
        print(
            json.dumps(line) if asked.json else ", ".join(f"{name} {value}" for name, value in line.items()), flush=True
        )


if __name__ == "__main__":
    main()
