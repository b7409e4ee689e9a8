"""Prints the size of the package beside its limits and the bars it is to reach; ends with 1 beyond a limit.

Tokens measure what there is to read whatever the layout, names whether it can be read. A limit is today's figure,
rounded up. It is lowered as the package shrinks, and raised only with the reason in the commit.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[1]
BARS = {
    # what is counted: the limit today, and the bar
    "tokens": (423_530, 330_000),
    "tokens of src, benchmarks and tools": (489_340, 400_000),
    "lines of code": (42_440, 33_000),
    "tokens in ten lines": (100, 90),
    "nested comprehensions in 10,000 lines": (17, 20),
    "conditional expressions in 1,000 lines": (15, 15),
    "Python files": (245, 190),
    "vague names among 1,000 bindings": (20, 10),
    "class names used more than once": (5, 5),
    "circles of imports": (0, 0),
    "lines of code a comment": (32, 30),
    "lines of tests": (40_950, 32_000),
}
"""Of src, unless the name says otherwise. Tokens and code lines exclude blanks, comments and docstrings."""
VAGUE = {
    *("found", "asked", "said", "told", "made", "kept", "given", "own", "one", "shown", "left", "held"),
    *("named", "wanted", "theirs", "ours", "here", "place", "known", "seen", "taught", "drawn", "called", "what"),
    *("who", "way", "others", "other", "more", "again", "anew", "beside"),
}
"""Names that do not say what they hold."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def counted(root: Path) -> dict[str, int]:
    """The figures of the package in `root`/src and of `root`/tests, by the names in `BARS`."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((root / "src").rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    tokens = [token for path, text in texts.items() for token in code_tokens(text, trees[path], path)]
    lines = {(path, n) for path, token in tokens for n in range(token.start[0], token.end[0] + 1)}
    names = Counter(name for tree in trees.values() for name in bindings(tree))
    classes = Counter(n.name for tree in trees.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef))
    comments = sum(
        token.type == tokenize.COMMENT
        for text in texts.values()
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )
    tests = (path.read_text(encoding="utf-8").count("\n") for path in (root / "tests").rglob("*.py"))
    elsewhere = 0
    for folder in ("benchmarks", "tools"):
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            elsewhere += sum(1 for _ in code_tokens(text, ast.parse(text), path))
    physical = sum(text.count("\n") for text in texts.values())
    nested = sum(_nested(node) for tree in trees.values() for node in ast.walk(tree))
    conditional = sum(isinstance(node, ast.IfExp) for tree in trees.values() for node in ast.walk(tree))
    figures = (
        len(tokens),
        len(tokens) + elsewhere,
        len(lines),
        round(10 * len(tokens) / max(1, len(lines))),
        round(10_000 * nested / max(1, physical)),
        round(1_000 * conditional / max(1, physical)),
        len(texts),
        round(1000 * sum(names[word] for word in VAGUE) / max(1, names.total())),
        sum(n > 1 for n in classes.values()),
        circles({_module(path, root / "src"): tree for path, tree in trees.items()}),
        round(len(lines) / max(1, comments)),
        sum(tests),
    )
    return dict(zip(BARS, figures, strict=True))


def code_tokens(text: str, tree: ast.Module, path: Path) -> Iterator[tuple[Path, tokenize.TokenInfo]]:
    """The tokens that are code, each with its file."""
    documented: set[int] = set()
    for node in ast.walk(tree):
        # A string by itself, which says what the module, class, function or name before it is.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE and token.start[0] not in documented:
            yield path, token


def _nested(node: ast.AST) -> bool:
    """Whether a comprehension loops twice or holds another."""
    if not isinstance(node, _COMPREHENSIONS):
        return False
    if len(node.generators) > 1:
        return True
    return any(isinstance(other, _COMPREHENSIONS) for other in ast.walk(node) if other is not node)


def bindings(tree: ast.Module) -> Iterator[str]:
    """The names of variables where they get a value, and of parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def circles(modules: Mapping[str, ast.Module]) -> int:
    """Groups of files that import each other, imports under TYPE_CHECKING and inside functions counted too."""
    graph = nx.DiGraph((name, other) for name, tree in modules.items() for other in _imported(tree, modules))
    return sum(len(group) > 1 for group in nx.strongly_connected_components(graph))


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
    figures = counted(root)
    width = max(map(len, BARS))
    print(f"{'':{width}} {'now':>8} {'limit':>8} {'bar':>8}")
    for name, (limit, bar) in BARS.items():
        beyond = "  beyond the limit" if figures[name] > limit else ""
        print(f"{name:{width}} {figures[name]:>8,} {limit:>8,} {bar:>8,}{beyond}")
    return int(any(figures[name] > limit for name, (limit, _) in BARS.items()))


if __name__ == "__main__":
    sys.exit(main(ROOT))
