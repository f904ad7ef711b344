"""Trials of the bundled trainer on one GPU, and how well the cost model foresees them.

The command is `tests/benchmarks/one_gpu.py`; `docs/gpu.md` says what it is for.
"""
