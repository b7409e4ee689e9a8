"""TRL 0.11.4's PPO in a process of its own: an iteration, or one step on given replies, each when a line comes in.

It runs under another Python, with another transformers, and so imports nothing of ours. `benchmarks.policy` starts it.
The model is read from FOLDER, adapters are put into all products of its blocks and get the weights in the file
`adapters.safetensors` there; the value head begins at 0. A line {"do": "iterate"} draws replies and takes a step, and
is answered with processor seconds of both and the peak of memory; {"do": "step", "replies": ..., "scores": ...} takes a
step on those replies, and is answered with their log-probabilities and values after it.

    PEER_PYTHON benchmarks/peers/trl_ppo_process.py FOLDER CASE.json
"""

import json
import sys
import time
from pathlib import Path
from typing import Any


def memory_mb(name: str) -> float:
    """A line of /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def trainer_of(folder: str, case: dict[str, Any]) -> Any:
    """A PPOTrainer as its README makes one, with our model, adapters and settings."""
    import torch
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import load_file
    from tokenizers import Tokenizer, models
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
    from trl import AutoModelForCausalLMWithValueHead, PPOConfig, PPOTrainer  # type: ignore[attr-defined]

    base = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32)
    lora = LoraConfig(
        r=case["lora_rank"],
        lora_alpha=case["lora_alpha"],
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    adapted = get_peft_model(base, lora)
    given = load_file(Path(folder) / "adapters.safetensors")
    own = {n: p for n, p in adapted.named_parameters() if p.requires_grad}
    if {f"base_model.model.{name}" for name in given} != set(own):
        raise SystemExit("the peer has other adapters than ours")
    with torch.no_grad():
        for name, value in given.items():
            own[f"base_model.model.{name}"].copy_(value)
    model = AutoModelForCausalLMWithValueHead.from_pretrained(adapted, summary_dropout_prob=0.0)
    torch.nn.init.zeros_(model.v_head.summary.weight)
    torch.nn.init.zeros_(model.v_head.summary.bias)
    words = {f"w{i}": i for i in range(case["vocabulary"])}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")), pad_token="w2", eos_token="w1"
    )
    config = PPOConfig(**case["config"], log_with=None)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], **case["optimizer"])
    return PPOTrainer(config, model, None, tokenizer, optimizer=optimizer)


def said(trainer: Any, queries: list[Any], replies: list[Any]) -> dict[str, Any]:
    """Log-probabilities and values of the replies' tokens, as the trainer reads them."""
    import torch

    inputs = trainer.prepare_model_inputs(queries, replies)
    with torch.no_grad():
        logp, _, values, masks = trainer.batched_forward_pass(trainer.model, queries, replies, inputs)
    return {
        name: [row[m.bool()].tolist() for row, m in zip(found, masks, strict=True)]
        for name, found in (("logp", logp), ("values", values))
    }


def main(folder: str, case_file: str) -> None:
    """Answer line by line."""
    import torch

    torch.set_num_threads(1)
    case = json.loads(Path(case_file).read_text())
    trainer = trainer_of(folder, case)
    queries = [torch.tensor(prompt) for prompt in case["prompts"]]
    # Its answers go where nothing that the library prints can get in between.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "step":
            replies = [torch.tensor(reply) for reply in asked["replies"]]
            trainer.step(queries, replies, [torch.tensor(score) for score in asked["scores"]])
            answer = said(trainer, queries, replies)
        else:
            began = time.process_time()
            replies = trainer.generate(queries, return_prompt=False, batch_size=len(queries), **case["generation"])
            drawn = time.process_time()
            scores = [torch.tensor(float((reply % 7 == 0).sum())) for reply in replies]
            trainer.step(queries, replies, scores)
            done = time.process_time()
            answer = {"draw_s": drawn - began, "step_s": done - drawn, "n_tokens": sum(map(len, replies))}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
