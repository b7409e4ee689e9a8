"""Errors by cause, each with its exit code.

A message names the thing, the value and the way out, in one sentence that a person can act on.
"""


class VestigeError(Exception):
    """The base class of Vestige's own errors. The command line prints the message without a traceback."""

    exit_code = 1


class InputError(VestigeError, ValueError):
    """The command, the settings or the data cannot be used as given."""

    exit_code = 2


class NotFinite(InputError):
    """The loss or the gradient of a training became infinite or NaN. A lower learning rate may prevent this."""


class NothingToTeach(InputError):
    """A mitigation has no prompt whose answer the target knows, so it cannot restore anything."""


class PartialFailure(VestigeError):
    """Some tasks of the run failed. The results of the other tasks are complete."""

    exit_code = 5


class MachineError(VestigeError):
    """The machine ran out of disk or memory. The same command resumes the run."""

    exit_code = 6


def out_of_memory(error: BaseException) -> bool:
    """Whether the memory gave out: Python's error, torch's for a device, or torch's plain message for a CPU."""
    # Compared by name, since importing torch's class would load torch for every --help.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("allocate memory" in text or "not enough memory" in text)


class GoalNotReached(VestigeError):
    """The run finished without reaching the goal. It kept the nearest result."""

    exit_code = 7


class NotLearned(VestigeError):
    """A model was trained and kept, and it has not learned its answers: a list of commands should end here."""

    exit_code = 3


class Interrupted(VestigeError):
    """Somebody stopped the run. It can be resumed with the same command."""

    exit_code = 130


class MissingExtra(InputError):
    """A package of an extra is not installed, and the command needs it."""


MODELS_EXTRA = ("torch", "transformers", "datasets", "peft", "safetensors", "tokenizers", "pandas", "pyarrow", "gguf",
                "huggingface_hub", "joblib", "accelerate", "httpx2", "networkx")  # fmt: skip
"""The packages of the extra `models`, without which logs are still judged."""


def missing_extra(error: ModuleNotFoundError) -> MissingExtra | None:
    """The error to show for a missing package of an extra, or None if the module belongs to no extra."""
    package = (error.name or "").partition(".")[0]
    if package not in MODELS_EXTRA:
        return None
    return MissingExtra(
        f"the package {package} is not installed, and this needs it. Install it in the clone of Vestige with: "
        "pip install '.[models]'"
    )
