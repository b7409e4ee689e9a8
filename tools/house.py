"""Prints the size of the package beside its limits and the bars it is to reach; ends with 1 beyond a limit.

The bars of files and lines are those of the plan and what Studies, Reach and People may add: 15 files and 2,500 lines
each. A limit is today's figure, rounded up. It is lowered as the package shrinks, and raised only with the reason in
the commit. How many files one setting crosses is not counted: its name changes on the way.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
BARS = {
    # what is counted: the limit today, and the bar
    "Python files": (254, 255),
    "lines of code": (45_200, 35_500),
    "files with exactly one importer": (25, 30),
    "private functions of three lines or fewer, used once": (100, 100),
    "lines of tests": (43_450, 28_000),
}
"""Code lines are those without blanks, comments and docstrings."""
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def counted(root: Path) -> dict[str, int]:
    """The figures of the package in `root`/src and of `root`/tests, by the names in `BARS`."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((root / "src").rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    modules = {_module(path, root / "src"): tree for path, tree in trees.items()}
    lines = {path: code_lines(text, trees[path]) for path, text in texts.items()}
    tests = (path.read_text(encoding="utf-8").count("\n") for path in (root / "tests").rglob("*.py"))
    found = (
        len(texts),
        sum(map(len, lines.values())),
        sum(n == 1 for n in importers(modules).values()),
        sum(used_once(tree, lines[path]) for path, tree in trees.items()),
        sum(tests),
    )
    return dict(zip(BARS, found, strict=True))


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """The numbers of the lines that hold code."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    held = {n for t in tokens if t.type not in _NO_CODE for n in range(t.start[0], t.end[0] + 1)}
    for node in ast.walk(tree):
        # A string by itself, which says what the module, class, function or name before it is.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            held -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return held


def importers(modules: dict[str, ast.Module]) -> Counter[str]:
    """By how many other modules each one is imported, those under TYPE_CHECKING and inside functions too."""
    pairs = {(imported, name) for name, tree in modules.items() for imported in _imported(tree, modules)}
    return Counter(imported for imported, name in pairs if imported != name)


def used_once(tree: ast.Module, code: set[int]) -> int:
    """Private functions without a decorator of three lines of code or fewer, whose name stands once in the module."""
    used = Counter(
        n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(tree) if isinstance(n, ast.Name | ast.Attribute)
    )
    return sum(
        len(code & set(range(n.lineno, (n.end_lineno or n.lineno) + 1))) <= 3 and used[n.name] == 1
        for n in ast.walk(tree)
        if isinstance(n, ast.FunctionDef) and _is_private(n.name) and not n.decorator_list
    )


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _module(path: Path, source: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def _imported(tree: ast.Module, modules: Mapping[str, object]) -> Iterator[str]:
    """The modules that one imports: of `from a import b` it is a.b where that is a module, else a."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in modules else node.module for name in names)


def main(root: Path) -> int:
    """Print the figures; 1 where one is beyond its limit."""
    found = counted(root)
    width = max(map(len, BARS))
    print(f"{'':{width}} {'now':>8} {'limit':>8} {'bar':>8}")
    for name, (limit, bar) in BARS.items():
        beyond = "  beyond the limit" if found[name] > limit else ""
        print(f"{name:{width}} {found[name]:>8,} {limit:>8,} {bar:>8,}{beyond}")
    return int(any(found[name] > limit for name, (limit, _) in BARS.items()))


if __name__ == "__main__":
    sys.exit(main(ROOT))
