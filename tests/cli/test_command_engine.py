"""The engine of commands: from settings classes to options, files and `--set`, and back to the settings."""

import dataclasses
import re
import runpy
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer
from tests.small import in_a_child
from typer.main import get_command
from typer.testing import CliRunner

from vestige.cli import app as whole
from vestige.cli.command import Given, Part, command, settings_table
from vestige.core.errors import InputError
from vestige.training.settings import UnlearningSettings
from vestige.training.trajectory import TrajectorySettings

TRAINING = Part("vestige.training.settings:UnlearningSettings", "Training", first=("learning_rate",))
WATCH = Part(
    "vestige.training.trajectory:TrajectorySettings", "Watch", "watch", renamed={"every": "pace", "choose": ""}
)


@dataclasses.dataclass(frozen=True)
class Size:
    """Two options, one of which has to be given."""

    width: Annotated[int, typer.Option(help="How wide.")]
    depth: Annotated[int, typer.Option("--deep", help="How deep.")] = 3


@pytest.fixture
def called():
    """Runs a command with two settings classes and a dataclass of options; gives what it was given."""
    seen = []

    def own(name: Annotated[str, typer.Argument()], size: Size, loud: bool = False, *, given: Given) -> None:
        """Says what it was given."""
        given.refuse_others("npo")
        given.build(UnlearningSettings)
        given.build(TrajectorySettings)
        seen.append((name, size, loud, given))

    app = typer.Typer(add_completion=False)
    app.command()(command(TRAINING, WATCH)(own))

    def run(*words: object):
        done = CliRunner().invoke(app, [*map(str, words)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.output if done.exit_code or "--help" in words else seen.pop()

    return run


def test_options_of_a_dataclass_and_of_settings_stand_in_the_help_by_panel(called):
    told = called("--help")
    assert "Says what it was given." in told
    places = [
        told.index(w) for w in ("--width", "--deep", "Training", "--learning-rate", "--epochs", "Watch", "--watch.pace")
    ]
    assert places == sorted(places)
    assert "--watch.choose" not in told
    # What is on by default can be switched off; the opposite of what is off is not shown.
    assert "--no-bucket" not in told


def test_a_setting_is_an_option_a_key_of_set_and_a_key_of_the_file(called, tmp_path):
    (tmp_path / "s.toml").write_text(
        "width = 4\nepochs = 2\nbatch_size = 5\nbucket = true\n[watch]\npace = '5 steps'\n"
    )
    words = ["--config", tmp_path / "s.toml", "--set", "batch_size=6", "--set", "lora_targets=q_proj,v_proj"]
    words += ["--learning-rate", "2e-5", "--lora-dora", "--watch.stop-when", "forget<=0.3,retain<0.5"]
    name, size, loud, given = called("box", "--deep", 1, *words, "--watch.stop-when", "forget<=0.1")
    assert (name, size, loud) == ("box", Size(width=4, depth=1), False)
    found = given.build(UnlearningSettings, {"epochs": 9, "max_steps": 7})
    assert (found.epochs, found.batch_size, found.learning_rate, found.max_steps) == (2, 6, 2e-5, 7)
    assert (found.lora_dora, found.bucket, found.lora_targets) == (True, True, ("q_proj", "v_proj"))
    watched = given.build(TrajectorySettings)
    assert (watched.every, watched.stop_when) == ("5 steps", ("forget<=0.3", "retain<0.5", "forget<=0.1"))
    assert given.part("watch")["pace"] == "5 steps"
    assert called("box", "--width", 1, "--set", "npo.beta=0.2")[3].part("npo") == {"beta": 0.2}


def test_a_setting_of_the_method_is_offered_by_its_full_name():
    words = ["unlearn", "m", "--method", "dpo", "--data", "d", "--forget", "f", "--output-dir", "o", "--set", "beta=1"]
    ended = CliRunner().invoke(whole.app, words)
    assert "unknown key 'beta'; did you mean 'dpo.beta'?" in str(ended.exception)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--epochs", "no"], "settings: --epochs = 'no': must be a whole number"),
        (["--set", "epochs=no"], "settings: epochs = 'no': must be a whole number"),
        (["--watch.pace", "often"], "'often' is no pace"),
        (["--set", "epoch=1"], "unknown key 'epoch'; did you mean 'epochs'"),
        (["--set", "epochs"], "expected KEY=VALUE"),
        (["--epochs", 1, "--set", "epochs=2"], "--epochs and --set epochs say the same"),
        (["--set", "dpo.beta=2"], "unknown key 'dpo.beta'"),
    ],
)
def test_what_is_wrong_is_named_as_it_was_spelled(called, words, complaint):
    # As it was spelled is known while the command runs, so that whoever builds the settings can say it.
    with pytest.raises(InputError, match=complaint):
        called("box", "--width", 1, *words)


def test_an_option_without_a_default_has_to_be_typed(called):
    assert "--width" in called("box")


def test_two_options_of_one_name_are_refused_before_anything_is_typed():
    def own(width: int, size: Size) -> None:
        """Does nothing."""

    with pytest.raises(ValueError, match="duplicate parameter name: 'width'"):
        command()(own)


def check_page() -> None:
    sys.argv = ["cli_page.py", "--check"]
    runpy.run_path(str(Path(__file__).parents[2] / "tools" / "cli_page.py"), run_name="__main__")


def test_the_table_of_settings_is_what_the_classes_say():
    # In a child, since the page's commands are changed while it is made.
    assert in_a_child(check_page) == 0
    assert settings_table()["vestige.training.settings:UnlearningSettings"]["batch_size"][:2] == ["INTEGER", 4]


def test_help_shows_twelve_options_and_help_all_every_one():
    context = typer.Context(get_command(whole.app), info_name="vestige")
    for path in every_command(context.command, context):
        brief, full = (CliRunner().invoke(whole.app, [*path, word]).output for word in ("--help", "--help-all"))
        shown = [set(re.findall(r"^│ [* ]+(--[\w.-]+)", text, re.MULTILINE)) for text in (brief, full)]
        if "--help-all" not in shown[0]:
            continue
        assert len(shown[0] - {"--help", "--help-all"}) <= 12, (path, sorted(shown[0]))
        assert shown[0] < shown[1], path


def every_command(one, context, path=()):
    """The words of each command within a command."""
    names = one.list_commands(context) if hasattr(one, "list_commands") else []
    if not names:
        yield path
    for name in names:
        yield from every_command(one.get_command(context, name), context, (*path, name))


def test_commands_stand_in_groups():
    told = CliRunner().invoke(whole.app, ["--help"]).output
    assert all(f"─ {panel} ─" in told for panel in ("Start", "Data", "Models", "Audit", "Results"))
    assert "─ Commands ─" not in told


def test_version_quiet_and_unknown_commands():
    done = CliRunner().invoke(whole.app, ["--version"])
    assert (done.exit_code, done.stdout.split()[0]) == (0, "vestige")
    refused = CliRunner().invoke(whole.app, ["finetun"])
    assert (refused.exit_code, "'finetune'" in refused.output) == (2, True)
    assert CliRunner().invoke(whole.app, ["attack", "--help"]).output.count("prefix")
    mistyped = CliRunner().invoke(whole.app, ["attack", "prefx", "A"])
    assert (mistyped.exit_code, "Did you mean 'prefix'?" in mistyped.output) == (2, True)
    # `probe` by itself is `probe all`, whatever comes first.
    for words in (["t", "u", "--k", "0"], ["--k", "0", "t", "u"]):
        assert "equal to 1" in CliRunner().invoke(whole.app, ["probe", *words]).output
