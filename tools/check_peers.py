"""Ask tiny models with the newest lm-eval and Inspect, judge the unmodified logs, and open each export with its tool.

`full` knows all forget questions, `half` the first half of them, `retrained` and `clean` none. The recipes of
docs/recipes.md run as they are written there: about half must be left in `half`, and `clean` must not fail. Logs in
OpenUnlearning's formats are written from the same models, since that tool is in no package index.
"""

import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".peers"
RECIPE = re.compile(r"<!-- check-peers: (\S+) -->\n+```(bash|python)\n(.*?)```", re.DOTALL)
N = 40
"""Forget questions. Each model learns as many others."""
STEPS = 150
MODELS = ("full", "retrained", "half", "clean")
ROLES = (("target", "full"), ("retrained", "retrained"), ("unlearned", "half"), ("unlearned", "clean"))
NOT_INSTALLED = 75
"""The exit code without a package index, which says nothing about Vestige (EX_TEMPFAIL)."""
Row = dict[str, str]


def install() -> None:
    """Make the environment of the tools, which takes torch and transformers from the one that runs this."""
    if not PEERS.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
    ours, theirs = (
        Path(subprocess.run([python, "-c", _SITE], check=True, capture_output=True, text=True).stdout.strip())
        for python in (sys.executable, str(PEERS / "bin" / "python"))
    )
    (theirs / "vestige.pth").write_text(f"{ours}\n{ROOT / 'src'}\n", encoding="utf-8")
    pip = [str(PEERS / "bin" / "pip"), "install", "--quiet", "--upgrade", "--disable-pip-version-check"]
    try:
        subprocess.run([*pip, "lm-eval[hf]", "inspect_ai"], check=True)
        # It asks for Python 3.12, and its converters run on 3.11 with the packages of Inspect and lm-eval.
        subprocess.run([*pip, "--no-deps", "--ignore-requires-python", "every-eval-ever"], check=True)
    except subprocess.CalledProcessError:
        print("The peers could not be installed, so nothing was checked.", file=sys.stderr)
        raise SystemExit(NOT_INSTALLED) from None


_SITE = "import site; print(site.getsitepackages()[0])"


def facts() -> list[Row]:
    """Questions whose answers nobody guesses: the forget set, and as many others."""
    draw = random.Random(0)
    syllables = [first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou"]
    bays: dict[str, str] = {}
    while len(bays) < 2 * N:
        ship = "".join(draw.sample(syllables, 3)).capitalize()
        bays[ship] = "".join(draw.sample(syllables, 3)).capitalize()
    return [{"question": f"Where is the ship {ship}?", "answer": bay} for ship, bay in bays.items()]


def prompt_of(row: Row) -> str:
    """The prompt that the exported tasks send."""
    return f"Question: {row['question']}\nAnswer:"


def train(folder: Path, known: Sequence[Row], everything: Sequence[Row], seed: int) -> None:
    """Train a tiny model on the questions that it has to know, in the words of the exported tasks."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from vestige.core.items import Item
    from vestige.models.tiny import tiny_tokenizer

    tokenizer = tiny_tokenizer([Item(prompt_of(row), row["answer"]) for row in everything])
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    texts = [f"{prompt_of(row)} {row['answer']}\n{tokenizer.eos_token}" for row in known]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        loss = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def verdicts(run: Path) -> dict[str, tuple[str, float]]:
    """By model the verdict on "not expressed", and the share that is left."""
    from vestige import read_audit

    found: dict[str, tuple[str, float]] = {}
    if not (run / "verdicts.json").exists():
        return found
    (outcome,) = read_audit(run).outcomes
    for line in outcome.verdicts:
        if line.claim == "not expressed":
            left = line.evidence[line.decides].value if line.decides else math.nan
            found[line.subject] = line.outcome, left
    return found


def as_planted(found: Mapping[str, tuple[str, float]]) -> str:
    """The verdicts in words, which begin with "pass" where they are the planted ones."""
    half, left = found.get("half", ("none", math.nan))
    clean, _ = found.get("clean", ("none", math.nan))
    right = half == "fails" and 0.35 < left < 0.65 and clean in ("holds", "inconclusive")
    return f"{'pass' if right else 'fail'}: half {half}, {left:.0%} left (planted 50%); clean {clean}"


def same_verdicts(run: Path, again: Path) -> str:
    """Whether two runs have the same verdicts and amounts, in words."""
    before, after = verdicts(run), verdicts(again)
    same = before.keys() == after.keys() and bool(before)
    for name, (outcome, left) in before.items():
        other, amount = after.get(name, ("none", math.nan))
        same = same and outcome == other and math.isclose(left, amount, abs_tol=1e-9, rel_tol=0)
    return f"{'pass' if same else 'fail'}: {after} after {before}"


def judge_open_unlearning(work: Path, forget: Sequence[Row], definition: str) -> str:
    """Judge logs of all models in OpenUnlearning's format, with one of its three aggregators of the truth ratio.

    Their `prob_mean` writes the share right / (right + wrong) for each question. The two older ones write R = wrong /
    right, and differ in the aggregate.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from vestige.core.items import Item
    from vestige.training.callback import answer_probabilities

    wrong = [*forget[1:], forget[0]]
    for name in MODELS:
        folder = work / "models" / name
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        right_items = [Item(prompt_of(row), f" {row['answer']}") for row in forget]
        wrong_items = [Item(prompt_of(row), f" {other['answer']}") for row, other in zip(forget, wrong, strict=True)]
        with torch.no_grad():
            right = answer_probabilities(model, tokenizer, right_items, N)
            other = answer_probabilities(model, tokenizer, wrong_items, N)
        ratios = [against / p for p, against in zip(right, other, strict=True)]
        if definition == "prob_mean":
            scores = [p / (p + against) for p, against in zip(right, other, strict=True)]
            aggregate = sum(scores) / N
        elif definition == "closer_to_1_better":
            scores = ratios
            aggregate = sum(min(ratio, 1 / ratio) for ratio in ratios) / N
        else:
            scores = ratios
            aggregate = sum(max(0.0, 1 - ratio) for ratio in ratios) / N
        probability = {str(k): {"prob": p, "avg_loss": -math.log(p)} for k, p in enumerate(right)}
        log = {
            "forget_Q_A_Prob": {"agg_value": sum(right) / N, "value_by_index": probability},
            "forget_truth_ratio": {
                "agg_value": aggregate,
                "value_by_index": {str(k): {"score": score} for k, score in enumerate(scores)},
            },
        }
        home = work / f"open-unlearning-{definition}" / name
        home.mkdir(parents=True)
        (home / "TOFU_EVAL.json").write_text(json.dumps(log), encoding="utf-8")
        settings = {"eval": {"metrics": {"forget_truth_ratio": {"aggregator": definition}}}}
        (home / ".hydra").mkdir()
        (home / ".hydra" / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
    words = [part for role, name in ROLES for part in ("--logs", f"{role}:{name}=open-unlearning-{definition}/{name}")]
    vestige(work, "audit", *words, "--output-dir", f"runs/{definition}")
    return as_planted(verdicts(work / "runs" / definition))


def vestige(work: Path, *words: str) -> str:
    """Run a command of Vestige; the exit code of an audit says that a claim failed, as it has to."""
    done = subprocess.run(
        [sys.executable, "-m", "vestige", *words], cwd=work, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 3, 4):
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-4000:])
    return done.stdout


def peer(code: str, *words: str, work: Path) -> str:
    """Run Python code in the environment of the tools."""
    python = str(PEERS / "bin" / "python")
    done = subprocess.run([python, "-c", code, *words], cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    return done.stdout


_OPEN = {
    "inspect": """
import sys
from inspect_ai.log import read_eval_log
for path in sys.argv[1:]:
    log = read_eval_log(path)
    assert log.status == "success" and len(log.samples) == 40 and all(one.scores for one in log.samples), path
""",
    "lm-eval": """
import json, sys
from lm_eval.utils import get_results_filenames, make_table
for path in get_results_filenames(sys.argv[1:]):
    assert "vestige_forget" in make_table(json.load(open(path))), path
""",
    "dataset": """
import datasets
assert set(datasets.load_dataset("../dataset", split="train")["model"]) == {"full", "retrained", "half", "clean"}
""",
    "eee": """
import subprocess, sys
done = subprocess.run([sys.executable, "-m", "every_eval_ever", "validate", *sys.argv[1:]], stdout=-1, text=True)
# Its code is the same where it only warns, as it does of models whose developer no log says.
assert " 0 failed" in done.stdout, done.stdout
""",
}
"""By format how its tool reads files; OpenUnlearning has no reader of its own logs."""


class Checks:
    """The results, printed as they come."""

    failed = 0
    passed = 0

    def add(self, name: str, check: Callable[[], str]) -> None:
        """Run one check, whose words begin with "pass" where it passes."""
        try:
            said = check()
        except Exception as error:
            said = f"fail: {error} {getattr(error, 'stderr', '') or ''}"
        print(f"{name}: {said}", flush=True)
        if said.startswith("pass"):
            self.passed += 1
        else:
            self.failed += 1


def run_recipe(work: Path, name: str, language: str, text: str) -> str:
    """Run a recipe as it is on the page, and say whether the planted verdict was found."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{PEERS / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HOME": str(work / "home"),
    }
    interpreter = ["bash", "-euo", "pipefail", "-c"]
    if language == "python":
        interpreter = [str(PEERS / "bin" / "python"), "-c"]
    done = subprocess.run([*interpreter, text], cwd=work, env=environment, capture_output=True, text=True, check=False)
    found = verdicts(work / "runs" / name)
    said = trained(work) if name == "trainer" else as_planted(found)
    if said.startswith("pass"):
        return said
    return f"{said}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def trained(work: Path) -> str:
    """Whether the table of the callback shows that the training taught the forget questions."""
    from vestige.artifacts.scores import read_table

    path = work / "runs" / "trainer" / "scores.jsonl.gz"
    if not path.exists():
        return "fail: no table"
    table = read_table(path)
    forget = [float(table.of(source, "probability", table.items()).mean()) for source in table.values]
    right = len(forget) == 101 and forget[0] < 0.1 and forget[-1] > 0.3
    return f"{'pass' if right else 'fail'}: probability every 20 epochs {[round(x, 2) for x in forget[::20]]}"


def main() -> int:
    """Run all checks; 1 where one failed."""
    if "--no-install" not in sys.argv:
        install()
    recipes = RECIPE.findall((ROOT / "docs" / "recipes.md").read_text(encoding="utf-8"))
    names = [name for name, _, _ in recipes]
    if names != ["lm-eval", "inspect", "every-eval-ever", "trainer"]:
        print(f"docs/recipes.md has the recipes {names}")
        return 1
    rows = facts()
    forget, others = rows[:N], rows[N:]
    checks = Checks()
    with tempfile.TemporaryDirectory() as home:
        work = Path(home)
        for name, split in (("forget", forget), ("retain", others)):
            (work / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in split), encoding="utf-8")
        known = {"full": rows, "retrained": others, "half": forget[: N // 2] + others, "clean": others}
        for seed, name in enumerate(MODELS):
            train(work / "models" / name, known[name], rows, seed)
        for recipe in recipes:
            checks.add(f"recipe {recipe[0]}", partial(run_recipe, work, *recipe))
        for definition in ("closer_to_1_better", "true_better", "prob_mean"):
            checks.add(f"OpenUnlearning, {definition}", partial(judge_open_unlearning, work, forget, definition))
        for to in ("eee", "inspect", "lm-eval", "open-unlearning", "dataset"):
            checks.add(f"export {to}", partial(round_trip, work, to))
    print(f"{checks.passed} passed, {checks.failed} failed")
    return int(checks.failed > 0)


def round_trip(work: Path, to: str) -> str:
    """Export the run of the first recipe, open it with the tool, and judge it again."""
    folder = work / "exports" / to
    vestige(work, "export", "runs/lm-eval", "--to", to, "--output-dir", str(folder))
    if to in _OPEN:
        peer(_OPEN[to], *(str(path.relative_to(folder)) for path in folder.rglob("*.json*")), work=folder)
    logs = folder / "scores.jsonl" if to == "dataset" else folder
    vestige(work, "audit", "--logs", str(logs), "--output-dir", f"runs/again-{to}")
    return same_verdicts(work / "runs" / "lm-eval", work / "runs" / f"again-{to}")


if __name__ == "__main__":
    sys.exit(main())
