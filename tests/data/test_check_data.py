"""The checks of a data set as a step: what is found, written and printed."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.small import squares, written
from typer.testing import CliRunner

from vestige.artifacts.audits import exit_code, read_soundness
from vestige.artifacts.layout import RunFolder
from vestige.cli.app import app
from vestige.core.errors import InputError
from vestige.core.items import Item, Options
from vestige.data.corpus import NamedSplits
from vestige.data.findings import SoundnessSettings
from vestige.data.soundness import check_data

SETTINGS = SoundnessSettings(permutations=2_000)
NAMES = ("Abel", "Bran", "Cato", "Dion", "Egon", "Finn", "Gaul", "Hugo", "Ivor", "Joel", "Kurt", "Lars")
TOOLS = ("Axe", "Bow", "Can", "Dye", "Eel", "Fan", "Gun", "Hat", "Ink", "Jug", "Key", "Lid")


def people(*, suffix: str = "") -> tuple[Item, ...]:
    """Twelve items, each with three wrong answers that are other people's right ones."""
    wrong = [tuple(TOOLS[(n + k) % 12] for k in (1, 2, 3)) for n in range(12)]
    return tuple(Item(f"{name} has{suffix}?", TOOLS[n], edge=name, perturbed=wrong[n]) for n, name in enumerate(NAMES))


def others() -> tuple[Item, ...]:
    """Twelve items about nobody of these."""
    return tuple(Item(f"Port {n} sells?", f"Rope {n}", edge=f"p{n}") for n in range(12))


def test_what_is_written_is_read(tmp_path):
    forget = (*people(), *(Item(f"Who owns {n}?", f"Nobody {n}", edge=n) for n in TOOLS))
    copies = tuple(Item(i.question.upper(), "x", edge="copies") for i in forget[12:15])
    splits = NamedSplits("people", {"forget": forget, "retain": (*copies, *others())}, {})
    run = RunFolder(tmp_path / "run")
    found = check_data(run, splits, SETTINGS, seed=0)
    assert read_soundness(run.soundness) == found
    assert exit_code(found.lines) == 3
    assert found.leaking["copied questions"] == tuple(i.id for i in forget[12:15])


def test_the_checks_are_of_these_questions_with_all_that_is_asked():
    splits = NamedSplits("people", {"forget": people(), "retain": others()}, {})

    def digest(**changes):
        forget = (replace(people()[0], **changes), *people()[1:])
        return replace(splits, splits={**splits.splits, "forget": forget}).digest

    assert digest() == splits.digest
    options = Options(("Axe", "x", "y"), 0)
    assert len({digest(**c) for c in ({}, {"perturbed": ("x",)}, {"options": options}, {"paraphrase": "P?"})}) == 4


@pytest.mark.slow
def test_torch_is_not_loaded():
    said = "import sys, vestige.data.soundness; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_result_that_lacks_something_is_refused_by_field(tmp_path):
    run = RunFolder(tmp_path)
    run.soundness.write_text('{"schema": 2, "forget": "f", "lines": [{"check": "x"}], "settings": {}, "digest": "d"}')
    with pytest.raises(InputError, match=r"lines\.0\.sound"):
        read_soundness(run.soundness)


def test_how_many_items_the_margin_takes_is_said_once(tmp_path):
    path, forget = tmp_path / "data.jsonl", tmp_path / "forget.jsonl"
    rows = [{"question": i.question, "answer": i.answer, "perturbed_answer": list(i.perturbed)} for i in people()]
    written(forget, rows)
    # Enough retain items with options for the guesser to learn from.
    wrong = ["Rope A", "Rope B", "Rope C"]
    written(
        path, ({"question": f"Port {n} sells?", "answer": f"Rope {n}", "perturbed_answer": wrong} for n in range(24))
    )
    words = ["check-data", "--data", str(path), "--retain", str(path), "--forget", str(forget)]
    done = CliRunner().invoke(app, [*words, "--output-dir", str(tmp_path / "run")])
    found = read_soundness(RunFolder(tmp_path / "run").soundness)
    assert sum(line.sound is None and line.effect is not None for line in found.lines) >= 1
    assert found.needs == "the margin 0.1 needs about 73 items where chance is 0.25"
    assert done.stdout.count("needs about") == 1


@pytest.mark.slow
def test_exit_codes_say_what_was_found(tmp_path):
    path = written(tmp_path / "data.jsonl", squares(30))
    forget = written(tmp_path / "forget.jsonl", squares(8))
    words = ["check-data", "--data", str(path), "--output-dir", str(tmp_path / "run"), "--forget"]
    done = CliRunner().invoke(app, [*words, str(forget), "--json"])
    assert done.exit_code == 4
    assert json.loads(done.stdout)["lines"][-1]["sound"] is None
    done = CliRunner().invoke(app, [*words, str(path)])
    assert isinstance(done.exception, InputError)
    assert f"the forget set is all of {path}, which leaves nothing to keep. Name a part" in str(done.exception)
    with path.open("a") as file:
        file.write(json.dumps({"question": "WHAT is number 3 ?", "answer": "9"}) + "\n")
    done = CliRunner().invoke(app, [*words, str(forget)])
    assert done.exit_code == 3
    assert "copied questions" in done.stdout
