"""Commands from functions: arguments and settings become options, keys of `--set` and of a file, and back."""

import re
from collections.abc import Sequence

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import vestige
from vestige.cli import app as whole
from vestige.cli.command import Part, arguments_of, command
from vestige.core.errors import InputError

TRAINING = Part("vestige.training.settings:UnlearningSettings", "Training", first=("learning_rate",))
WATCH = Part("vestige.training.stopping:TrajectorySettings", "Watch", "watch", renamed={"every": "pace", "choose": ""})


def build(
    name: str,
    *,
    width: int,
    depth: int = 3,
    parts: Sequence[str] = ("top",),
    loud: bool = False,
    training: "vestige.Training | None" = None,
    watch: "vestige.Trajectory | None" = None,
) -> dict[str, object]:
    """Build a box.

    It stays where it is built.

    Args:
        name: Its name.
        width: How wide it is,
            in metres.
        depth: How deep.
        parts: Its parts.
        loud: Whether it is loud.
        training: The training.
        watch: The watching.

    Returns:
        Its arguments.
    """
    return {"name": name, "width": width, "depth": depth, "parts": parts, "loud": loud, "of": (training, watch)}


@pytest.fixture
def called():
    """Runs the command of `build`; gives what the function was given."""
    seen = []

    def run(call) -> None:
        seen.append(call.run())

    how = {"positional": ("name",), "parts": {"training": TRAINING, "watch": WATCH}, "spelled": {"depth": "deep"}}
    made = command(build, open_names=lambda typed, given: ["npo"], **how)(run)
    made.__dict__["__signature__"] = made.options(whole=True)
    app = typer.Typer(add_completion=False)
    app.command(help=made.about)(made)

    def invoke(*words: object):
        done = CliRunner().invoke(app, [*map(str, words)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.output if done.exit_code or "--help" in words else seen.pop()

    return invoke


def test_the_help_is_the_docstring_and_settings_are_in_their_panels(called):
    told = called("--help")
    assert arguments_of(build)["width"] == "How wide it is, in metres."
    assert "It stays where it is built." in told
    assert "Its arguments" not in told
    words = ("--width", "--deep", "--parts", "Training", "--learning-rate", "--epochs", "Watch", "--watch.pace")
    assert [told.index(word) for word in words] == sorted(told.index(word) for word in words)
    assert "--watch.choose" not in told
    # What is on by default can be switched off; the opposite of what is off is not shown, and a flag has no type.
    assert "--no-bucket" not in told


def test_a_setting_is_an_option_a_key_of_set_and_a_key_of_the_file(called, tmp_path):
    (tmp_path / "s.toml").write_text(
        "width = 4\nepochs = 2\nbatch_size = 5\nbucket = true\n[watch]\npace = '5 steps'\n"
    )
    words = ["--config", tmp_path / "s.toml", "--set", "batch_size=6", "--set", "lora_targets=q_proj,v_proj"]
    words += ["--learning-rate", "2e-5", "--lora-dora", "--watch.stop-when", "forget<=0.3,retain<0.5"]
    found = called("box", "--deep", 1, "--parts", "a, b", *words, "--watch.stop-when", "forget<=0.1")
    assert [found[key] for key in ("name", "width", "depth", "parts", "loud")] == ["box", 4, 1, ["a", "b"], False]
    training, watched = found["of"]
    assert (training.epochs, training.batch_size, training.learning_rate) == (2, 6, 2e-5)
    assert (training.lora_dora, training.bucket, training.lora_targets) == (True, True, ("q_proj", "v_proj"))
    assert training.model_fields_set == {
        "epochs", "batch_size", "learning_rate", "lora_dora", "bucket", "lora_targets"
    }  # fmt: skip
    assert (watched.every, watched.stop_when) == ("5 steps", ("forget<=0.3", "retain<0.5", "forget<=0.1"))
    assert called("box", "--width", 1, "--set", "npo.beta=0.2")["of"] == (None, None)


def test_a_setting_of_the_method_is_offered_by_its_full_name():
    words = ["unlearn", "m", "--method", "dpo", "--data", "d", "--forget", "f", "--output-dir", "o", "--set", "beta=1"]
    ended = CliRunner().invoke(whole.app, words)
    assert "unknown key 'beta'. Did you mean 'dpo.beta'?" in str(ended.exception)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--epochs", "no"], "settings: --epochs = 'no': must be a whole number"),
        (["--set", "epochs=no"], "settings: epochs = 'no': must be a whole number"),
        (["--watch.pace", "often"], "'often' is not a pace"),
        (["--set", "watch.pace=[1]"], r"watch\.pace = \[1\]: must be text"),
        (["--set", "epoch=1"], "unknown key 'epoch'. Did you mean 'epochs'"),
        (["--set", "lr=1"], "unknown key 'lr'. Did you mean 'learning_rate'"),
        (["--set", "epochs"], "expected KEY=VALUE"),
        (["--epochs", 1, "--set", "epochs=2"], "--epochs and --set epochs are the same setting"),
        (["--set", "dpo.beta=2"], "unknown key 'dpo.beta'"),
    ],
)
def test_a_mistake_is_named_as_it_was_spelled(called, words, complaint):
    # The spelling is known while the command runs, so that the settings far below can say it.
    with pytest.raises(InputError, match=complaint):
        called("box", "--width", 1, *words)


def test_an_option_without_a_default_has_to_be_typed_and_a_mistyped_one_gets_a_hint(called):
    assert "--width" in called("box")
    assert "--width" in called("box", "--widht", 1)


def test_a_list_of_commands_builds_no_options(monkeypatch):
    def refuse(home):
        raise AssertionError("the table of settings was read")

    monkeypatch.setattr("vestige.cli.command.settings_rows", refuse)
    assert "finetune" in CliRunner().invoke(whole.app, ["--help"]).output


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
    for words in (["t", "u", "--k", "x"], ["--k", "x", "t", "u"]):
        assert "vestige probe all" in CliRunner().invoke(whole.app, ["probe", *words]).output
