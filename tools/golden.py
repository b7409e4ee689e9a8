"""Runs the commands on nano models, and compares what two trees of the code make of them, byte by byte.

`python tools/golden.py make BEFORE`, then the change, then `python tools/golden.py make AFTER` and
`python tools/golden.py compare BEFORE AFTER`: files that differ are named, and it ends with 1 if any does. Times,
commits and what processors took are left out. `--tree` makes them of another tree than this one, such as a worktree of
an older commit.

`python tools/golden.py kill RUN` needs a finished run of the demo. It starts another one by the settings of RUN, kills
and resumes it 20 times at random moments, and compares both.
"""

import argparse
import contextlib
import importlib
import json
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PORT = 47_321
"""The judge's address is part of what it is asked for, so it must stay."""
WORDS = {
    "rows": "--data rows.jsonl --edge-key edge --forget edge:e0 --device cpu",
    "trees": "--data trees.jsonl --forget forget.jsonl --device cpu",
    "probed": "target unlearned --data qa.jsonl --forget half.jsonl --embedder embedder --policy target --device cpu",
    "judge": f"--judge http://127.0.0.1:{PORT}/v1?concurrency=1#m",
    "small": "--set policy.n_rollouts=4 --set policy.n_tokens=6 --set policy.epochs=1 --set policy.lora_rank=2"
    " --set latent.n_iterations=2 --set answers.max_tokens=4 --set filter.alike=1.0",
    "search": "--set tokens=3 --set steps=2 --set topk=8",
    "models": "--target run/models/target --unlearned run/cells/ga-0 --retrained run/models/{retrained}",
    "audited": """--workers 1 --set 'evals=["qa","choices"]' --set 'relearn=["retain"]' --set 'relearn_items=[4]'"""
    " --set relearn_epochs=1 --set relearn_rank=0 --set 'relearn_rates=[]' --set 'quantize=[8]' --set 'in_context=[2]'"
    " --set max_new_tokens=4 --set 'prefix=[2]' --set prompt_tokens=4 --set prompt_steps=2 --set prompt_candidates=3",
}
COMMANDS = Path(__file__).with_suffix(".txt")
_VARIES = re.compile(
    r'"(\w*seconds|tokens_per_second|peak_mb|commit|seal)": ("[^"]*"|[\d.e-]+|null)|\b17\d{8}\b|[\d.]+ s\b'
    r"|20\d\d\\?-\d\d\\?-\d\d(T[\d\\:.+Z]+)?|\w+_seconds: [\d.]+|\d+ processor seconds|\b[0-9a-f]{40}(\+changed)?\b"
    r'|"basis": (\{[^}]*\}|"[^"]*")|"[^"]*(collected|outcome).json": "[0-9a-f]{64}"'
    r"|(Loading weights|Writing model shards): .*?it/s\]"
    r"|>\d+\.\d(?=</td)|(?m:^[a-z][^\n:]*: +\d+ %(,| about|\n about).*\n)|(?m:^ about .* left.*\n)|(?m:^│.*│ +\d+ +│$)"
)
"""Times, memory, commits, lines of progress, and the digests of code by which scores are known to be current."""


def make(folder: Path, tree: Path) -> None:
    """Run all commands with the code of `tree`, in one place for all trees, and move what they left to `folder`."""
    sys.path[:0] = [str(tree / "src"), str(tree), str(tree / "tests")]
    import torch
    from typer.testing import CliRunner

    from vestige.cli.app import app
    from vestige.metrics import intervals

    torch.set_num_threads(1)
    intervals.RESAMPLES = 200
    at = Path(tempfile.gettempdir()) / "vestige-golden"
    shutil.rmtree(at, ignore_errors=True)
    (at / "said").mkdir(parents=True)
    with contextlib.chdir(at), _judge():
        sys.argv = ["golden"]
        _prepare(at)
        retrained = sorted(p.name for p in (at / "run/models").glob("retrained*"))
        words = {**WORDS, "models": WORDS["models"].format(retrained=" --retrained run/models/".join(retrained))}
        for n, line in enumerate(COMMANDS.read_text().splitlines()):
            typed = shlex.split(line.format_map(words))
            sys.argv = ["vestige", *typed]
            ended = CliRunner().invoke(app, typed)
            failed = "" if isinstance(ended.exception, SystemExit | None) else f"{ended.exception!r}\n"
            said = f"$ vestige {shlex.join(typed)}\n{ended.output}{failed}ends with {ended.exit_code}\n"
            (at / f"said/{n:02d}.txt").write_text(said)
            print(f"{n:2d} ends with {ended.exit_code}: {' '.join(typed)[:90]}", flush=True)
    shutil.move(at, folder)


def _prepare(at: Path) -> None:
    """The models and data that the commands name, made by the helpers of the tests."""
    import torch

    import audited
    import probed
    from vestige.models import tiny

    config = audited.nano_config()
    tiny.tiny_config = lambda: config
    importlib.import_module("vestige.auditing.run").run_tasks = audited.in_this_process
    probed.make_probed(at)
    (at / "forget.jsonl").rename(at / "half.jsonl")
    twin = probed.saying([tiny.tiny_tokenizer(probed.ITEMS).eos_token_id])
    with torch.no_grad():
        twin.model.layers[0].mlp.down_proj.weight += 1e-3
    twin.save_pretrained(at / "twin")
    tiny.tiny_tokenizer(probed.ITEMS).save_pretrained(at / "twin")
    audited.make_models(audited.RunFolder(at / "run"))
    wrong = [f"{word} {n + 40}." for n, word in enumerate(audited.WORDS[:4])]
    items = [{"question": i.question, "answer": i.answer, "edge": i.edge} for i in audited.ITEMS]
    rows = [{"question": f"What is number {n}?", "answer": f"It is {n * n}.", "edge": f"e{n % 6}"} for n in range(36)]
    _lines(at / "rows.jsonl", rows)
    _lines(at / "trees.jsonl", [{**i, "perturbed_answer": wrong} for i in items])
    _lines(at / "forget.jsonl", [i for i in items if i["edge"] == audited.FORGET[0].edge])


def _lines(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@contextlib.contextmanager
def _judge():
    """The scripted server of the tests, at one port, which gives every reply the same grades."""
    import probed

    server = importlib.import_module("judges.faulty_server")

    class AtOnePort(server.ThreadingHTTPServer):
        allow_reuse_address = True

        def __init__(self, address, handler):
            super().__init__(("127.0.0.1", PORT), handler)

    server.ThreadingHTTPServer = AtOnePort

    def graded(body):
        if "second answer" in body["messages"][-1]["content"]:
            return "[[3]]"
        return probed.verdict(body)

    with server.serving(graded):
        yield


def compare(before: Path, after: Path) -> list[str]:
    """The files that are in one folder alone, or differ in more than times and commits."""
    files = [{str(p.relative_to(f)) for p in f.rglob("*") if p.is_file()} for f in (before, after)]
    return [
        *(f"only in {before}: {name}" for name in sorted(files[0] - files[1])),
        *(f"only in {after}: {name}" for name in sorted(files[1] - files[0])),
        *(f"differs: {n}" for n in sorted(files[0] & files[1]) if _kept(before / n) != _kept(after / n)),
    ]


def _kept(path: Path) -> bytes:
    """What must be the same in a file; replies of a server stand in the order in which they came."""
    data = path.read_bytes()
    if path.name in {"seen.json", ".lock"}:
        return b""
    if path.suffix in {".json", ".jsonl", ".html", ".txt", ".md", ".csv", ".xml", ""}:
        lines = _VARIES.sub("", data.decode("utf-8", "replace")).splitlines()
        return "\n".join(sorted(lines) if path.name == "replies.jsonl" else lines).encode()
    return data


def kill(unbroken: Path, kills: int = 20, longest: float = 45.0) -> Path:
    """The folder of a demo by the settings of an unbroken run, killed at random moments and resumed each time."""
    broken = unbroken.with_name(f"{unbroken.name}-killed")
    words = ["demo", "--output-dir", str(broken), "--config", str(unbroken / "run.toml")]
    command = [sys.executable, "-m", "vestige", *words]
    rng = random.Random(0)
    for number in range(kills):
        # A kill by a signal that no process can handle, as of a machine that loses its power.
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, timeout=rng.uniform(3.0, longest), stdout=subprocess.DEVNULL)
            print(f"finished before kill {number + 1}", flush=True)
            break
        # The workers see within a fraction of a second that their parent is gone.
        time.sleep(1.0)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return broken


def main() -> int:
    """Make a folder, or compare two; 1 where they differ."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("what", choices=["make", "compare", "kill"])
    words.add_argument("folders", type=Path, nargs="+")
    words.add_argument("--tree", type=Path, default=ROOT, help="whose src and tests are run")
    asked = words.parse_args()
    if asked.what == "make":
        if asked.folders[0].exists():
            sys.exit(f"{asked.folders[0]} is there; name another folder")
        make(asked.folders[0].resolve(), asked.tree.resolve())
        return 0
    if asked.what == "kill":
        asked.folders.append(kill(asked.folders[0]))
    differing = compare(*asked.folders)
    if asked.what == "kill":
        # A run that was resumed says so in its provenance and on its page.
        differing = [line for line in differing if not line.endswith(("provenance.json", ".html"))]
    print("\n".join(differing) or "no file differs")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
