"""The interface of attacks: settings that plan an attack without a model and then run it. All of an audit."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, Self

from vestige.artifacts.audits import PlannedAttack
from vestige.artifacts.layout import AttackFolder
from vestige.attacks import ATTACKS, known_attacks
from vestige.core.errors import InputError
from vestige.core.items import Item, ItemTuple
from vestige.core.plugins import brought
from vestige.core.progress import OnShare
from vestige.core.settings import Settings, type_in_words
from vestige.core.text import NumberMapping, Record, TextTuple, closest, one_line, value_in

if TYPE_CHECKING:
    from vestige.models.load import LoadedModel

GIVEN = "given"
"""The one point of an attack that does not train."""

Splits = Mapping[str, Sequence[Item]]


@dataclass(frozen=True)
class Attack:
    """A planned attack with its data and questions.

    `tested` are forget items unchanged in the data. `facts` has, by the id of a tested item, the text before its
    question. `splits` are all items, from which an evaluation draws wrong options and examples. `notes` list in
    sentences the untested items.
    """

    plan: PlannedAttack
    shown: ItemTuple
    tested: ItemTuple
    facts: Mapping[str, ItemTuple] = field(default_factory=dict)
    splits: Splits = field(default_factory=dict)
    notes: TextTuple = ()


@dataclass(frozen=True)
class Ended:
    """The result of an attack: upper bounds on the information added, by name, and amounts used."""

    bounds_bits: NumberMapping
    granted: Mapping[str, int]
    spent: Mapping[str, int]
    seen: NumberMapping = field(default_factory=dict)


NOTHING = {"steps": 0, "items_shown": 0, "tokens_shown": 0}
"""The amounts of an attack that neither trains nor shows anything."""


class Work(Protocol):
    """A running attack on one model: the services that `steps.attack` provides.

    `tuned` is to be set once the model's weights are changed by training.
    """

    tuned: bool

    @property
    def attack(self) -> Attack:
        """The settings of the attack."""

    @property
    def seed(self) -> int:
        """The seed of its draws."""

    @property
    def folder(self) -> AttackFolder:
        """The output folder."""

    @property
    def on_progress(self) -> OnShare:
        """Receives the finished share."""

    @property
    def asked(self) -> dict[str, Item]:
        """Return, by the id of each tested item, the item in its attacked form."""

    def ask(
        self,
        point: str,
        load: "Callable[[], LoadedModel]",
        on_share: OnShare,
        asked_at: Mapping[str, Item] | None = None,
    ) -> None:
        """Put every evaluation's questions about the tested items to the attacked model that `load` gives.

        `asked_at` has the attacked items of this stage, if stages differ.
        """

    def searched(self, loaded: "LoadedModel", most_steps: int) -> Ended:
        """Search for the prompt of a `prompts.PromptSettings`, and ask with it at every point."""


class AttackSettings(Settings):
    """The base class of attacks. Its fields are the user's settings, its methods plan and run the attack.

    A field with `exclude=True` affects the plan (training data, name) and is absent from the plan's `settings`, from
    which Vestige rebuilds the class to call `run`.
    """

    kind: ClassVar[str] = ""
    """Return its name in the table, and the audit setting with its amounts."""
    amount: ClassVar[str] = ""
    """The field that `vestige.attack(n=...)` sets."""
    weights: ClassVar[str] = ""
    """Return its description in notes on omitted tests, if it changes weights or follows gradients. "" where replies
    suffice.
    """
    beside: ClassVar[bool] = False
    """Return whether it puts a text next to the question: an evaluation with questions as options (`reversed`) would
    have that text in some options, and is not supported.
    """
    guided: ClassVar[bool] = False
    """Whether the attack needs the target, which is then loaded too."""
    version: ClassVar[int] = 1
    """Raised when the same settings would give other answers."""

    @property
    def called(self) -> str:
        """The attack in few words, as people read it: "ablate n=50". No two of one audit may have the same."""
        return f"{self.kind} n={dict(self)[self.amount]}"

    @classmethod
    def in_audit(cls, asked: Record) -> Iterable[Self]:
        """Return the attacks that an audit has settings for. Others use the setting `further`."""
        return [cls.build({cls.amount: n}, where=f"settings of {cls.kind}") for n in asked.get(cls.kind, ())]

    @abstractmethod
    def plan(self, splits: Splits, *, seed: int) -> Attack:
        """Plan its data and questions. Raises InputError if the data do not allow it."""

    @abstractmethod
    def run(self, work: Work, loaded: "LoadedModel") -> Ended:
        """Attack the model in memory, and ask it at every point of the plan."""

    def training_steps(self, plan: PlannedAttack) -> int:
        """Return the number of training steps."""
        return 0

    def passes(self, plan: PlannedAttack) -> int:
        """Return the maximum number of single texts that a search reads on one model. Questions multiply it."""
        return 0

    def at_once(self, kind: str, splits: Splits, *, material: str = "nothing", n_shown: int = 0) -> Attack:
        """An attack that shows nothing, and has one point at which all forget items are tested."""
        tested = tuple(splits["forget"])
        ids = tuple(i.id for i in tested)
        plan = PlannedAttack(self.called, kind, material, n_shown, (GIVEN,), ids, False, self.identity())
        return Attack(plan, (), tested, splits=splits)


class Planned(NamedTuple):
    """The attacks, and sentences about attacks and questions that these data do not allow."""

    attacks: tuple[Attack, ...]
    untested: TextTuple


def find_attack(name: str) -> type[AttackSettings]:
    """The class of that kind of attack. Loads its file and no other."""
    names = known_attacks()
    if name not in names:
        raise InputError(f"no attack {one_line(name)!r}. {closest(name, list(names))}")
    attack = brought("attack", name, names[name].home)
    if not (isinstance(attack, type) and issubclass(attack, AttackSettings)):
        raise InputError(f"attack {name!r}: {names[name].home} is not an attack. See docs/extend.md")
    return attack


def attack_of(plan: PlannedAttack) -> AttackSettings:
    """Return a planned attack's settings, as in the plan."""
    return find_attack(plan.kind).build(plan.settings, where=f"settings of the attack {plan.name}")


def plan_all(asked: Record, splits: Splits, *, seed: int) -> Planned:
    """The attacks of an audit, from its settings by name, in the order of the table. Each name once."""
    if not splits.get("forget"):
        raise InputError("there are no forget items, so no attack can be tested. Name some with --forget")
    by_name: dict[str, Attack] = {}
    untested: list[str] = []
    # These come first, so that a further attack with the same name gets the distinguishing suffix.
    planned: list[AttackSettings] = []
    for name in ATTACKS:
        # Most prompt searches are not requested, and need not be loaded.
        if not asked.get(name, True):
            continue
        planned += find_attack(name).in_audit(asked)
    for n, settings in enumerate((*planned, *map(further, asked.get("further", ())))):
        try:
            attack = settings.plan(splits, seed=seed)
        except InputError as error:
            untested.append(f"{settings.called} was not tried: {error}")
            continue
        check_kind(settings, attack.plan)
        if n >= len(planned):
            attack = _told_apart(attack, by_name)
        # Two amounts that both exceed the data show the same items, and are one attack by name.
        if attack.plan.name not in by_name:
            by_name[attack.plan.name] = attack
            untested += [f"{attack.plan.name}: {note}" for note in attack.notes]
    # Each sentence appears once: a lacking material affects every rate and rank.
    return Planned(tuple(by_name.values()), tuple(dict.fromkeys(untested)))


def _told_apart(attack: Attack, planned: Mapping[str, Attack]) -> Attack:
    """Return the attack with the settings in its name that distinguish it from one of `found` with the same name."""
    settings = planned.get(attack.plan.name, attack).plan.settings
    differing = [f"{key}={value}" for key, value in attack.plan.settings.items() if settings.get(key) != value]
    plan = replace(attack.plan, name=" ".join((attack.plan.name, *differing)))
    if plan.name in planned and planned[plan.name].plan != plan:
        raise InputError(f"two different attacks of this audit have the name {one_line(plan.name)!r}. Leave one out")
    return replace(attack, plan=plan)


def check_kind(settings: "AttackSettings", plan: PlannedAttack) -> None:
    """Reject a plan with another attack's name: that attack would run."""
    if find_attack(plan.kind) is not type(settings):
        kind = f"{type(settings).__module__}:{type(settings).__name__}"
        raise InputError(f"{kind} plans an attack of the kind {plan.kind!r}, which is another. See docs/extend.md")


def further(text: str) -> AttackSettings:
    """An attack as an audit's setting names it: `NAME`, or `NAME KEY=VALUE ...`."""
    name, *words = text.split()
    kind = find_attack(name)
    types = {key: type_in_words(field.annotation) for key, field in kind.model_fields.items()}
    values = {}
    for word in words:
        key, _, value = word.partition("=")
        values[key] = value_in(value, types.get(key, ""))
    return kind.build(values, where=f"the attack {name!r}")
