"""The public names of Vestige and their homes: each is loaded when it is first used, and type checkers read it here."""

__version__: str

from .api import Audit as Audit
from .api import Comparison as Comparison
from .api import Holes as Holes
from .api import Model as Model
from .api import Results as Results
from .api import attack as attack
from .api import audit as audit
from .api import check_data as check_data
from .api import compare as compare
from .api import compile_data as compile_data
from .api import evaluate as evaluate
from .api import finetune as finetune
from .api import judge as judge
from .api import plan as plan
from .api import probe as probe
from .api import read_audit as read_audit
from .api import rejudge as rejudge
from .api import unlearn as unlearn
from .core.errors import InputError as InputError
from .data.corpus import SourceSettings as SourceSettings
from .experiments.rates import find_rate as find_rate
from .metrics.pooling import pool as pool
from .metrics.pooling import reversals as reversals
