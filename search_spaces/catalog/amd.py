"""AMD's GPUs of this machine: as amd-smi or rocm-smi lists them, else from the kernel."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROCM = Path("/opt/rocm/bin")  # where its tools lie without being on the PATH
DRM = Path("/sys/class/drm")
KFD = Path("/sys/class/kfd/kfd/topology/nodes")
VENDOR = 0x1002
LEAST_GIB = 4.0  # a GPU with less memory of its own is a processor's
SHARE_OF_LARGEST = 0.5  # less than this next to a larger one: a screen's

_AMD_SMI = ("static", "--asic", "--vram", "--limit", "--json")
_ROCM_SMI = ("--showproductname", "--showmeminfo", "vram", "--showmaxpower", "--json")


class InstalledGpu(NamedTuple):
    """One GPU: its name or its PCI device, memory in GiB, and power cap in W if known."""

    name: str
    memory_gib: float
    max_watt: float | None


def amd_gpus(*, limit_s: float) -> tuple[list[InstalledGpu], str]:
    """Return the GPUs for computing and the source of the answer; none if this machine has none.

    Args:
        limit_s: for a tool to answer.
    """
    tools: tuple[tuple[str, tuple[str, ...], Callable[[Any], list[InstalledGpu]]], ...] = (
        ("amd-smi", _AMD_SMI, gpus_from_amd_smi),
        ("rocm-smi", _ROCM_SMI, gpus_from_rocm_smi),
    )
    for tool, words, read in tools:
        if gpus := _large(_answer_of(tool, words, read, limit_s=limit_s)):
            return gpus, tool
    for folder, look in ((DRM, gpus_from_drm), (KFD, gpus_from_kfd)):
        if gpus := _large(look(folder)):
            return gpus, str(folder)
    return [], ""


def _answer_of(
    tool: str,
    words: tuple[str, ...],
    read: Callable[[Any], list[InstalledGpu]],
    *,
    limit_s: float,
) -> list[InstalledGpu]:
    program = shutil.which(tool) or shutil.which(tool, path=ROCM)
    if program is None:
        return []
    try:
        answer = subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=limit_s, check=True
        )
        _warnings, bracket, rest = re.split(r"^([\[{])", answer.stdout, maxsplit=1, flags=re.M)
        return read(json.loads(bracket + rest))
    except (OSError, subprocess.SubprocessError, ValueError, AttributeError, TypeError, KeyError):
        return []  # it fails, hangs, or prints another format


def _large(gpus: list[InstalledGpu]) -> list[InstalledGpu]:
    largest = max((gpu.memory_gib for gpu in gpus), default=0.0)
    least = max(LEAST_GIB, SHARE_OF_LARGEST * largest)
    return [gpu for gpu in gpus if gpu.memory_gib >= least]


def gpus_from_amd_smi(answer: Any) -> list[InstalledGpu]:
    """Parse `amd-smi static --json`: a list, from ROCm 7 on below `gpu_data`."""
    listed = answer["gpu_data"] if isinstance(answer, dict) else answer
    gpus = []
    for each in listed:
        size = each["vram"]["size"]
        unit = {"B": 1 / 2**30, "KB": 1 / 2**20, "MB": 1 / 2**10, "GB": 1.0}[_unit(size) or "MB"]
        limit = each.get("limit", {})
        limit = limit.get("ppt0", limit)
        cap = _number(limit.get("max_power_limit", limit.get("max_power")))
        memory_gib = (_number(size) or 0.0) * unit
        gpus.append(InstalledGpu(str(each["asic"]["market_name"]), memory_gib, cap))
    return gpus


def gpus_from_rocm_smi(answer: Any) -> list[InstalledGpu]:
    """Parse `rocm-smi --json`: keys `card0`, `card1`, …; the case of the inner keys varies."""
    cards = {name: each for name, each in answer.items() if re.fullmatch(r"card\d+", name)}
    gpus = []
    for name in sorted(cards, key=lambda name: int(name[4:])):
        card: Mapping[str, str] = {key.casefold(): text for key, text in cards[name].items()}
        memory_gib = (_number(card["vram total memory (b)"]) or 0.0) / 2**30
        cap = _number(card.get("max graphics package power (w)"))
        gpus.append(InstalledGpu(card["card series"], memory_gib, cap))
    return gpus


def gpus_from_drm(folder: Path) -> list[InstalledGpu]:
    """Return the cards that the kernel's driver lists."""
    gpus = []
    for card in sorted(folder.glob("card*/device"), key=lambda path: _digits(path.parent.name)):
        memory_bytes = _number(_text(card / "mem_info_vram_total"))
        if _text(card / "vendor") != f"{VENDOR:#x}" or not memory_bytes:
            continue
        caps = (_number(_text(file)) for file in card.glob("hwmon/hwmon*/power1_cap_max"))
        microwatt = next(filter(None, caps), None)
        name = _text(card / "product_name") or _text(card / "device")
        cap = microwatt / 1e6 if microwatt else None
        gpus.append(InstalledGpu(name, memory_bytes / 2**30, cap))
    return gpus


def gpus_from_kfd(folder: Path) -> list[InstalledGpu]:
    """Return the GPUs among the nodes that ROCm's kernel driver lists."""
    gpus = []
    for node in sorted(folder.glob("*"), key=lambda path: _digits(path.name)):
        properties = dict(_pairs(node / "properties"))
        if properties.get("vendor_id") != VENDOR or not properties.get("simd_count"):
            continue
        banks = [dict(_pairs(bank)) for bank in node.glob("mem_banks/*/properties")]
        memory_bytes = sum(bank.get("size_in_bytes", 0) for bank in banks)
        name = f"{properties.get('device_id', 0):#06x}"
        gpus.append(InstalledGpu(name, memory_bytes / 2**30, None))
    return gpus


def _pairs(file: Path) -> Iterator[tuple[str, int]]:
    for line in _text(file).splitlines():
        name, _, number = line.partition(" ")
        if number.strip().isdigit():
            yield name, int(number)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _digits(name: str) -> int:
    return int("".join(filter(str.isdigit, name)) or -1)


def _unit(figure: Any) -> str:
    return str(figure.get("unit", "")) if isinstance(figure, dict) else ""


def _number(figure: Any) -> float | None:
    """Return a figure given as a number, as text or with its unit; None for `N/A`, and for 0, which
    stands for a figure that another GPU has."""
    value = figure.get("value") if isinstance(figure, dict) else figure
    try:
        return float(value) or None  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
