"""The engine of all commands: settings classes become options, TOML keys and `--set` keys, and those settings again.

A command names the settings classes that it takes (`Part`) and gets what was given of them in one parameter (`Given`).
Each setting is an option with the text below its field as help, a key of `--set KEY=VALUE`, and a key of the file
`--config`; those of a named part begin with its name: `--trajectory.items`, `--set trajectory.items=64`. The classes
live in modules that load torch, so what `--help` says of them is read from `settings.json`, which
`tools/cli_page.py` writes from the classes themselves.

Options that are no settings are a command's own parameters, or a frozen dataclass of such that commands share.
"""

import difflib
import functools
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from importlib import import_module, resources
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from vestige.core.errors import InputError
from vestige.core.text import one_line, value_in

if TYPE_CHECKING:
    from vestige.core.settings import Settings

    T = TypeVar("T", bound=Settings)

_FILE = "vestige settings of --config"


class Part(NamedTuple):
    """A settings class of a command, as `module:Class`, and how it stands in the help.

    `name` stands before its keys. The keys in `first` come first; keys that begin as one of `panels` stand in that
    panel. `renamed` gives a key another name, or none ("") where the command sets it otherwise; `spelled` gives only
    its option another one. A `hidden` part has no options: its keys are known, so that one file serves many commands.
    """

    kind: str
    panel: str
    name: str = ""
    first: tuple[str, ...] = ()
    panels: Mapping[str, str] = {}
    renamed: Mapping[str, str] = {}
    spelled: Mapping[str, str] = {}
    hidden: bool = False

    def option(self, name: str) -> str:
        """How the option of a setting is spelled, by its name in the class."""
        return f"--{self.spelled.get(name, self.keys()[name]).replace('_', '-')}"

    def keys(self) -> dict[str, str]:
        """The key of each setting here, by its name in the class."""
        rows = self.rows()
        order = sorted(rows, key=lambda key: self.first.index(key) if key in self.first else len(self.first))
        renamed = {key: self.renamed.get(key, key) for key in order}
        return {key: f"{self.name}.{label}" if self.name else label for key, label in renamed.items() if label}

    def rows(self) -> Mapping[str, Any]:
        """What the table says of the settings: by name their type in words, default and text."""
        # Classes of other packages are not in the table, so that they have keys for --set and no options.
        rows: Mapping[str, Any] = settings_table().get(self.kind, {})
        return rows


@functools.cache
def settings_table() -> Mapping[str, Mapping[str, Sequence[Any]]]:
    """Of each settings class the type in words, default and text of its settings, as `tools/cli_page.py` wrote it."""
    table: Mapping[str, Mapping[str, Sequence[Any]]] = json.loads(
        resources.files("vestige.cli").joinpath("settings.json").read_text(encoding="utf-8")
    )
    return table


@dataclass(frozen=True)
class Given:
    """What was given of a command's settings; an option wins over `--set`, and that over `--config`.

    Keys of no part are those of a part that only the command knows, such as the
    method's: `part` gives them, and `refuse_others` refuses what nobody took.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    def of(self, kind: "type[Settings]", part: str | None = None) -> dict[str, Any]:
        """What was given of one class, by its own names; `part` tells two of one class apart."""
        return {n: self.values[key] for n, key in self._part(kind, part).keys().items() if key in self.values}

    def build(
        self, kind: "type[T]", defaults: Mapping[str, Any] | None = None, part: str | None = None, **fixed: Any
    ) -> "T":
        """The settings of one class: `defaults` replace the class's own, `own` is what the command says itself."""
        name = self._part(kind, part).name
        values = {**(defaults or {}), **self.of(kind, part), **fixed}
        return kind.build(values, where=f"settings of {name}" if name else "settings")

    def _part(self, kind: "type[Settings]", name: str | None) -> Part:
        path = f"{kind.__module__}:{kind.__qualname__}"
        return next(p for p in self.parts if p.kind == path and name in (None, p.name))

    def part(self, name: str) -> dict[str, Any]:
        """What was given of the settings that carry a name, by their keys without it."""
        return {k.removeprefix(f"{name}."): v for k, v in self.values.items() if k.startswith(f"{name}.")}

    def others(self, *names: str) -> list[str]:
        """Keys that belong to no class of the command and to none of these names."""
        keys = {key for part in self.parts for key in part.keys().values()}
        return [k for k in self.values if k not in keys and k.rpartition(".")[0] not in names]

    def refuse_others(self, *names: str) -> None:
        """Refuse a key that belongs to no class of the command and to none of these names."""
        for key in self.others(*names):
            raise _unknown(key, [*(k for part in self.parts for k in part.keys().values()), *names])


Commands = Mapping[str, str | typer.Typer]


class Brief(TyperCommand):
    """A command whose --help shows its common options, and all of them with --help-all."""

    # Any: typer carries classes of its own for contexts and commands, which have no public names.
    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        common = getattr(self.callback, "common", ())
        options = [p for p in self.params if isinstance(p, TyperOption) and not p.required and not p.hidden]
        brief = common and not ctx.meta.get(_ALL)
        # `_slot` the other way round.
        names = {o: (o.name or "").removeprefix("setting_").replace("__", ".") for o in options}
        rare = [option for option in options if brief and names[option] not in (*common, "help_all")]
        for option in rare:
            option.hidden = True
        try:
            super().format_help(ctx, formatter)
        finally:
            for option in rare:
                # The command is kept, and the next help that is asked of it may be the whole.
                option.hidden = False


_ALL = "vestige help of all options"


def _show_all(context: typer.Context, value: bool) -> None:
    if value:
        context.meta[_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


def group(
    text: str,
    commands: Commands | Callable[[], Mapping[str, str]],
    *,
    default: str = "",
    panels: Mapping[str, Sequence[str]] = {},
    **how: Any,
) -> typer.Typer:
    """A group of commands, each `module:function` in `vestige.cli`, or a group; a module is read when it is needed.

    So are the commands, where other packages may bring some. The command `default` need not be named. In the help the
    commands of each of `panels` stand together.
    """

    @functools.cache
    def table() -> Commands:
        return commands() if callable(commands) else commands

    class Lazy(TyperGroup):
        def list_commands(self, context: Any) -> list[str]:
            return list(table())

        def get_command(self, context: Any, name: str) -> Any:
            if name in table() and name not in self.commands:
                command = get_command(_application(name, table()[name]))
                command.name = name
                panel = next((panel for panel, names in panels.items() if name in names), None)
                command.__dict__["rich_help_panel"] = panel
                self.commands[name] = command
            return self.commands.get(name)

        def parse_args(self, context: Any, args: list[str]) -> list[str]:
            is_named = not default or not args or args[0] in table() or args[0] == "--help"
            if not is_named and not Path(args[0]).exists():
                # A mistyped command is no model: it is told so.
                is_named = bool(difflib.get_close_matches(args[0], table(), cutoff=0.8))
            return super().parse_args(context, args if is_named else [default, *args])

        def resolve_command(self, context: Any, args: list[str]) -> Any:
            if args[0] not in table():
                # Typer suggests names out of the commands that were read, and here they are read when needed.
                for name in difflib.get_close_matches(args[0], table()):
                    self.get_command(context, name)
            return super().resolve_command(context, args)

    app = typer.Typer(cls=Lazy, help=text, no_args_is_help=True, **{"add_completion": False, **how})
    # Typer refuses an application that has neither a callback nor commands of its own.
    app.callback()(lambda: None)
    return app


def _application(name: str, home: str | typer.Typer) -> typer.Typer:
    """The function at `home` as an application of one command; an application as it is."""
    if isinstance(home, typer.Typer):
        return home
    module, _, function = home.partition(":")
    # As in `attack:plain_command/quantize`: what makes the command of that name.
    function, _, argument = function.partition("/")
    run = getattr(import_module(f"vestige.cli.{module}"), function)
    run = run(argument) if argument else run
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    # Typer keeps the line breaks of a docstring, which a terminal of another width would break again.
    paragraphs = (inspect.getdoc(run) or "").split("\n\n")
    app.command(name, cls=Brief, help="\n\n".join(" ".join(p.split()) for p in paragraphs))(run)
    return app


def command(*parts: Part, common: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command as typer is to see it, with the options of these parts, and each dataclass of options as its fields.

    --help shows the options that `common` names, at most twelve; --help-all shows every one. Typer reads a command's
    options from its signature and passes them by name, so that what it calls takes any name.
    """

    def decorated(run: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(run).parameters
        groups: dict[str, Any] = {name: p.annotation for name, p in parameters.items() if is_dataclass(p.annotation)}

        @functools.wraps(run)
        def with_settings(**typed: Any) -> None:
            typed.pop("help_all", None)
            spelled: Mapping[tuple[str, str], str] = {}
            # The settings first: a mistake in them is said with everything else that was typed.
            for name, kind in sorted(groups.items(), key=lambda option: option[1] is not Given):
                if kind is Given:
                    typed[name], spelled = _given(parts, typed)
                else:
                    typed[name] = kind(**{option.name: typed.pop(option.name) for option in fields(kind)})
            from vestige.core.settings import SPELLED

            # Settings are checked far from here, by code that cannot know by which option a value came.
            token = SPELLED.set(spelled)
            try:
                run(**typed)
            finally:
                SPELLED.reset(token)

        options = [option for parameter in parameters.values() for option in _options(parameter)]
        options += [option for part in parts if not part.hidden for option in _setting_options(part)]
        options.sort(key=lambda option: option.default is not Parameter.empty)
        if common:
            options.append(Parameter("help_all", Parameter.KEYWORD_ONLY, default=False, annotation=_HelpAll))
        # Not by assignment: to a type checker a function has no such attribute, though `inspect` looks for it.
        with_settings.__dict__.update(
            __signature__=inspect.Signature(options), parts=parts, common=tuple(common.split())
        )
        return with_settings

    return decorated


_HelpAll = Annotated[
    bool, typer.Option("--help-all", help="Show every option.", callback=_show_all, is_eager=True, expose_value=True)
]


def _options(parameter: Parameter) -> Iterator[Parameter]:
    """A parameter as it is, or the options that a dataclass or `Given` stands for."""
    keyword = Parameter.KEYWORD_ONLY
    if parameter.annotation is Given:
        yield Parameter("config", keyword, default=None, annotation=_Config)
        yield Parameter("assignments", keyword, default=None, annotation=_Set)
        yield Parameter("context", keyword, annotation=typer.Context)
    elif is_dataclass(parameter.annotation):
        for option in fields(parameter.annotation):
            default = Parameter.empty if option.default is MISSING else option.default
            yield Parameter(option.name, keyword, default=default, annotation=option.type)
    else:
        yield parameter.replace(kind=keyword)


def _setting_options(part: Part) -> Iterator[Parameter]:
    rows = part.rows()
    for name, key in part.keys().items():
        kind, default, text = rows[name]
        panel = next((panel for begin, panel in part.panels.items() if name.startswith(begin)), part.panel)
        option = part.option(name)
        spellings, several, metavar = [option], kind.endswith(",..."), kind
        # A list may be given at once, by commas, or one by one.
        kind_of_value: Any = list[str] if several else str
        if kind == "true|false":
            # Of what is off by default nobody has to say so, and the column of opposites takes much of a line.
            *before, last = option.removeprefix("--").split(".")
            spellings = [f"{option}/--{'.'.join([*before, f'no-{last}'])}" if default is not False else option]
            kind_of_value, metavar = bool, None
        elif "|" in kind:
            *choices, last = kind.removesuffix(",...").split("|")
            choice = f"{', '.join(choices)} or {last if last.islower() or last.isdigit() else f'a {last.lower()}'}"
            text = f"{text} {'Of' if several else 'One of'} {choice}."
            metavar = "NAME,..." if several else "NAME"
        default_text = False if default is None or default in ("", [], False) else in_words(default)
        info = typer.Option(*spellings, metavar=metavar, help=text, rich_help_panel=panel, show_default=default_text)
        # None, and not the default: what was not typed is left to --set, --config and the defaults of a command.
        yield Parameter(
            _slot(key), Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind_of_value | None, info]
        )


def in_words(default: Any) -> str:
    """A default as it would be given."""
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, list):
        return ",".join(map(in_words, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def _slot(key: str) -> str:
    """The name of the parameter that brings a setting's option."""
    return f"setting_{key.replace('.', '__')}"


def _from_file(context: typer.Context, path: Path | None) -> Path | None:
    """Read the file of settings before the options, so that it also says those that are no settings, such as `data`."""
    if path is None:
        return None
    from vestige.core.settings import read_toml

    options = {p.name for p in context.command.params} - {"config", "assignments"}
    values = _flat(read_toml(path))
    context.meta[_FILE] = {key: value for key, value in values.items() if key not in options}
    # As click's defaults, over which goes whatever is typed.
    context.default_map = {key: value for key, value in values.items() if key in options}
    return path


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """A table in a table as keys with a dot."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return flat


_Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="A TOML file of options and settings; options given here win.",
        callback=_from_file,
        is_eager=True,
    ),
]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A setting by its key, as in learning_rate=2e-5; may be given several times."
    ),
]


def _given(parts: tuple[Part, ...], typed: dict[str, Any]) -> tuple[Given, dict[tuple[str, str], str]]:
    """The settings, which are taken out of what was typed, and how each was spelled, for `core.settings.SPELLED`."""
    typed.pop("config")
    in_file: Mapping[str, Any] = typed.pop("context").meta.get(_FILE, {})
    assignments = assigned(typed.pop("assignments"))
    types = {key: part.rows()[name][0] for part in parts for name, key in part.keys().items()}
    by_option: dict[str, Any] = {}
    spelled: dict[tuple[str, str], str] = {}
    for part in parts:
        for name, key in part.keys().items():
            spelled.setdefault((part.kind, name), key)
            value = typed.pop(_slot(key), None)
            if value is not None and value != []:
                if isinstance(value, str):
                    value = value_in(value, types[key])
                elif isinstance(value, list):
                    # Given once it is a list by commas; given several times, each is an item or a list of such.
                    first, *further = [value_in(text, types[key]) for text in value]
                    several = [item for v in (first, *further) for item in (v if isinstance(v, list) else [v])]
                    value = several if further else first
                by_option[key] = value
                spelled[part.kind, name] = part.option(name)
                if key in assignments:
                    raise InputError(f"{part.option(name)} and --set {key} say the same setting; give one of them")
    by_name = {key: value_in(text, types.get(key, "")) for key, text in assignments.items()}
    settings = Given({**in_file, **by_name, **by_option}, parts)
    # A key with a dot may be a setting of a method, which the command looks at itself (`refuse_others`).
    bare = [key for key in settings.others() if "." not in key]
    if bare:
        keys = [*types]
        if method := typed.get("method"):
            # Only a mistake needs the method's own keys, which are read from its class: that loads torch.
            from vestige.methods import find_method

            kind: Any = find_method(method)
            keys += [f"{method}.{key}" for key in kind.model_fields]
        raise _unknown(bare[0], keys)
    return settings, spelled


def _unknown(key: str, keys: Sequence[str]) -> InputError:
    # A key without the name of its part is too unlike the whole for a close match.
    same_ending = [name for name in keys if name.rpartition(".")[2] == key]
    near = same_ending or difflib.get_close_matches(key, keys, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`vestige list settings COMMAND` names them"
    return InputError(f"settings: unknown key {one_line(key)!r}; {hint}")


def assigned(words: Sequence[str] | None, option: str = "--set") -> dict[str, str]:
    """What `KEY=VALUE` words set, as text."""
    pairs = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"{option} {one_line(word)!r}: expected KEY=VALUE, as in learning_rate=2e-5")
        pairs[key.strip()] = value.strip()
    return pairs
