"""Whatever is wrong with a folder that a stranger hands over: it is used, or refused in one sentence, within seconds.

Seeded, so that a case can be made again: VESTIGE_FUZZ_CASES multiplies their number, VESTIGE_FUZZ_SEED makes others.
`pytest -s -k damaged` prints what became of the cases of each family.
"""

import copy
import json
import os
import random
import shutil
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vestige.cli.app import _PATH_ERRNOS
from vestige.core.errors import VestigeError

TIMES = int(os.environ.get("VESTIGE_FUZZ_CASES", "1"))
SEED = os.environ.get("VESTIGE_FUZZ_SEED", "0")
CASES = {
    "chat templates": 450,
    "model folders": 120,
    "adapters": 60,
    "data files": 400,
    "graph files": 250,
    "compiled folders": 200,
    "checkpoints": 200,
    "settings": 200,
    "run folders": 40,
    "folders of holes": 120,
}
"""How many cases of each family the suite has: most of those that are cheap."""
MOST_SECONDS = 5
DEEP = json.loads("[" * 200 + "]" * 200)
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        -1,
        0,
        7,
        1.5,
        1e308,
        10**30,
        -(10**30),
        float("nan"),
        "",
        "x",
        "../../etc/passwd",
        "x" * 5000,
    ),
    *("\ud800", "\x1b[2J\u202e\0", "0.5", [], {}, [None], [[1]], {"a": 1}, DEEP, "{{ 7 * 7 }}"),
)


class Slow(BaseException):
    """A case takes too long."""


def changed(rng: random.Random, value: Any) -> Any:
    """A JSON value with one or two of its parts replaced, removed, renamed or doubled."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, 2)):
        places = [
            (node, key) for node in walk(value) for key in (list(node) if isinstance(node, dict) else range(len(node)))
        ]
        if not places:
            return rng.choice(VALUES)
        node, key = rng.choice(places)
        what = rng.random()
        if what < 0.7:
            node[key] = copy.deepcopy(rng.choice(VALUES))
        elif what < 0.9 or not isinstance(node, dict):
            del node[key]
        else:
            node[rng.choice(("x", "", "\x1b", f"{key}2"))] = node.pop(key)
    return rng.choice(VALUES) if rng.random() < 0.05 else value


def walk(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from walk(inner)


def bytes_changed(rng: random.Random, content: bytes) -> bytes:
    what, at = rng.randrange(10), rng.randrange(len(content) + 1)
    if what == 0:
        return content[:at]
    if what == 1:
        return content[:at] + rng.randbytes(rng.randint(1, 40)) + content[at:]
    if what == 2:
        return content.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-32", "utf-8-sig")))
    if what == 3:
        return content[:at] + content[rng.randrange(len(content) + 1) :]
    if what == 4:
        return rng.choice(
            (b"", b"\0" * 100, b"\xff\xfe\xfd", b"[" * 100_000, b"version https://git-lfs.github.com/spec/v1")
        )
    if what < 7:
        some = "".join(rng.choices("AB,\t\n\r\"'{}[]()<>/:#=&;%0-.\0\ufeff\u202eé١", k=rng.randint(1, 8))).encode()
        return content[:at] + some + content[at + rng.choice((0, len(some))) :]
    flipped = bytearray(content)
    for _ in range(rng.randint(1, 8) if content else 0):
        flipped[rng.randrange(len(flipped))] = rng.randrange(256)
    return bytes(flipped)


def file_changed(rng: random.Random, path: Path) -> bytes:
    content = path.read_bytes()
    if rng.random() < 0.3:
        return bytes_changed(rng, content)
    try:
        return form_changed(rng, path.suffix, content)
    except (ValueError, RecursionError, struct.error):  # Damaged before.
        return bytes_changed(rng, content)


def form_changed(rng: random.Random, suffix: str, content: bytes) -> bytes:
    if suffix == ".json":
        return json.dumps(changed(rng, json.loads(content))).encode()
    if suffix == ".jsonl" and (lines := content.splitlines()):
        at = rng.randrange(len(lines))
        lines[at] = json.dumps(changed(rng, json.loads(lines[at]))).encode()
        return b"\n".join([*lines, b""][rng.randrange(2) :])
    if suffix == ".safetensors":
        (size,) = struct.unpack("<Q", content[:8])
        header = json.dumps(changed(rng, json.loads(content[8 : 8 + size]))).encode()
        return struct.pack("<Q", len(header)) + header + content[8 + size :]
    return bytes_changed(rng, content)


def damage(rng: random.Random, folder: Path) -> str:
    """Change one file of a folder, or two; what was done, in words."""
    done = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        if not files:
            break
        path, other = rng.choice(files), rng.choice(files)
        what = rng.random()
        if what < 0.06:
            path.unlink()
        elif what < 0.1 and path != other:
            shutil.copyfile(other, path)
        elif what < 0.12:
            path.unlink()
            path.mkdir()
        else:
            path.write_bytes(file_changed(rng, path))
        done.append(f"{path.relative_to(folder)} ({what:.2f})")
    return ", ".join(done)


def outcome(use: Callable[[], object]) -> str:
    """What became of a case: "used", the exit code of a refusal, or what a person must not see."""

    def stop(*_: object) -> None:
        raise Slow

    # The processor's time: other work on the machine makes no case slow. What only waits is stopped too, later.
    timers = {signal.SIGPROF: (signal.ITIMER_PROF, MOST_SECONDS), signal.SIGALRM: (signal.ITIMER_REAL, 60)}
    before = {sign: signal.signal(sign, stop) for sign in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        use()
    except VestigeError as error:
        said = str(error)
        if not said or "\n" in said or len(said) > 2000:
            return f"no sentence: {said[:300]!r}"
        return f"exit {error.exit_code}" if error.exit_code in (2, 5, 6) else f"exit code {error.exit_code}: {said}"
    except OSError as error:
        return "exit 2" if error.errno in _PATH_ERRNOS and error.filename else f"traceback: {error!r}"
    except MemoryError:
        return "exit 6"
    except Slow:
        return "slow"
    except BaseException as error:
        import traceback

        at = traceback.extract_tb(error.__traceback__)
        ours = [
            f"{Path(f.filename).name}:{f.lineno}"
            for f in at
            if "/vestige/" in f.filename and "/tests/" not in f.filename
        ]
        return f"traceback: {type(error).__name__}: {str(error)[:150]!r} at {' '.join(ours[-3:])}"
    finally:
        for sign, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(sign, before[sign])
    return "used"


def survive(
    family: str,
    whole: Sequence[Path],
    tmp_path: Path,
    use: Callable[[Path], object],
    damaged: Callable[[random.Random, Path], str] = damage,
    *,
    sealed: bool = False,
) -> None:
    """Damage copies of the folders, in turn, and use each; every one is used or refused. `sealed` ones are refused."""
    found: Counter[str] = Counter()
    bad: dict[str, str] = {}
    longest = 0.0
    for folder in whole:
        shutil.copytree(folder, tmp_path / "case")
        assert outcome(partial(use, tmp_path / "case")) == "used", folder
        shutil.rmtree(tmp_path / "case")
    for case in range(CASES[family] * TIMES):
        rng = random.Random(f"{SEED}/{family}/{case}")
        folder = tmp_path / "case"
        shutil.copytree(whole[case % len(whole)], folder)
        what = damaged(rng, folder)
        begun = time.process_time()
        said = outcome(partial(use, folder))
        took = time.process_time() - begun
        longest = max(longest, took)
        found[said.partition(":")[0]] += 1
        if ":" in said or said == "slow":
            bad.setdefault(said.partition(" at ")[2] or said, f"case {case}: {what}: {said} after {took:.1f} s")
        shutil.rmtree(folder)
    print(f"{family}: {found.total()} cases, {dict(found)}, the longest {longest:.1f} s")
    assert not bad, "\n".join([f"{len(bad)} kinds", *bad.values()])
    assert found["used"] < found.total(), "none was damaged"
    assert (found["used"] == 0) == sealed, "damage was not noticed, or none can be used"
