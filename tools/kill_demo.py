"""Kills a demo at random moments, resumes it each time, and compares what comes out with an unbroken run.

`python tools/kill_demo.py runs/demo --kills 20` needs a finished, unbroken run with the same settings. It prints the
moments and every file that differs, and ends with 1 if there is one. Times, provenance and logs of progress are not
compared; records, scores, summaries, weights, identities, tables and figures are, byte for byte.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from vestige.core.files import read_jsonl
from vestige.training.loop import reproducible

COMPARED = ("*.jsonl", "*.safetensors", "summary-*.json", "collected.json", "spec.json", "done.json", "*.csv", "*.svg")


def contents(run: Path) -> dict[str, object]:
    """What every compared file holds, by its place in the run."""
    return {str(p.relative_to(run)): compared(p) for pattern in COMPARED for p in sorted(run.rglob(pattern))}


def compared(path: Path) -> object:
    """A file's bytes; of the log of a training, the lines without what they took."""
    if path.name == "metrics.jsonl":
        return [reproducible(line) for line in read_jsonl(path)]
    return path.read_bytes()


def main() -> None:
    """Kill, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("unbroken", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--longest", type=float, default=45.0, help="seconds until a kill, at most")
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    broken = words.unbroken.with_name(f"{words.unbroken.name}-killed")
    shutil.rmtree(broken, ignore_errors=True)
    command = [sys.executable, "-m", "vestige", "demo", "--output-dir", str(broken)]
    settings = words.unbroken / "run.toml"
    command += ["--config", str(settings)]
    rng = random.Random(words.seed)
    for number in range(words.kills):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        seconds = rng.uniform(3.0, words.longest)
        try:
            process.wait(seconds)
            print(f"finished before kill {number + 1}", flush=True)
            break
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            print(f"kill {number + 1} after {seconds:.1f} s", flush=True)
            # The workers see within a fraction of a second that their parent is gone.
            time.sleep(1.0)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    whole, resumed = contents(words.unbroken), contents(broken)
    differing = sorted(n for n in whole.keys() | resumed.keys() if whole.get(n) != resumed.get(n))
    print(f"{len(whole)} files compared, {len(differing)} differ")
    sys.exit("\n".join(differing) or 0)


if __name__ == "__main__":
    main()
