"""Check whether this machine has what the service and its trials need. Nothing is changed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import httpx2
import psutil
from sqlalchemy.exc import SQLAlchemyError

from autotune.cost_model.parameters import is_cpu
from search_spaces.catalog.local import local_machine
from search_spaces.errors import InvalidInput
from server.cli.checks import CheckResult
from server.cli.port import is_free
from server.settings import Settings
from server.store import Store
from server.store.engine import file_system_of, is_shared, parse_url

OLDEST_PYTHON = (3, 11)
GIB = 2**30
LEAST_FREE_GIB = 0.2
WANTED_FREE_GIB = 2.0
QUICKLY_S = 5.0


def check_machine(settings: Settings) -> list[CheckResult]:
    """Return one result per requirement of this machine, optional ones included."""
    checks: tuple[Callable[[Settings], CheckResult], ...] = (
        python,
        data_folder,
        file_system,
        free_disk,
        database,
        partial(_package, name="torch"),
        partial(_package, name="deepspeed"),
        gpus,
        compiler,
        port,
    )
    return [check(settings) for check in checks]


def python(_: Settings) -> CheckResult:
    running = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info >= OLDEST_PYTHON:
        return CheckResult.ok("Python", running)
    return CheckResult.fail("Python", running, advice="install Python 3.11 or newer")


def data_folder(settings: Settings) -> CheckResult:
    folder = nearest_existing(settings.data_dir)
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        created = "" if folder == settings.data_dir else " (will be created)"
        return CheckResult.ok("data folder", f"{settings.data_dir}{created}")
    advice = f"make {folder} writable, or choose another folder with AUTOTUNE_DATA_DIR"
    return CheckResult.fail("data folder", f"{settings.data_dir} cannot be written", advice=advice)


def file_system(settings: Settings) -> CheckResult:
    folder = nearest_existing(settings.data_dir).resolve()
    mounts = {p.mountpoint: p.fstype for p in psutil.disk_partitions(all=True)}
    kind = file_system_of(folder, mounts) or "unknown"
    if not is_shared(folder):
        return CheckResult.ok("file system", kind)
    advice = "run one service at a time here, or use PostgreSQL: several hosts share this folder"
    return CheckResult.warn("file system", f"{kind}, shared", advice=advice)


def free_disk(settings: Settings) -> CheckResult:
    free_gib = psutil.disk_usage(str(nearest_existing(settings.data_dir))).free / GIB
    free = f"{free_gib:.1f} GiB"
    if free_gib >= WANTED_FREE_GIB:
        return CheckResult.ok("free disk", free)
    short = CheckResult.warn if free_gib >= LEAST_FREE_GIB else CheckResult.fail
    advice = "free some space, or choose another folder with AUTOTUNE_DATA_DIR"
    return short("free disk", free, advice=advice)


def database(settings: Settings) -> CheckResult:
    """Return whether the database can be opened, and has the current schema."""
    try:
        url = parse_url(settings.url)
        if url.get_dialect().name == "sqlite" and not Path(str(url.database)).exists():
            return CheckResult.ok("database", f"{url.database} (`autotune serve` creates it)")
        store = Store(settings.url)
        try:
            fault, remedy = store.schema_fault(), store.remedy()
        finally:
            store.close()
    except (SQLAlchemyError, OSError, InvalidInput, ImportError) as error:
        advice = "check AUTOTUNE_DATABASE_URL, and that the database server runs"
        return CheckResult.fail("database", str(error).splitlines()[0], advice=advice)
    shown = url.render_as_string(hide_password=True)
    if fault is None:
        return CheckResult.ok("database", f"{shown}, up to date")
    if remedy:
        advice = f"{remedy}, or choose another database"
        return CheckResult.fail("database", f"{shown}: {fault}", advice=advice)
    advice = "`autotune serve` brings it up to date when it starts"
    return CheckResult.warn("database", f"{shown}: {fault}", advice=advice)


def _package(_: Settings, name: str) -> CheckResult:
    try:
        return CheckResult.ok(name, version(name))
    except PackageNotFoundError:
        advice = "for real trials on this machine: pip install 'autotune[trials]'"
        return CheckResult.warn(name, "not installed", advice=advice)


def gpus(_: Settings) -> CheckResult:
    """Return the number of GPUs; without any, trials run on the CPU over gloo."""
    machine = local_machine()
    if is_cpu(machine):
        return CheckResult.ok("GPUs", "none; local trials run on the processor")
    return CheckResult.ok("GPUs", f"{machine.gpus_per_node}: {machine.gpu}")


def compiler(_: Settings) -> CheckResult:
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return CheckResult.ok("C compiler", path)
    advice = "DeepSpeed compiles a part of itself: install gcc, or load its module"
    return CheckResult.warn("C compiler", "none", advice=advice)


def port(settings: Settings) -> CheckResult:
    if is_free(settings.host, settings.port):
        return CheckResult.ok("port", f"{settings.port} is free")
    address = f"http://{settings.host}:{settings.port}"
    with suppress(httpx2.HTTPError, ValueError):
        answer = httpx2.get(f"{address}/readyz", timeout=QUICKLY_S, trust_env=False)
        if answer.is_success and "status" in answer.json():
            return CheckResult.ok("port", f"a service runs at {address}")
    advice = "choose another with AUTOTUNE_PORT or --port"
    return CheckResult.warn("port", f"{settings.port} is in use", advice=advice)


def nearest_existing(folder: Path) -> Path:
    """Return the folder, or its nearest existing parent."""
    return next(path for path in (folder, *folder.parents) if path.exists())
