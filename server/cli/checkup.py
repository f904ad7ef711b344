"""What `autotune doctor` looks at. Each check looks at one thing and changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import httpx2
import psutil
from sqlalchemy.exc import SQLAlchemyError

from search_spaces.errors import InvalidInput
from server.cli.check import Check
from server.cli.port import is_free
from server.cli.slurm_checkup import slurm
from server.settings import Settings
from server.store import Store
from server.store.engine import file_system_of, is_shared, parse_url

OLDEST_PYTHON = (3, 11)
GIB = 2**30
LEAST_FREE_GIB = 0.2
WANTED_FREE_GIB = 2.0
QUICKLY_S = 5.0


def examine(settings: Settings) -> list[Check]:
    checks: tuple[Callable[[Settings], Check], ...] = (
        python,
        data_folder,
        file_system,
        free_disk,
        database,
        torch,
        deepspeed,
        gpus,
        compiler,
        port,
    )
    return [*(check(settings) for check in checks), *slurm(settings)]


def python(_: Settings) -> Check:
    found = f"{sys.version.split()[0]} at {sys.executable}"
    fine = sys.version_info >= OLDEST_PYTHON
    advice = "" if fine else "install Python 3.11 or newer"
    return Check(name="Python", status="ok" if fine else "fail", found=found, advice=advice)


def data_folder(settings: Settings) -> Check:
    folder = nearest_existing(settings.data_dir)
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        there = folder == settings.data_dir
        found = f"{settings.data_dir}" + ("" if there else " (will be created)")
        return Check(name="data folder", status="ok", found=found)
    return Check(
        name="data folder",
        status="fail",
        found=f"{settings.data_dir} cannot be written",
        advice=f"make {folder} writable, or choose another folder with AUTOTUNE_DATA_DIR",
    )


def file_system(settings: Settings) -> Check:
    folder = nearest_existing(settings.data_dir).resolve()
    mounts = {p.mountpoint: p.fstype for p in psutil.disk_partitions(all=True)}
    kind = file_system_of(folder, mounts) or "unknown"
    if not is_shared(folder):
        return Check(name="file system", status="ok", found=kind)
    advice = "run one service at a time here, or use PostgreSQL: several hosts share this folder"
    return Check(name="file system", status="warn", found=f"{kind}, shared", advice=advice)


def free_disk(settings: Settings) -> Check:
    free_gib = psutil.disk_usage(str(nearest_existing(settings.data_dir))).free / GIB
    found = f"{free_gib:.1f} GiB"
    if free_gib >= WANTED_FREE_GIB:
        return Check(name="free disk", status="ok", found=found)
    status: Literal["warn", "fail"] = "warn" if free_gib >= LEAST_FREE_GIB else "fail"
    advice = "free some space, or choose another folder with AUTOTUNE_DATA_DIR"
    return Check(name="free disk", status=status, found=found, advice=advice)


def database(settings: Settings) -> Check:
    try:
        url = parse_url(settings.url)
        if url.get_dialect().name == "sqlite" and not Path(str(url.database)).exists():
            return Check(
                name="database", status="ok", found=f"{url.database} (`autotune serve` creates it)"
            )
        return _schema(settings, shown=url.render_as_string(hide_password=True))
    except (SQLAlchemyError, OSError, InvalidInput, ImportError) as error:
        advice = "check AUTOTUNE_DATABASE_URL, and that the database server runs"
        found = str(error).splitlines()[0]
        return Check(name="database", status="fail", found=found, advice=advice)


def _schema(settings: Settings, *, shown: str) -> Check:
    store = Store(settings.url)
    try:
        if store.is_current():
            return Check(name="database", status="ok", found=f"{shown}, up to date")
    finally:
        store.close()
    advice = "`autotune serve` brings it up to date when it starts"
    return Check(name="database", status="warn", found=f"{shown}, another version", advice=advice)


def torch(_: Settings) -> Check:
    return _package("torch")


def deepspeed(_: Settings) -> Check:
    return _package("deepspeed")


def _package(name: str) -> Check:
    """Read from its metadata: importing it takes seconds."""
    try:
        return Check(name=name, status="ok", found=version(name))
    except PackageNotFoundError:
        advice = "for real trials on this machine: pip install 'autotune[trials]'"
        return Check(name=name, status="warn", found="not installed", advice=advice)


def gpus(_: Settings) -> Check:
    """GPUs are no must: without any, trials run on the processor over gloo."""
    for program, arguments in (
        ("nvidia-smi", ("--query-gpu=name", "--format=csv,noheader")),
        ("rocm-smi", ("--showproductname", "--csv")),
    ):
        names = _lines_of(program, *arguments)
        if names:
            return Check(name="GPUs", status="ok", found=f"{len(names)}: {names[0]}")
    return Check(name="GPUs", status="ok", found="none; local trials run on the processor")


def _lines_of(program: str, *arguments: str) -> list[str]:
    if shutil.which(program) is None:
        return []
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=QUICKLY_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line for line in done.stdout.splitlines() if line.strip()]


def compiler(_: Settings) -> Check:
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if found:
        return Check(name="C compiler", status="ok", found=found)
    advice = "DeepSpeed compiles a part of itself: install gcc, or load its module"
    return Check(name="C compiler", status="warn", found="none", advice=advice)


def port(settings: Settings) -> Check:
    if is_free(settings.host, settings.port):
        return Check(name="port", status="ok", found=f"{settings.port} is free")
    address = f"http://{settings.host}:{settings.port}"
    if _answers_as_autotune(address):
        return Check(name="port", status="ok", found=f"a service runs at {address}")
    advice = "choose another with AUTOTUNE_PORT or --port"
    return Check(name="port", status="warn", found=f"{settings.port} is in use", advice=advice)


def _answers_as_autotune(address: str) -> bool:
    try:
        answer = httpx2.get(f"{address}/readyz", timeout=QUICKLY_S, trust_env=False)
        return answer.is_success and "status" in answer.json()
    except (httpx2.HTTPError, ValueError):
        return False


def nearest_existing(folder: Path) -> Path:
    """The folder itself or the nearest of its parents that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())
