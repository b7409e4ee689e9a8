"""What is typed for any attack: whom to attack, where the evidence goes, how to ask; its settings from --set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from vestige.cli.asked import settings_from, split_method_settings
from vestige.cli.evaluate import eval_settings
from vestige.cli.options import AsJson, ChatTemplate, Device, Seed, TrustRemoteCode, Verify

if TYPE_CHECKING:
    from vestige.core.settings import Settings
    from vestige.models.load import ModelSettings
    from vestige.steps.evaluate import Subject

    T = TypeVar("T", bound=Settings)

SubjectName = Annotated[str, typer.Argument(help="A folder of `vestige finetune` or `unlearn`, or any model.")]
EvidenceDir = Annotated[
    str | None, typer.Option("--output-dir", help="Where the evidence goes; into the subject's own folder by default.")
]
Role = Annotated[str, typer.Option(help="What a model from elsewhere is: base, target, retrained, unlearned.")]
Name = Annotated[str | None, typer.Option(help="What to call a model from elsewhere in reports.")]
OtherDtype = Annotated[
    str | None,
    typer.Option("--dtype", help="Number format of a model from elsewhere (float32); Vestige's own have theirs."),
]
Evals = Annotated[str, typer.Option(help="Evaluations by which the attacked model is asked, apart by commas.")]
MaxNewTokens = Annotated[int, typer.Option(help="Longest reply; a longer one counts as truncated.")]


@dataclass(frozen=True)
class WhoWords:
    """Where the evidence goes, what a model from elsewhere is and how it is read, and the seed."""

    output_dir: EvidenceDir = None
    role: Role = "base"
    name: Name = None
    seed: Seed = 0
    device: Device = "auto"
    dtype: OtherDtype = None
    trust_remote_code: TrustRemoteCode = False
    chat_template: ChatTemplate = ""
    verify: Verify = False
    as_json: AsJson = False

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

    def subject(self, name: str) -> "Subject":
        """The model that is attacked."""
        from vestige.steps.subjects import any_subject

        model, called = self.model(name), self.name or ""
        return any_subject(model, self.output_dir, role=self.role, name=called, dtype=self.dtype, verify=self.verify)

    def one_of(self, name: str) -> "Subject":
        """One of several models that are attacked; with --output-dir each has a folder there, called as its own is."""
        if self.output_dir is None:
            return self.subject(name)
        return replace(self, output_dir=f"{self.output_dir}/{Path(name).name}").subject(name)

    def guide(self, name: str) -> "Subject":
        """The model whose words an attack is to bring; there is no evidence about it, but what it is, if elsewhere."""
        from vestige.artifacts.layout import own_folder
        from vestige.steps.subjects import any_subject

        elsewhere = self.output_dir is not None and own_folder(name) is None
        return any_subject(self.model(name), f"{self.output_dir}/target" if elsewhere else None, role="target")


@dataclass(frozen=True)
class AskWords:
    """How the attacked model is asked."""

    evals: Evals = "qa"
    max_new_tokens: MaxNewTokens = 64

    def settings(self, assignments: Sequence[str] | None) -> "dict[str, Settings]":
        """The settings of each evaluation, of which `assignments` set some."""
        return eval_settings(self.evals, assignments or (), max_new_tokens=self.max_new_tokens, pistol=False)

    def parted(self, assignments: Sequence[str] | None) -> tuple[list[str], list[str]]:
        """The words of --set that begin with the name of an evaluation, and the attack's own."""
        left = list(assignments or ())
        for name in (n.strip() for n in self.evals.split(",")):
            _, left = split_method_settings(name, left)
        return [word for word in assignments or () if word not in left], left

    def with_own(
        self,
        kind: "type[T]",
        config: Path | None,
        assignments: Sequence[str] | None,
        *,
        defaults: Mapping[str, Any] | None = None,
    ) -> "tuple[dict[str, Settings], T]":
        """The settings of each evaluation, and the attack's own, where --set holds both."""
        of_evals, own = self.parted(assignments)
        return self.settings(of_evals), settings_from(kind, config, own, defaults=defaults)
