"""Measures the prose of the documentation against the rules in CONTRIBUTING.md (Plain English).

`python tools/prose_lint.py` prints the hits per 1,000 words of each page, of the docstrings in src/ and of the messages
of `InputError`. With `--check` it ends with 1 if one exceeds the goals.
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_VERB = (
    r"(?:is|are|was|were|has|have|had|does|did|can|could|must|may|it|they|a|an|the|no|others?|models?|one|each|every"
    r"|retained|stands?|remains?|comes?|came|follows|never|keeps?|makes?|knows?|says?|takes?|gives?)"
)
RULES = {
    "what": (rf"\b[Ww]hat {_VERB}\b", 1.0),
    "agentless": (
        r"\b(?:is|are|was|were|be|been|being) "
        r"(?:said|told|named|asked|stated|shown|held|counted|called|taken for|given|foreseen)\b",
        0.6,
    ),
    "stands": (r"\b(?:stands?|stood|lies|lay|says|tells)\b", 0.2),
    "else": (r"\b(?:beside|besides|but for|else|save for|apart from)\b", 0.3),
    "those of": (
        r"\b(?:those|these|ones?|that) (?:of|whose|with)\b|\bof (?:it|them|which|whom|these|those)\b",
        # The worst of six respected projects has 1.2. Half as many more are allowed, because the rule has false alarms.
        1.8,
    ),
    "fronted": (
        r"(?m)(?:^|(?<=[.!?:;] ))(?:Of|Where|Beside|By|Under|What|Who|Whoever|To be|From)\b[^.!?\n]{6,90},",
        1.7,
    ),
    "semicolons": (r";", 3.7),
    "private": (r"\b(?:never knew|mend(?:s|ed|ing)?|earned|saturated|ceiling|ruined)\b", 0.2),
}
"""For each rule its pattern and its goal in hits per 1,000 words, which respected projects keep to."""
GOALS = {name: goal for name, (_, goal) in RULES.items()}
_NOT_PROSE = (
    (re.compile(r"```.*?```", re.DOTALL), "\n\n"),
    (re.compile(r"(?m)^\s*\|.*$"), ""),
    (re.compile(r"(?m)^(    |\t).*$"), ""),
    (re.compile(r"`[^`]*`"), "X"),
    (re.compile(r"\[([^\]]*)\]\([^)]*\)"), r"\1"),
)
GENERATED = {"docs/cli.md", "docs/methods.md"}
FEWEST_WORDS = 1000
"""A page with fewer words may have one hit of each rule more than its rate allows."""


def prose(text: str) -> str:
    """Return a page without code, tables and targets of links."""
    for pattern, replacement in _NOT_PROSE:
        text = pattern.sub(replacement, text)
    return text


def rates(text: str) -> dict[str, float]:
    """Return the hits of each rule per 1,000 words, without one hit on pages of fewer than 1,000 words."""
    words = len(re.findall(r"[A-Za-z][\w'’-]*", text))
    result = {}
    for name, (pattern, _) in RULES.items():
        hits = len(re.findall(pattern, text))
        if words < FEWEST_WORDS:
            hits = max(0, hits - 1)
        result[name] = round(1000 * hits / max(words, 1), 1)
    return result


def pages() -> list[str]:
    """Return the names of the pages that are measured."""
    paths = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
    paths += sorted((ROOT / "docs").rglob("*.md"))
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    return [name for name in names if name not in GENERATED]


def source_texts() -> dict[str, str]:
    """Return the docstrings in src/, and the messages of `InputError`, each joined to one text."""
    docstrings = []
    messages = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                docstrings.append(ast.get_docstring(node) or "")
            elif isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") == "InputError":
                parts = (part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant))
                messages.append(" ".join(part for part in parts if isinstance(part, str)))
    joined = re.sub(r"`[^`]*`", "X", "\n\n".join(docstrings))
    return {"docstrings of src": joined, "messages of src": "\n\n".join(messages)}


def over(found: dict[str, float]) -> dict[str, float]:
    """Return the rates that exceed the goals."""
    return {rule: rate for rule, rate in found.items() if rate > GOALS[rule]}


def main() -> int:
    """Print the rates, or with `--check` only the pages beyond their limits."""
    measured = {name: rates(prose((ROOT / name).read_text(encoding="utf-8"))) for name in pages()}
    measured |= {name: rates(text) for name, text in source_texts().items()}
    failures = 0
    for name, found in measured.items():
        if "--check" not in sys.argv:
            print(f"{name:40}", *(f"{rule} {rate}" for rule, rate in over(found).items()), sep="  ")
        for rule, rate in over(found).items():
            failures += 1
            print(f"{name}: rule {rule!r} has {rate} hits per 1,000 words, limit {GOALS[rule]}", file=sys.stderr)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
