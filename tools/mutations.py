"""Changes single lines of the code, and says which changes the tests notice.

`python tools/mutations.py --n 40 --seed 0` draws lines that a small change can make wrong (a comparison turned, a sum
made a difference, a constant moved), applies one at a time to a copy of the tree, and runs the quick tests that import
the changed module, then those of its room. Changes that nothing could notice, because the result is the same, count as
missed like any other.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
_COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "max"}


class Mutation(NamedTuple):
    """A file below src/vestige, a line from 1, and the text of the node before and after."""

    file: str
    line: int
    start: int
    end: int
    after: str


def mutations(text: str, file: str) -> Iterator[Mutation]:
    """Every change of one node that stands on one line."""
    # One tree, kept: the ids of another's nodes would be given to new ones, and the draw would follow no seed.
    tree = ast.parse(text)
    docstrings = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in docstrings or getattr(node, "lineno", 0) != getattr(node, "end_lineno", -1):
            continue
        changed = _changed(node)
        if changed is not None:
            yield Mutation(file, node.lineno, node.col_offset, node.end_col_offset, ast.unparse(changed))


def _changed(node: ast.AST) -> ast.AST | None:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARED:
            return ast.Compare(node.left, [_COMPARED[type(op)]()], node.comparators)
        case ast.BinOp(op=op) if type(op) in _COMPUTED and not isinstance(node.left, ast.Constant | ast.JoinedStr):
            return ast.BinOp(node.left, _COMPUTED[type(op)](), node.right)
        case ast.BoolOp(op=op):
            return ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.Call(func=ast.Name(id=name)) if name in _CALLED:
            return ast.Call(ast.Name(_CALLED[name], ast.Load()), node.args, node.keywords)
        case ast.Constant(value=value) if isinstance(value, int | float) and not isinstance(value, bool):
            return ast.Constant(value + 1)
        case ast.Constant(value=True | False as value):
            return ast.Constant(not value)
    return None


def drawn(n: int, seed: int) -> list[Mutation]:
    """`n` changes on different lines, each file as likely as it has lines that can change."""
    found: dict[tuple[str, int], list[Mutation]] = {}
    for path in sorted((ROOT / "src" / "vestige").rglob("*.py")):
        file = str(path.relative_to(ROOT / "src" / "vestige"))
        for mutation in mutations(path.read_text(encoding="utf-8"), file):
            found.setdefault((file, mutation.line), []).append(mutation)
    rng = random.Random(seed)
    return [rng.choice(found[line]) for line in rng.sample(sorted(found), n)]


def caught(tree: Path, mutation: Mutation) -> str:
    """The test that notices the change; "" where none does."""
    path = tree / "src" / "vestige" / mutation.file
    before = path.read_text(encoding="utf-8")
    lines = before.splitlines(keepends=True)
    raw = lines[mutation.line - 1].encode()
    lines[mutation.line - 1] = (raw[: mutation.start] + mutation.after.encode() + raw[mutation.end :]).decode()
    path.write_text("".join(lines), encoding="utf-8")
    module = "vestige." + mutation.file.removesuffix(".py").replace("/", ".")
    importing = [t for t in sorted((tree / "tests").rglob("test_*.py")) if module in t.read_text(encoding="utf-8")]
    room = tree / "tests" / mutation.file.split("/")[0].removesuffix(".py")
    failed = ""
    for tests in (importing, [room]):
        if tests and tests[0].exists() and (failed := _failed(tree, tests)):
            break
    path.write_text(before, encoding="utf-8")
    return failed


def _failed(tree: Path, tests: list[Path]) -> str:
    words = ["-x", "-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider", "--tb=no", "--no-header", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", *map(str, words)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    lines = (line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR")))
    return next(lines, f"pytest ended with {done.returncode}").partition(" - ")[0]


def main() -> None:
    """Print a line for each change, and the count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    n_caught = 0
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv*", ".*_cache", "runs", "__pycache__"))
        for mutation in drawn(asked.n, asked.seed):
            line = (ROOT / "src/vestige" / mutation.file).read_text(encoding="utf-8").splitlines()[mutation.line - 1]
            test = caught(tree, mutation)
            n_caught += bool(test)
            was = line.encode()[mutation.start : mutation.end].decode()
            print(f"{mutation.file}:{mutation.line}  {was}  ->  {mutation.after}\n    {test or 'MISSED'}", flush=True)
    print(f"{n_caught} of {asked.n} changes were noticed")


if __name__ == "__main__":
    main()
