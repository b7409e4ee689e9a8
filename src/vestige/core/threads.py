"""One thread for matrix products, so that the same command gives the same bytes on any number of cores."""

import contextlib
import os
import sys
from collections.abc import Iterator

import threadpoolctl

VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""The variables that the libraries behind numpy and torch read when they are loaded."""


def one_thread() -> None:
    """Limit this process to one thread, in libraries loaded now or later.

    A worker process calls this first. A variable alone comes too late for a forked worker: the process that it was
    forked from has loaded numpy with all cores.
    """
    os.environ.update(dict.fromkeys(VARIABLES, "1"))
    threadpoolctl.threadpool_limits(limits=1)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit NumPy's matrix products to one thread within it. Torch keeps its threads."""
    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        yield
