"""The figures of `make check` about the size of the package, counted by hand on a tiny one."""

import runpy
from pathlib import Path

HOUSE = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "house.py"))
FILES = {
    "src/p/__init__.py": '"""No code."""\n',
    "src/p/a.py": '''"""Words."""

# A remark.
from p import b
from p.b import f


def g(x):
    """Words
    and more.
    """
    return _short(x) + _twice(x) + _twice(x) + f(
        x
    )


def _short(x):
    """Two lines of code besides its own."""

    x += 1
    return x + b.ONE


def _twice(x):
    return x


def _long(x):
    y = x
    y += 1
    return y
''',
    "src/p/b.py": "import p.c\n\nONE = p.c.ONE\n'What it is.'\nTEXT = '''two\nlines'''\n\n\ndef f(x):\n    return x\n",
    "src/p/c.py": """ONE = 1


class C:
    def m(self):
        from p.b import f

        return f(self._own())

    def _own(self):
        return 1
""",
    "tests/test_a.py": "\n\n\n",
}


def test_code_importers_and_trivial_helpers_are_counted(tmp_path, capsys):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    # Code: 0, then 2 + 4 + 3 + 2 + 4, then 2 + 2 + 2, then 7 lines. b is imported by a and c, c by b alone. Of the
    # short helpers `_short` and `_own` are used once.
    found = HOUSE["counted"](tmp_path)
    assert list(found.values()) == [4, 28, 1, 2, 3]
    limits = dict(zip(found, [(4, 1), (27, 1), (1, 1), (2, 1), (3, 1)], strict=True))
    HOUSE["main"].__globals__["BARS"].update(limits)
    assert HOUSE["main"](tmp_path) == 1
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:]] == ["1", "limit", "1", "1", "1"]
    HOUSE["main"].__globals__["BARS"][list(found)[1]] = (28, 1)
    assert HOUSE["main"](tmp_path) == 0
