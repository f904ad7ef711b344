"""Project the time of a wide run from a measured narrow one.

The two differ only in the number of data-parallel replicas, or in the number of pipeline stages
with the same layers per stage.
"""

from __future__ import annotations

import numpy as np

from autotune.calibration.mixture import Mixture
from autotune.calibration.posterior import Posterior
from autotune.cost_model.columns import Array, Columns
from autotune.cost_model.step_time import MicroBatch, time_parts
from autotune.cost_model.strategies import Strategies, total

SPREAD_OF_A_DOUBLING = 0.005
"""Standard deviation of the logarithm of the projection's error per doubling of the replicas, where
computation hides their traffic: NVIDIA's DGX Cloud recipes on 8 to 2,048 H100 (188 pairs) are 0.4
to 1.3 % off in the median, whatever the ratio."""

SPREAD_OF_TRAFFIC = 0.25
"""The same relative to the replicas' share of the step that is not hidden, per doubling of the
group that ZeRO shards over. InternEvo's runs on 8 to 1,024 GPUs chose it: all-gathers and
reduce-scatters are rings, whose steps grow with the group, and networks thin out towards their
core; neither is in the formulas. Half of its pairs, by SHA-256, chose the value: 79 % of them are
within the 80 % interval, and 85 % of the others."""

SPREAD_OF_A_LONGER_PIPELINE = 0.03
"""The same per doubling of the pipeline stages. Assumed: no published runs differ only in that.
GAS + PP - 1 slots and the two end stages are exact except for how well transfers overlap and for
waiting on the slowest of more stages."""

REPEATS = 0.02
"""The same for two identical runs: each repeats within 1 to 1.5 %."""


def projected(
    time: Mixture, *, narrow: Columns, wide: Columns, log_time: Array
) -> tuple[Array, Array]:
    """Return the mean and variance of the logarithm of the wide runs' measured times, shape (n,)
    each.

    The measured time is multiplied by the ratio of the two times by the formulas. An error common
    to both widths cancels; the uncertainty of the constants in the ratio does not.

    Args:
        time: calibrated on trials of the machine, the narrow ones among them.
        narrow, wide: n strategies, equal except for replicas, or stages and layers, and what
            follows from them.
        log_time: shape (n,), logarithm of the measured seconds per step of the narrow runs.
    """
    weights = np.array([weight for weight, _ in time.members])[:, np.newaxis]
    each = [_log_ratio(posterior, narrow, wide) for _, posterior in time.members]
    ratios, variances = (np.array(stacked) for stacked in zip(*each, strict=True))
    ratio = np.sum(weights * ratios, axis=0)
    of_constants = np.sum(weights * (variances + (ratios - ratio) ** 2), axis=0)
    doublings = np.log2(wide["data_parallel"] / narrow["data_parallel"])
    longer = np.log2(wide["pipeline_parallel"] / narrow["pipeline_parallel"])
    sharded = np.log2(wide["zero_shard_gpus"] / narrow["zero_shard_gpus"])
    traffic = SPREAD_OF_TRAFFIC * sharded * _share_of_traffic(time.best, wide)
    of_width = (SPREAD_OF_A_DOUBLING * doublings) ** 2 + traffic**2
    of_stages = (SPREAD_OF_A_LONGER_PIPELINE * longer) ** 2
    return log_time + ratio, of_constants + of_width + of_stages + REPEATS**2


def _share_of_traffic(posterior: Posterior, columns: Columns) -> Array:
    """Return the share of a step in which only the replicas' collectives run, shape (n,) or ()."""
    quantity = posterior.quantity
    strategies = Strategies(columns, quantity.machine, quantity.parameters(posterior.z))
    parts = time_parts(strategies, MicroBatch.of(strategies))
    exposed = parts["zero_micro_batches"] + parts["data_parallel"]
    return np.asarray(exposed / total(parts))


def log_ratio(time: Mixture, *, narrow: Columns, wide: Columns) -> Array:
    """Return the logarithm of the wide runs' times over the narrow ones', by the most probable
    constants, shape (n,)."""
    best, as_measured = time.best, np.zeros(len(narrow))
    values = [best.quantity.log_value(best.z, each, as_measured) for each in (wide, narrow)]
    return np.broadcast_to(values[0] - values[1], len(narrow))


def _log_ratio(posterior: Posterior, narrow: Columns, wide: Columns) -> tuple[Array, Array]:
    """Return the logarithm of the ratio of times by the formulas, and its variance due to the
    constants, shape (n,) each."""
    measured = np.zeros(len(narrow))
    narrow_value, narrow_slopes = posterior.quantity.linearised(posterior.z, narrow, measured)
    wide_value, wide_slopes = posterior.quantity.linearised(posterior.z, wide, measured)
    slopes = wide_slopes - narrow_slopes
    return wide_value - narrow_value, np.sum((slopes @ posterior.covariance) * slopes, axis=1)
