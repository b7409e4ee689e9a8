"""What is typed for probing: who judges, how questions are made, which settings; and what follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from vestige.cli.asked import pairs, split_method_settings
from vestige.cli.attack_words import OtherDtype
from vestige.cli.options import AsJson, ChatTemplate, Device, OutputDir, Seed, TrustRemoteCode
from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.layout import ProbeFolder
    from vestige.core.settings import Settings
    from vestige.data.corpus import Corpus
    from vestige.judges.base import Writer
    from vestige.models.embedder import Embedder
    from vestige.models.load import ModelSettings
    from vestige.probes.adjacent import By
    from vestige.probes.answering import Judging, Participants, Served
    from vestige.steps.subjects import Asked

T = TypeVar("T", bound="Settings")

PARTS = (
    "adjacent",
    "neighbours",
    "policy",
    "latent",
    "answers",
    "filter",
    "judge",
    "grounded",
    "served",
    "limits",
    "mitigation",
    "training",
    "method",
)
"""Before the dot in --set; `adjacent` and `neighbours` share --k."""
JUDGES = ("grounded", "local", "server")
MODEL_KEY = "VESTIGE_MODEL_KEY"
"""The environment's variable with the key of a server that a model is asked on; the judge's is another."""
WAYS = ("graph", "templates", "local", "server")

ProbeSet = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PART.KEY=VALUE", help=f"A setting; the parts are {', '.join(PARTS)}."),
]


@dataclass(frozen=True)
class PlaceWords:
    """Where the findings go, the settings, how models are read, and the seed."""

    output_dir: OutputDir
    assignments: ProbeSet = None
    seed: Seed = 0
    device: Device = "auto"
    dtype: OtherDtype = None
    trust_remote_code: TrustRemoteCode = False
    chat_template: ChatTemplate = ""
    as_json: AsJson = False

    @property
    def folder(self) -> "ProbeFolder":
        """The folder of the search for holes. That of a model is refused: who made it would be written over."""
        from vestige.artifacts.layout import ProbeFolder, SubjectFolder

        if SubjectFolder(self.output_dir).spec.exists():
            raise InputError(f"{self.output_dir} is the folder of a model; give the probe one of its own")
        return ProbeFolder(self.output_dir)

    def model(self, name: str) -> "ModelSettings":
        """How the model called `name` is read."""
        from vestige.models.load import ModelSettings

        return ModelSettings(
            model=name,
            device=self.device,
            dtype=self.dtype or "float32",
            trust_remote_code=self.trust_remote_code,
            chat_template=self.chat_template,
        )

    def look_for(self, *names: str) -> None:
        """Refuse a model that `asked` would refuse, before anybody is asked or paid; a served one is not looked for."""
        from vestige.models.load import look_for

        for name in names:
            if not _is_served(name):
                look_for(self.model(name))

    def asked(self, name: str) -> "Asked":
        """The model called `name`, loaded."""
        from vestige.steps.subjects import asked_model

        return asked_model(self.model(name), dtype=self.dtype)

    def taking_part(self, name: str) -> "Asked | Served":
        """The model called `name`, loaded; or one on a server, called URL#MODEL."""
        if not _is_served(name):
            return self.asked(name)
        from vestige.judges.server import ServerSettings
        from vestige.judges.spending import Limits
        from vestige.probes.answering import Served

        url, _, model = name.partition("#")
        typed = {"url": url, "model": model, "key_variable": MODEL_KEY}
        server = ServerSettings.build(self.values("served") | typed, where="settings of served")
        return Served(server, self.settings("limits", Limits))

    def values(self, part: str) -> dict[str, Any]:
        """What --set says of one part; a word for no part is refused."""
        left = list(self.assignments or ())
        found: dict[str, dict[str, Any]] = {}
        for name in PARTS:
            found[name], left = split_method_settings(name, left)
        if left:
            key = next(iter(pairs(left)))
            raise InputError(f"--set {one_line(key)}: {_nearest(key.partition('.')[0], PARTS)}, as in filter.alike")
        return found[part]

    def settings(self, part: str, kind: type[T]) -> T:
        """The settings of one part."""
        return kind.build(self.values(part), where=f"settings of {part}")


@dataclass(frozen=True)
class JudgeWords:
    """Who grades answers, and who writes questions where a language model does."""

    judge: Annotated[
        str,
        typer.Option(help="Who grades: grounded (by the target's own answers; no other model), local, or server."),
    ] = "grounded"
    judge_model: Annotated[str | None, typer.Option(help="Of local: any chat model. Of server: its name there.")] = None
    judge_url: Annotated[
        str | None, typer.Option(help="Of server: what stands before /chat/completions; the key: VESTIGE_JUDGE_KEY.")
    ] = None
    embedder: Annotated[
        str | None, typer.Option(help="Folder or hub id of the sentence embedder; all-MiniLM-L6-v2 by default.")
    ] = None

    def check(self) -> None:
        """Refuse what does not go together, before anything is loaded."""
        if self.judge not in JUDGES:
            raise InputError(f"no judge {one_line(self.judge)!r}; {_nearest(self.judge, JUDGES)}")
        self._check_model(self.judge, "--judge")

    def _check_model(self, kind: str, option: str) -> None:
        if kind in ("local", "server") and self.judge_model is None:
            raise InputError(f"{option} {kind} needs --judge-model")
        if kind == "server" and self.judge_url is None:
            raise InputError(f"{option} server needs --judge-url, such as http://localhost:8000/v1")

    def check_naming(self, place: PlaceWords) -> None:
        """Refuse to name groups by a language model where none judges; they are named last, after hours perhaps."""
        if self.judge == "grounded" and place.values("filter").get("name_groups") == "writer":
            from vestige.probes.hole_table import NO_WRITER

            raise InputError(NO_WRITER)

    def judging(self, place: PlaceWords, kind: str = "") -> "Judging":
        """Who that is, of the named kind or as --judge says; nothing is loaded yet."""
        from vestige.judges.grounded import GroundedSettings
        from vestige.judges.server import ServerSettings
        from vestige.judges.spending import Limits
        from vestige.probes.answering import Judging

        kind = kind or self.judge
        typed = {"url": self.judge_url, "model": self.judge_model}
        own = place.values("judge") | typed
        return Judging(
            partial(place.asked, str(self.judge_model)) if kind == "local" else None,
            ServerSettings.build(own, where="settings of judge") if kind == "server" else None,
            place.settings("limits", Limits),
            place.settings("grounded", GroundedSettings),
        )

    def writer(self, kind: str, place: PlaceWords, option: str = "--judge") -> "Writer":
        """The language model, on a server or here."""
        self._check_model(kind, option)
        grader = self.judging(place, kind).by_model(place.folder)
        writer = grader.writer if grader else None
        assert writer is not None, "a language model writes"
        return writer

    def embeds(self, device: str) -> "Embedder":
        """The embedder."""
        from vestige.models.embedder import HUB_ID, load_embedder

        return load_embedder(self.embedder or HUB_ID, device=device)


def participants(target: str, unlearned: str, who: JudgeWords, place: PlaceWords) -> "Participants":
    """Target, unlearned model, embedder and judge, each loaded when it is first wanted."""
    from vestige.probes.answering import Participants

    who.check()
    embeds = partial(who.embeds, place.device)
    return Participants(place.folder, target, unlearned, who.judging(place), place.taking_part, embeds)


@dataclass(frozen=True)
class NearWords:
    """How adjacent questions are made."""

    by: Annotated[
        str | None,
        typer.Option(
            help="Who writes them: graph (the data's own, of other contracts), templates, local or server (the model "
            "of --judge-model). By default the graph where the data has one, else templates."
        ),
    ] = None
    k: Annotated[int, typer.Option(min=1, help="At most so many questions of each forget item.")] = 4

    def way(self, corpus: "Corpus", judge: JudgeWords, place: PlaceWords) -> "By":
        """How the questions of this data are made."""
        if self.by is not None and self.by not in WAYS:
            raise InputError(f"--by {one_line(self.by)}: {_nearest(self.by, WAYS)}")
        if self.by == "graph" or (self.by is None and corpus.dataset is not None):
            return "graph"
        if self.by in (None, "templates"):
            return "offline"
        return judge.writer(self.by, place, "--by")


def placebo_names(placebos: Sequence[str]) -> dict[str, str]:
    """The placebos by what tables call them: the last part of the name, or all of it where that tells too little."""
    from vestige.probes.filters import OWN_NAMES

    given = list(dict.fromkeys(placebos))
    short = [Path(placebo).name for placebo in given]
    return {
        one if one and short.count(one) == 1 and one not in OWN_NAMES else placebo: placebo
        for one, placebo in zip(short, given, strict=True)
    }


def searches_named(words: str, known: Sequence[str]) -> list[str]:
    """The searches that are named, apart by commas, in their order; none of "none"."""
    names = list(dict.fromkeys(word.strip() for word in words.split(",") if word.strip()))
    if names == ["none"]:
        return []
    for name in names:
        if name not in known:
            raise InputError(f"no search {one_line(name)!r}; {_nearest(name, (*known, 'none'))}")
    if not names:
        raise InputError(f"--searches names none; give some of {', '.join(known)}, or none")
    return names


def _is_served(name: str) -> bool:
    return "#" in name and name.startswith(("http://", "https://"))


def _nearest(word: str, known: Sequence[str]) -> str:
    # Loaded late: it brings pydantic, which no --help may load.
    from vestige.core.settings import closest

    return closest(word, list(known))
