from __future__ import annotations

import pytest

from evaluators.trainer.launcher import launched, ranks_of_node

ENVIRONMENT = {"RANK": "4", "WORLD_SIZE": "8", "MASTER_ADDR": "n01", "MASTER_PORT": "20000"}
SLURM = {"SLURM_PROCID": "4", "SLURM_GTIDS": "4,5,6,7"}


def test_a_process_is_a_rank_if_all_torch_variables_are_set() -> None:
    assert launched(ENVIRONMENT) == (4, 8)
    for name in ENVIRONMENT:
        assert launched({key: value for key, value in ENVIRONMENT.items() if key != name}) is None


@pytest.mark.parametrize(
    ("variables", "ranks"),
    [
        (SLURM, (4, 5, 6, 7)),
        ({**SLURM, "SLURM_GTIDS": "4"}, (4,)),
        ({**SLURM, "SLURM_GTIDS": "0,4"}, (0, 4)),
        ({**SLURM, "SLURM_CPU_BIND_TYPE": "none"}, (4, 5, 6, 7)),
        ({**SLURM, "SLURM_CPU_BIND_TYPE": "mask_cpu:"}, None),
        ({**SLURM, "SLURM_PROCID": "1"}, None),
        ({}, None),
    ],
    ids=["node", "alone", "cyclic", "unbound", "bound", "torchrun", "without-slurm"],
)
def test_the_ranks_of_a_node_are_those_that_slurm_started_there(
    variables: dict[str, str], ranks: tuple[int, ...] | None
) -> None:
    assert ranks_of_node(ENVIRONMENT | variables) == ranks
