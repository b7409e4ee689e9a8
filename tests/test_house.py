"""The figures of `make check` about the size of the package, counted by hand on a tiny one."""

import runpy
from pathlib import Path

HOUSE = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "house.py"))
FILES = {
    "src/p/__init__.py": '"""No code."""\n',
    "src/p/a.py": '''"""Words."""

# A remark.
from p import b


class Row:
    """Words
    and more."""


def g(found):
    return b.f(found)
''',
    "src/p/b.py": "import p.c\n\nTEXT = '''two\nlines'''\n'What it is.'\n\n\ndef f(x):\n    return x\n",
    "src/p/c.py": """class Row:
    def m(self):
        from p.b import f

        return f(1)
""",
    "benchmarks/a.py": "x = 1\n",
    "tools/a.py": "y = x if x else [a for b in x for a in b]\n",
    "tests/test_a.py": "\n\n\n",
}


def test_tokens_names_circles_and_comments_are_counted(tmp_path, capsys):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    # Tokens of a: 4 of the import, 3 of the class, 6 + 7 of the function; of b: 4 + 3 + 6 + 2; of c: 3 + 6 + 6 + 5.
    # Lines: 4 + 5 + 4. Of the bindings found, TEXT, x and self one is vague. Row is two classes, b and c are a circle.
    figures = HOUSE["counted"](tmp_path)
    assert list(figures.values()) == [55, 75, 13, 42, 0, 0, 4, 250, 1, 1, 13, 3]
    (tmp_path / "src" / "p" / "d.py").write_text(FILES["tools/a.py"] + "z = [[1 for _ in x] for _ in x]\n")
    more = HOUSE["counted"](tmp_path)
    # Two comprehensions and one condition in 30 lines (1 of the package, 13 of a, 9 of b, 5 of c, 2 of d).
    assert more["nested comprehensions in 10,000 lines"] == round(20_000 / 30)
    assert more["conditional expressions in 1,000 lines"] == round(1_000 / 30)
    (tmp_path / "src" / "p" / "d.py").unlink()
    bars = HOUSE["main"].__globals__["BARS"]
    bars.update({name: (figure, 1) for name, figure in figures.items()})
    assert HOUSE["main"](tmp_path) == 0
    bars["lines of code"] = (12, 1)
    assert HOUSE["main"](tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("beyond the limit")] == ["lines"]
