"""Predicted and printed figures of the Frontier study (Dash et al. 2023, arXiv 2312.12705).

    python tests/benchmarks/cost_model_study.py

Percent of peak and memory of its three settings, its strong and weak scaling, and its energy: what
the GPUs draw, joules for each of 20 tokens a parameter.
"""

from __future__ import annotations

from tests.autotune.cost_model.study import ENERGIES, MACHINE, SCALINGS, SETTINGS


def main() -> None:
    print(f"{'':44}{'predicted':>10}{'printed':>9}{'error':>8}")
    for setting, printed in SETTINGS:
        _line(f"{setting.model}, percent of peak", setting.percent_of_peak, printed)
    for scaling in SCALINGS:
        _line(scaling.name, scaling.percent, scaling.printed)
    for setting, printed in ENERGIES:
        _line(f"{setting.model}, J a token by the GPUs", setting.gpu_joules_per_token, printed)
    print(f"\n{'':44}{'GiB':>10}{'limit':>9}")
    for setting, _ in SETTINGS:
        cost = setting.estimate()
        memory, limit = float(cost.memory_gib[0]), cost.memory_limit_gib
        print(f"{setting.model + ', memory of ' + MACHINE.gpu:44}{memory:10.1f}{limit:9.1f}")


def _line(name: str, predicted: float, printed: float) -> None:
    print(f"{name:44}{predicted:10.2f}{printed:9.2f}{predicted / printed - 1:>+8.1%}")


if __name__ == "__main__":
    main()
