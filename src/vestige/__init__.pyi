"""The public names of Vestige and their homes: each is loaded when it is first used, and type checkers read it here."""

__version__: str

from .api import Attacked as Attacked
from .api import Audit as Audit
from .api import Comparison as Comparison
from .api import DataLike as DataLike
from .api import Holes as Holes
from .api import Model as Model
from .api import ModelLike as ModelLike
from .api import ModelVerdicts as ModelVerdicts
from .api import Results as Results
from .api import Verdict as Verdict
from .api import attack as attack
from .api import audit as audit
from .api import check_data as check_data
from .api import compare as compare
from .api import compile_data as compile_data
from .api import evaluate as evaluate
from .api import export as export
from .api import export_task as export_task
from .api import finetune as finetune
from .api import judge as judge
from .api import plan as plan
from .api import probe as probe
from .api import read_audit as read_audit
from .api import rejudge as rejudge
from .api import unlearn as unlearn
from .artifacts.audits import Soundness as Soundness
from .attacks.ablate import AblateSettings as Ablate
from .attacks.in_context import InContextSettings as InContext
from .attacks.planning import AttackSettings as Attack
from .attacks.prompts import GcgSettings as Gcg
from .attacks.quantize import QuantizeSettings as Quantize
from .attacks.relearn import RelearnSettings as Relearn
from .auditing.forecast import AuditPower as AuditPower
from .auditing.settings import AuditSettings as AuditSettings
from .core.errors import GoalNotReached as GoalNotReached
from .core.errors import InputError as InputError
from .core.errors import MachineError as MachineError
from .core.errors import NotFinite as NotFinite
from .core.errors import PartialFailure as PartialFailure
from .core.errors import VestigeError as VestigeError
from .data.corpus import SourceSettings as SourceSettings
from .data.findings import SoundnessSettings as Checks
from .evals.base import Evaluation as Evaluation
from .evals.choices import ChoicesSettings as Choices
from .evals.freeform import FreeformSettings as Freeform
from .evals.qa import QASettings as QA
from .experiments.rates import FoundRate as FoundRate
from .experiments.rates import find_rate as find_rate
from .metrics.pooling import pool as pool
from .metrics.pooling import reversals as reversals
from .metrics.verdicts import Thresholds as Margins
from .probes.questions import AdjacentSettings as Adjacent
from .probes.questions import AnswerSettings as Answers
from .probes.questions import FilterSettings as Filter
from .probes.questions import LatentSettings as Latent
from .steps.trajectory import ValidationSettings as Validation
from .training.callback import TrainerCallback as TrainerCallback
from .training.policy.settings import PolicySettings as Policy
from .training.settings import TrainingSettings as Training
from .training.stopping import TrajectorySettings as Trajectory

def homes() -> dict[str, tuple[str, str]]: ...

__all__ = [
    "QA",
    "Ablate",
    "Adjacent",
    "Answers",
    "Attack",
    "Attacked",
    "Audit",
    "AuditPower",
    "AuditSettings",
    "Checks",
    "Choices",
    "Comparison",
    "DataLike",
    "Evaluation",
    "Filter",
    "FoundRate",
    "Freeform",
    "Gcg",
    "GoalNotReached",
    "Holes",
    "InContext",
    "InputError",
    "Latent",
    "MachineError",
    "Margins",
    "Model",
    "ModelLike",
    "ModelVerdicts",
    "NotFinite",
    "PartialFailure",
    "Policy",
    "Quantize",
    "Relearn",
    "Results",
    "Soundness",
    "SourceSettings",
    "TrainerCallback",
    "Training",
    "Trajectory",
    "Validation",
    "Verdict",
    "VestigeError",
    "attack",
    "audit",
    "check_data",
    "compare",
    "compile_data",
    "evaluate",
    "export",
    "export_task",
    "find_rate",
    "finetune",
    "judge",
    "plan",
    "pool",
    "probe",
    "read_audit",
    "rejudge",
    "reversals",
    "unlearn",
]
