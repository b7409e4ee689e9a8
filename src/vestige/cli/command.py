"""Commands from functions: a public function's arguments become options, its docstring the help, and the call is made.

`@command(api.finetune)` reads the signature. An argument that is a settings object, such as `training`, becomes an
option for each of its fields (`--learning-rate`), a key of `--set KEY=VALUE` and a key of the file `--config`. Those of
a named part begin with its name: `--choices.options`.
"""

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import Parameter
from keyword import iskeyword
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from vestige.api.inputs import FROM_COMMAND
from vestige.core.errors import InputError
from vestige.core.text import Fields, Record, TextByName, TextTuple, closest, one_line, value_in

if TYPE_CHECKING:
    from vestige.core.settings import Settings

_FILE = "vestige settings of --config"


class Part(NamedTuple):
    """A settings class of a command, as `module:Class`, and its place in the help.

    `name` is the prefix of its keys. The keys in `first` come first. Keys that begin with a name in `panels` are in
    that panel. `renamed` gives a key another name, or none ("") if an argument of the function sets it. `spelled`
    renames only the option.
    """

    home: str
    panel: str
    name: str = ""
    first: TextTuple = ()
    panels: Mapping[str, str] = {}
    renamed: Mapping[str, str] = {}
    spelled: Mapping[str, str] = {}

    def option(self, name: str) -> str:
        """Return the option of a setting, by its name in the class."""
        return f"--{self.spelled.get(name, self.keys()[name]).replace('_', '-')}"

    def keys(self) -> TextByName:
        """The key of each setting here, by its name in the class."""
        rows = settings_rows(self.home)
        keys = {}
        for name in dict.fromkeys((*self.first, *rows)):
            label = self.renamed.get(name, name)
            if label and name in rows:
                keys[name] = f"{self.name}.{label}".removeprefix(".")
        return keys


@functools.cache
def settings_rows(home: str) -> Mapping[str, Sequence[Any]]:
    """The type in words, default and text of each setting of a class of Vestige.

    Classes of other packages have keys for --set and no options.
    """
    from vestige.core.settings import Settings, described

    module, _, name = home.partition(":")
    kind = getattr(import_module(module), name) if module.startswith("vestige.") else None
    if isinstance(kind, type) and issubclass(kind, Settings):
        return described(kind)
    return {}


@dataclass(frozen=True)
class Given:
    """The settings from the command line. An option wins over `--set`, and that over `--config`."""

    values: Record = field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    def of(self, part: Part) -> Fields:
        """The settings of one part, by their names in its class."""
        return {name: self.values[key] for name, key in part.keys().items() if key in self.values}

    def named(self, name: str) -> Fields:
        """The settings whose keys begin with a name, by their keys without it."""
        return {k.removeprefix(f"{name}."): v for k, v in self.values.items() if k.startswith(f"{name}.")}

    def others(self, *names: str) -> list[str]:
        """Return the keys outside the command's classes and these names."""
        keys = self.keys()
        return [k for k in self.values if k not in keys and k.rpartition(".")[0] not in names]

    def keys(self) -> list[str]:
        """All keys of the command's classes."""
        keys: list[str] = []
        for part in self.parts:
            keys += part.keys().values()
        return keys

    def refuse_others(self, *names: str) -> None:
        """Reject keys outside the command's classes and these names."""
        for key in self.others(*names):
            raise _unknown(key, [*self.keys(), *names])


@dataclass(frozen=True)
class Call:
    """A parsed call of a function: its arguments and settings."""

    function: Callable[..., Any]
    arguments: Record
    given: Given

    def run(self, **changes: Any) -> Any:
        """Call the function."""
        return self.function(**{**self.arguments, **changes})

    def data_words(self, forget: str | None = None) -> TextTuple:
        """Return the options that select the same items again: data, columns, forget set."""
        data = self.arguments["data"]
        words = ["--data", str(getattr(data, "data", data))]
        for key, value in self.given.values.items():
            if key.endswith("_key") and value:
                words += [f"--{key.replace('_', '-')}", str(value)]
        forget = forget or self.arguments.get("forget")
        if forget:
            words += ["--forget", forget]
        return tuple(words)


def command(
    function: Callable[..., Any],
    *,
    positional: Sequence[str] = ("model",),
    parts: Mapping[str, Part | Sequence[Part]] = {},
    spelled: Mapping[str, str] = {},
    repeated: Sequence[str] = (),
    optional: Sequence[str] = (),
    required: Sequence[str] = (),
    without: Sequence[str] = (),
    open_names: Callable[[Record, Given], Sequence[str]] = lambda typed, given: (),
    common: str = "",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the command of a function: the decorated function gets a `Call` and prints the result.

    Args:
        function: The public function. Its docstring is the help.
        positional: Arguments without an option's name.
        parts: The settings classes of arguments that are settings objects, `data` and `evals`.
        spelled: The options' names of arguments that have another name in Python.
        repeated: List arguments, whose option is repeatable.
        optional: Arguments that the function needs and the command does not always.
        required: Arguments that the command always needs, though the function does not.
        without: Arguments that have no option.
        open_names: Returns prefixes of keys from the parsed words, such as the method's name.
        common: The options in --help, at most twelve; --help-all shows every one.
    """

    def decorated(run: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function).parameters
        texts = {**_TEXTS, **arguments_of(function), **arguments_of(run)}
        names = {**_SPELLED, **spelled}
        flat: list[Part] = []
        for entry in parts.values():
            flat += [entry] if isinstance(entry, Part) else entry
        options_of_run = [p for p in inspect.signature(run).parameters.values() if p.name != "call"]
        plain = [p for name, p in signature.items() if name not in without and (name not in parts or name in _BOTH)]

        @functools.wraps(run)
        def typed_command(**typed: Any) -> None:
            typed.pop("help_all", None)
            # Settings are parsed first, so that one error lists their mistakes with all others.
            given, spellings = _given(tuple(flat), typed)
            from vestige.core.settings import SPELLED

            # The code that checks settings is elsewhere and cannot know the option that a value came from.
            tokens = SPELLED.set(spellings), FROM_COMMAND.set(True)
            try:
                given.refuse_others(*open_names(typed, given))
                arguments = {}
                for p in (*plain, *options_of_run):
                    value = typed.pop(_attribute(names.get(p.name, p.name)))
                    if _by_comma(p.annotation) and isinstance(value, str):
                        value = list(dict.fromkeys(word.strip() for word in value.split(",") if word.strip()))
                    if value is not None or p.default is None or p.name in optional:
                        arguments[p.name] = value
                for name, entry in parts.items():
                    _fill(arguments, name, entry, given)
                options = {p.name: arguments.pop(p.name) for p in options_of_run if p.name in arguments}
                run(Call(function, arguments, given), **options)
            finally:
                SPELLED.reset(tokens[0])
                FROM_COMMAND.reset(tokens[1])

        def options(*, whole: bool) -> inspect.Signature:
            found = []
            for p in (*plain, *options_of_run):
                needed = p.replace(default=Parameter.empty) if p.name in required else p
                found.append(_option(needed, names.get(p.name, p.name), texts, positional, repeated, optional))
            if flat:
                found += [
                    Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=_Config),
                    Parameter("assignments", Parameter.KEYWORD_ONLY, default=None, annotation=_Set),
                    Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context),
                ]
            if whole:
                for part in flat:
                    found += _setting_options(part)
            found.sort(key=lambda option: option.default is not Parameter.empty)
            if common:
                found.append(Parameter("help_all", Parameter.KEYWORD_ONLY, default=False, annotation=_HelpAll))
            return inspect.Signature(found)

        # No assignment: to a type checker a function has no such attribute, though `inspect` looks for it.
        about = inspect.getdoc(run) or inspect.getdoc(function) or ""
        typed_command.__dict__.update(
            options=options, parts=tuple(flat), common=tuple(common.split()), about=about.partition("\nArgs:\n")[0]
        )
        return typed_command

    return decorated


def itself(**how: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The command of a function that prints by itself. `how` has the arguments of `command`."""

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        def run(call: Call) -> None:
            call.run()

        return command(function, **how)(run)

    return decorated


_SPELLED = {"as_json": "json"}
_TEXTS = {"as_json": "Print one JSON document on stdout."}
"""The argument that many commands have."""

_BOTH = ("data", "evals")
"""Arguments with an option besides their settings' options."""


def _fill(arguments: Fields, name: str, entry: Part | Sequence[Part], given: Given) -> None:
    """Put settings objects, and data and evaluations with their settings, in the place of an argument."""
    if name == "evals":
        from vestige.evals import EVALS, eval_home

        for evaluation in arguments["evals"]:
            eval_home(evaluation)  # The lookup comes before loading, so that a mistake costs no time.
        # Rejected and not ignored, since the user expects it to have an effect.
        for key in given.values:
            owner = key.rpartition(".")[0]
            if owner in EVALS and owner not in arguments["evals"]:
                raise InputError(f"{key} is a setting of {owner}. Add {owner} to --evals")
        if not arguments["evals"]:
            raise InputError("--evals names no evaluation. See `vestige list evals`")
        arguments["evals"] = {evaluation: given.named(evaluation) for evaluation in arguments["evals"]}
        return
    assert isinstance(entry, Part)
    values = given.of(entry)
    if name == "data":
        if values and arguments.get("data"):
            arguments["data"] = _kind(entry).build({**values, "data": arguments["data"]})
    elif values:
        arguments[name] = _kind(entry).build(values, where=f"settings of {entry.name}" if entry.name else "settings")


def _kind(part: Part) -> "type[Settings]":
    module, _, name = part.home.partition(":")
    kind: type[Settings] = getattr(import_module(module), name)
    return kind


def arguments_of(function: Callable[..., Any]) -> TextByName:
    """The text of each argument in the docstring's section Args."""
    text = inspect.getdoc(function) or ""
    section = re.search(r"^Args:\n((?:    .*\n|\n)+)", text + "\n", re.MULTILINE)
    found: TextByName = {}
    if section is not None:
        for entry in re.split(r"^    (?=\w+: )", section[1], flags=re.MULTILINE):
            name, _, words = entry.partition(": ")
            found[name.strip()] = " ".join(words.split())
    return found


def _members(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in (Union, UnionType):
        return get_args(annotation)
    return (annotation,)


def _by_comma(annotation: Any) -> bool:
    """Whether an argument is a list of names, which are typed with commas in between."""
    if isinstance(annotation, str):
        return annotation.startswith("Sequence[")
    return Sequence[str] in _members(annotation)


def _option(
    p: Parameter,
    name: str,
    texts: Mapping[str, str],
    positional: Sequence[str],
    repeated: Sequence[str],
    optional: Sequence[str],
) -> Parameter:
    """An argument of the function as typer is to see it. It is spelled `name`."""
    members = _members(p.annotation)
    kind: Any = next((kind for kind in (bool, int, float, Path) if kind in members), str)
    text = texts.get(p.name, "")
    metavar = {int: "INTEGER", float: "NUMBER", Path: "PATH", bool: None}.get(kind, "TEXT")
    default = p.default
    if p.name in repeated:
        kind = list[str]
        default = default if default is Parameter.empty else None
    elif isinstance(default, tuple):
        default = ",".join(default)
    if p.name in optional or default == "":
        default = None
    info: Any
    if p.name in positional:
        info = typer.Argument(help=text, metavar=name.upper())
    else:
        shown = default not in (None, False)
        info = typer.Option(f"--{name.replace('_', '-')}", help=text, show_default=shown, metavar=metavar)
    if default is None:
        kind = kind | None
    return Parameter(_attribute(name), Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _attribute(name: str) -> str:
    """The name of the parameter that brings an option."""
    if iskeyword(name):
        return f"{name.replace('-', '_')}_"
    return name.replace("-", "_")


Commands = Mapping[str, str | typer.Typer]


class Brief(TyperCommand):
    """A command whose --help lists its common options, and --help-all every option."""

    # Any: typer carries classes of its own for contexts and commands, which have no public names.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words. A mistyped option gets the nearest one as a hint."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter:
            raise
        except Exception as error:
            typed = getattr(error, "option_name", None)
            if typed:
                names = []
                for param in self.params:
                    name = param.opts[0].lstrip("-").replace("-", "_")
                    names.append(name)
                    if not isinstance(param, TyperOption) and name == typed.lstrip("-").replace("-", "_"):
                        error.__dict__["message"] = f"{typed} is no option. Give {name.upper()} without a name"
                        raise
                known = closest(typed.lstrip("-").replace("-", "_"), names)
                near = known.removeprefix("Did you mean '").removesuffix("'?").replace("_", "-")
                error.__dict__["possibilities"] = [f"--{near}"] if known.startswith("Did you mean") else []
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        common = getattr(self.callback, "common", ())
        options = [p for p in self.params if isinstance(p, TyperOption) and not p.required and not p.hidden]
        brief = common and not ctx.meta.get(_ALL)
        # The inverse of `_slot`.
        names = {o: (o.name or "").removeprefix("setting_").replace("__", ".") for o in options}
        rare = [option for option in options if brief and names[option] not in (*common, "help_all")]
        without_types(self.get_params(ctx))
        for option in rare:
            option.hidden = True
        try:
            super().format_help(ctx, formatter)
        finally:
            for option in rare:
                # The command object is reused, and the next help may be the complete one.
                option.hidden = False


def without_types(params: Iterable[Any]) -> None:
    """Show no type for flags, which take no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""


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
    """Make a group of commands, each `module:function` in `vestige.cli`, or a group. A module is imported when needed.

    `commands` can be a function if other packages may add some. The command `default` may be omitted. The help groups
    the commands of each entry in `panels`.
    """

    @functools.cache
    def table() -> Commands:
        if callable(commands):
            return commands()
        return commands

    class Lazy(TyperGroup):
        listing = False

        def list_commands(self, context: Any) -> list[str]:
            return list(table())

        def format_help(self, ctx: Any, formatter: Any) -> None:
            # A list of commands needs no options, which may require loading classes.
            self.listing = True
            without_types(self.get_params(ctx))
            try:
                super().format_help(ctx, formatter)
            finally:
                self.listing = False
                self.commands.clear()

        def get_command(self, context: Any, name: str) -> Any:
            if name in table() and name not in self.commands:
                command = get_command(_application(name, table()[name], whole=not self.listing))
                command.name = name
                panel = next((panel for panel, names in panels.items() if name in names), None)
                command.__dict__["rich_help_panel"] = panel
                self.commands[name] = command
            return self.commands.get(name)

        def parse_args(self, context: Any, args: list[str]) -> list[str]:
            is_named = not default or not args or args[0] in table() or args[0] == "--help"
            if not is_named and not Path(args[0]).exists():
                # A mistyped command is not a model, and gets its own error.
                is_named = bool(difflib.get_close_matches(args[0], table(), cutoff=0.8))
            return super().parse_args(context, args if is_named else [default, *args])

        def resolve_command(self, context: Any, args: list[str]) -> Any:
            if args[0] not in table():
                # Typer suggests only commands that were loaded, and these are loaded when needed.
                for name in difflib.get_close_matches(args[0], table()):
                    self.get_command(context, name)
            return super().resolve_command(context, args)

    app = typer.Typer(cls=Lazy, help=text, no_args_is_help=True, **{"add_completion": False, **how})
    # Typer requires a callback or commands.
    app.callback()(lambda: None)
    return app


def _application(name: str, home: str | typer.Typer, *, whole: bool) -> typer.Typer:
    """The function at `home` as an application of one command, with all options if `whole`. An application as it is."""
    if isinstance(home, typer.Typer):
        return home
    module, _, function = home.partition(":")
    # As in `attack:plain_command/quantize`: a function that makes the command with that name.
    function, _, argument = function.partition("/")
    run = getattr(import_module(f"vestige.cli.{module}"), function)
    run = run(argument) if argument else run
    if "options" in run.__dict__:
        run.__dict__["__signature__"] = run.options(whole=whole)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    # Typer keeps the docstring's line breaks, which a terminal of another width would break again.
    paragraphs = getattr(run, "about", inspect.getdoc(run) or "").split("\n\n")
    app.command(name, cls=Brief, help="\n\n".join(" ".join(p.split()) for p in paragraphs).strip())(run)
    return app


_HelpAll = Annotated[
    bool, typer.Option("--help-all", help="Show every option.", callback=_show_all, is_eager=True, expose_value=True)
]


def _setting_options(part: Part) -> Iterator[Parameter]:
    rows = settings_rows(part.home)
    for name, key in part.keys().items():
        kind, default, text = rows[name]
        panel = next((panel for begin, panel in part.panels.items() if name.startswith(begin)), part.panel)
        option = part.option(name)
        spellings, several, metavar = [option], kind.endswith(",..."), kind
        # A list can be one value with commas, or several values.
        kind_of_value: Any = list[str] if several else str
        if kind == "true|false":
            # An option that is off by default needs no opposite, whose column takes much of a line.
            *before, last = option.removeprefix("--").split(".")
            if default is not False:
                spellings = [f"{option}/--{'.'.join([*before, f'no-{last}'])}"]
            kind_of_value, metavar = bool, None
        elif "|" in kind:
            *choices, last = kind.removesuffix(",...").split("|")
            if not (last.islower() or last.isdigit()):
                last = f"a {last.lower()}"
            text = f"{text} {'Of' if several else 'One of'} {', '.join(choices)} or {last}."
            metavar = "NAME,..." if several else "NAME"
        default_text = False if default is None or default in ("", [], False) else in_words(default)
        info = typer.Option(*spellings, metavar=metavar, help=text, rich_help_panel=panel, show_default=default_text)
        # The default is None: values that are not typed come from --set, --config and the function's defaults.
        annotation = Annotated[kind_of_value | None, info]
        yield Parameter(_slot(key), Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def in_words(default: Any) -> str:
    """Return a default in command-line form."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, list):
        return ",".join(map(in_words, default))
    if isinstance(default, float):
        return f"{default:g}"
    return str(default)


def _slot(key: str) -> str:
    """The name of the parameter that brings a setting's option."""
    return f"setting_{key.replace('.', '__')}"


def _from_file(context: typer.Context, path: Path | None) -> Path | None:
    """Read the settings file before the options, because it may set arguments such as `data`."""
    if path is None:
        return None
    from vestige.core.settings import read_toml

    options = {p.name for p in context.command.params} - {"config", "assignments"}
    values = _flat(read_toml(path))
    context.meta[_FILE] = {key: value for key, value in values.items() if key not in options}
    # The values are click's defaults, which typed options override.
    context.default_map = {key: value for key, value in values.items() if key in options}
    return path


def _flat(table: Record, before: str = "") -> Fields:
    """A table in a table as keys with a dot."""
    flat: Fields = {}
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


def _given(parts: tuple[Part, ...], typed: Fields) -> tuple[Given, dict[tuple[str, str], str]]:
    """Take the settings out of the parsed words, with each one's spelling for `core.settings.SPELLED`."""
    typed.pop("config", None)
    context = typed.pop("context", None)
    in_file: Record = {} if context is None else context.meta.get(_FILE, {})
    assignments = assigned(typed.pop("assignments", None))
    types: TextByName = {}
    by_option: Fields = {}
    spelled: dict[tuple[str, str], str] = {}
    for part in parts:
        for name, key in part.keys().items():
            types[key] = settings_rows(part.home)[name][0]
            spelled.setdefault((part.home, name), key)
            value = typed.pop(_slot(key), None)
            if value is not None and value != []:
                if isinstance(value, str):
                    value = value_in(value, types[key])
                elif isinstance(value, list):
                    # A single value is a comma-separated list. Of several values, each is an item or such a list.
                    first, *further = [value_in(text, types[key]) for text in value]
                    value = first
                    if further:
                        value = []
                        for item in (first, *further):
                            value += item if isinstance(item, list) else [item]
                by_option[key] = value
                spelled[part.home, name] = part.option(name)
                if key in assignments:
                    raise InputError(f"{part.option(name)} and --set {key} are the same setting. Give one")
    by_name = {key: value_in(text, types.get(key, "")) for key, text in assignments.items()}
    settings = Given({**in_file, **by_name, **by_option}, parts)
    # A key with a dot may be a setting of a method, which the command checks itself (`refuse_others`).
    bare = [key for key in settings.others() if "." not in key]
    if bare:
        keys = [*types]
        if method := typed.get("method"):
            # Only an error needs the method's own keys, which come from its class and load torch.
            from vestige.methods import find_method

            kind: Any = find_method(method)
            keys += [f"{method}.{key}" for key in kind.model_fields]
        raise _unknown(bare[0], keys)
    return settings, spelled


def _unknown(key: str, keys: Sequence[str]) -> InputError:
    # A key without the name of its part is too different for a close match.
    same_ending = [name for name in keys if name.rpartition(".")[2] == key]
    hint = closest(key, list(keys))
    if same_ending:
        hint = f"Did you mean {same_ending[0]!r}?"
    elif not hint.startswith("Did you mean"):
        hint = "`vestige list settings COMMAND` names them"
    return InputError(f"settings: unknown key {one_line(key)!r}. {hint}")


def numbers(words: Sequence[str], option: str, kind: type = float) -> list[Any]:
    """Return the numbers of an option, which has them separated by commas, or is repeated."""
    values = []
    for word in filter(None, ",".join(words).split(",")):
        try:
            values.append(kind(word))
        except ValueError as error:
            raise InputError(f"{option} {one_line(word)!r} is not a number. Give numbers such as 3 or 1e-5") from error
    return values


def assigned(words: Sequence[str] | None, option: str = "--set") -> TextByName:
    """Return the keys and text values of `KEY=VALUE` words."""
    pairs = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"{option} {one_line(word)!r}: expected KEY=VALUE, as in learning_rate=2e-5")
        pairs[key.strip()] = value.strip()
    return pairs
