"""The documentation: the tutorial runs as it is printed, and the pages stay short enough to be read."""

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
import typer.main
from transformers import LlamaForCausalLM
from typer.testing import CliRunner

import audited
import vestige
from vestige.artifacts.audits import REQUIRED
from vestige.auditing import run as study
from vestige.cli.app import app
from vestige.core.errors import VestigeError
from vestige.core.files import read_json
from vestige.core.items import Item
from vestige.metrics import intervals
from vestige.models import tiny

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATED = {"cli.md", "methods.md", "reference.md", "error_rates.md", "forget_quality.md", "muse.md", "rejudged.md"}
GENERATED |= {"without_controls.md"}
RESULTS = {"papers.md", "findings.md"}
MOST_WORDS = 22_000
"""The most words of the manual: every page but generated references and the results of measurements."""
MOST_RESULT_WORDS = 6_500
"""The most words of pages with results that are written by hand."""
FEWEST_BLOCKS = 4
"""The fewest blocks of code among 1,000 words of the manual."""


def commands(page: str, before: str, folder: Path) -> list[list[str]]:
    """What a shell makes of the page's `sh` blocks, in order; `before` is read first. Only Python runs."""
    blocks = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    script = r"vestige() { printf '%s\0' vestige " + '"$@"; echo; }\n' + before + "".join(blocks)
    done = subprocess.run(["bash", "-euc", script], cwd=folder, capture_output=True, text=True, check=True)
    return [line.rstrip("\0").split("\0") for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_the_tutorial_runs_as_it_is_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(intervals, "RESAMPLES", 400)
    monkeypatch.setattr(study, "run_tasks", audited.in_this_process)
    (tmp_path / "practice.py").write_bytes((DOCS / "practice.py").read_bytes())
    torch.manual_seed(0)
    config = audited.nano_config()
    config.max_position_embeddings = 1024
    LlamaForCausalLM(config).save_pretrained("own")
    tiny.tiny_tokenizer([Item("Where was Ada Abara born?", "Ada Abara was born in Oslo.")]).save_pretrained("own")
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    assert page.count("MODEL=builtin:tiny") == 1
    # Six people instead of fifty, and a model of one's own in the place of the built-in one.
    shell = f'python() {{ {sys.executable} "$1" 6 3; }}\n'
    typed = commands(page.replace("MODEL=builtin:tiny", "MODEL=./own"), shell, tmp_path)
    assert [words[1] for words in typed].count("finetune") == 4
    for words in typed:
        try:
            code = CliRunner().invoke(app, words[1:], catch_exceptions=False).exit_code
        except VestigeError as error:
            code = error.exit_code
        verdict = words[1] in {"check-data", "audit"} and "--plan" not in words
        # The nano model learns too little of the data, which finetune reports by the exit code 3.
        assert code in ({0, 3, 4} if verdict or words[1] == "finetune" else {0}), words
    verdicts = read_json(tmp_path / "runs" / "mine" / "verdicts.json")
    assert (tmp_path / "runs" / "mine" / "report.html").is_file()
    assert {row["claim"] for row in verdicts} == set(REQUIRED)


def test_every_option_on_a_page_is_one_of_its_command():
    pages = [ROOT / "README.md", *(page for page in DOCS.glob("*.md") if page.name not in GENERATED)]
    told = [
        (page.name, words)
        for page in pages
        for block in re.findall(r"```(?:sh|console|bash)?\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for words in re.findall(r"\bvestige ([a-z].*)", block.replace("\\\n", " "))
    ]
    assert len(told) > 40
    for page, words in told:
        command = typer.main.get_command(app)
        # `vestige probe` by itself is `probe all`.
        for word in (*words.split(), "all"):
            if hasattr(command, "get_command"):
                command = command.get_command(typer.Context(command), word) or command
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<= )--[a-z-]+", words)) <= known | {"--help"}, (page, words)


def test_files_that_pages_name_and_sections_that_messages_name_are_there():
    pages = {page.name: page.read_text(encoding="utf-8") for page in DOCS.glob("*.md")}
    files = {
        name for said in pages.values() for name in re.findall(r"`((?:tests|benchmarks|tools)/[\w./]+\.\w+)[`:]", said)
    }
    assert len(files) > 20
    assert {name for name in files if not (ROOT / name).exists()} == set()
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    sections = re.findall(r"docs/([\w-]+\.md)[^\"\n]*?\(([A-Z][\w ]+)\)", code)
    assert sections
    assert [(page, name) for page, name in sections if f"# {name}\n" not in pages[page]] == []


def test_the_pages_are_short_enough_to_be_read():
    blocks_of_figures = runpy.run_path(str(ROOT / "tools" / "figures.py"))["BLOCK"]
    pages = {}
    for page in DOCS.rglob("*.md"):
        # A script writes the figures.
        pages[page] = blocks_of_figures.sub("", page.read_text(encoding="utf-8")).split()
    # Bars and dashes of tables are no words.
    words = {page: sum(any(map(str.isalnum, word)) for word in said) for page, said in pages.items()}
    written = {page: n for page, n in words.items() if page.name not in GENERATED}
    results = {page for page in written if page.name in RESULTS or page.parent.name == "findings"}
    manual = sum(n for page, n in written.items() if page not in results)
    assert manual <= MOST_WORDS, written
    blocks = [
        re.findall(r"^ *```\w+$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for page in written
        if page not in results
    ]
    assert 1000 * sum(map(len, blocks)) >= FEWEST_BLOCKS * manual
    assert sum(written[page] for page in results) <= MOST_RESULT_WORDS, written


def test_the_picture_in_the_readme_is_of_the_page_as_it_is():
    picture = runpy.run_path(str(ROOT / "tools" / "picture.py"))
    png = (DOCS / "report.png").read_bytes()
    assert picture["text_of"](png) == picture["words"](), "run `make demo`, then `python tools/picture.py`"
    assert picture["text_of"](picture["with_text"](b"a picture" + png[-12:], "words")) == "words"
    assert picture["text_of"](b"another") == ""


def test_the_figures_of_the_promises_are_those_of_the_suite_and_the_results():
    from damaging import CASES

    def constant(file, pattern):
        return re.findall(pattern, (ROOT / "tests" / file).read_text(encoding="utf-8"), flags=re.MULTILINE)

    folders = ("model folders", "adapters", "compiled folders", "run folders", "folders of holes")
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    n = sum(CASES[name] for name in folders)
    assert f"| {n} damaged folders, {CASES['checkpoints']} checkpoints |" in text
    (kills,) = constant("cli/test_probe_kills.py", r"^KILLS, .* = (\d+),")
    assert f"| {kills} kills of a probe |" in text
    published = constant("metrics/test_memorization.py", r"^        \(\"(?:llama2|phi)[^\n]*e-\d+\),$")
    assert f"| {len(published)} p-values |" in text
    results = (ROOT / "benchmarks" / "results" / "adversarial.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in results.splitlines() if line.startswith("|")][2:]
    assert {row[-1] for row in rows} == {"0"}
    assert f"{len(rows)} kinds of such tables, two of each" in text
    assert f"None of the {2 * len(rows)} tables passes" in text


def test_each_promise_names_a_test_or_benchmark_that_exists():
    for page, least in [("docs/reliability.md", 20), ("SECURITY.md", 8)]:
        text = (ROOT / page).read_text(encoding="utf-8")
        rows = [line for line in text.splitlines() if line.startswith("|") and "::test_" in line]
        assert len(rows) >= least
        section = text.split("\n## ")[1]
        table = [line for line in section.splitlines() if line.startswith("|")][2:]
        for row in table:
            assert "::test_" in row or "python -m benchmarks." in row, row
        for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
            assert re.search(rf"^def {test}\(", (ROOT / file).read_text(encoding="utf-8"), flags=re.MULTILINE), test
    for page in DOCS.rglob("*.md"):
        for module in re.findall(r"python -m benchmarks\.(\w+)", page.read_text(encoding="utf-8")):
            assert (ROOT / "benchmarks" / f"{module}.py").is_file(), (page.name, module)


def test_figures_and_the_list_of_pages_are_those_of_their_sources(monkeypatch, capsys):
    for tool in ("figures", "llms"):
        monkeypatch.setattr(sys, "argv", [tool, "--check"])
        assert runpy.run_path(str(ROOT / "tools" / f"{tool}.py"))["main"]() == 0, capsys.readouterr().err


def test_a_changed_figure_is_noticed():
    figures = runpy.run_path(str(ROOT / "tools" / "figures.py"))
    text = (DOCS / "findings" / "planted.md").read_text(encoding="utf-8")
    ((_, name, shown, _),) = [found for found in figures["BLOCK"].findall(text) if found[1] == "planted-bounds"]
    settings = tomllib.loads((ROOT / "tools" / "figures.toml").read_text(encoding="utf-8"))[name]
    assert figures["block"](settings) == shown
    assert "| steady | 0.013 | 0.012 | 0.971 |" in shown
    settings["columns"] = settings["columns"][:2]
    assert figures["block"](settings) != shown
    with pytest.raises(KeyError, match="unheard-of"):
        figures["block"](settings | {"rows": ["unheard-of"]})


def test_the_reference_has_every_public_name():
    named = re.findall(r"^::: vestige\.(\w+)$", (DOCS / "reference.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(named) == sorted(dir(vestige))


@pytest.mark.slow
def test_the_printed_outputs_of_the_tutorials_are_those_of_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["practice.py"])
    runpy.run_path(str(DOCS / "practice.py"), run_name="__main__")
    files = ["--data", "data.csv", "--forget", "forget.csv"]
    controls = ["--retrained", "a", "--retrained", "b", "--retrained", "c"]
    plan = ["audit", "--plan", *files, "--holdout", "holdout.csv", *controls]
    cases = [("tutorial.md", "text", plan, 0), ("install.md", "console", ["audit", "--logs", "example"], 3)]
    for page, kind, words, code in cases:
        done = CliRunner(env={"COLUMNS": "80"}).invoke(app, words, catch_exceptions=False)
        assert done.exit_code == code
        printed = [" ".join(line.split()) for line in done.output.splitlines()]
        (shown, *_) = re.findall(rf"```{kind}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)
        lines = [" ".join(line.split()) for line in shown.splitlines() if line != "..." and not line.startswith("$")]
        assert len(lines) >= 2
        assert [line for line in lines if line not in printed] == []
