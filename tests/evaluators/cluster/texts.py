"""Texts of every kind that a profile may hold, and profiles made of them."""

from __future__ import annotations

from hypothesis import strategies as st

from evaluators.cluster.profile import (
    ChosenTrainer,
    ClusterProfile,
    Container,
    Environment,
    Pilot,
    Polling,
    Retries,
    Scheduling,
    Tasks,
)

CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
ANY_TEXT = st.text(CHARACTERS, max_size=30)
LINE = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=30)
NAME = st.from_regex(r"[A-Za-z0-9_.&|+][A-Za-z0-9_.&|+-]{0,11}", fullmatch=True)
PATH = LINE.map(lambda line: f"/{line}")
VARIABLES = st.dictionaries(st.from_regex(r"X_[A-Za-z0-9_]{0,8}", fullmatch=True), ANY_TEXT)
OPTIONS = st.lists(LINE.map(lambda line: f"--mem={line}"), max_size=2).map(tuple)
WORDS = st.lists(LINE, max_size=3).map(tuple)

PROFILES = st.builds(
    ClusterProfile,
    name=NAME,
    description=ANY_TEXT,
    machine=NAME,
    python=PATH,
    slurm=st.builds(
        Scheduling,
        account=NAME,
        partition=NAME,
        constraint=NAME,
        gpu_request=st.sampled_from(["gpus-per-node", "gres", "none"]),
        exclusive=st.booleans(),
        directives=OPTIONS,
    ),
    tasks=st.builds(Tasks, cpus_per_task=st.none() | st.integers(1, 64), srun=OPTIONS),
    environment=st.builds(
        Environment,
        modules=st.lists(NAME, max_size=2).map(tuple),
        virtual_environment=PATH,
        variables=VARIABLES,
        prologue=ANY_TEXT,
    ),
    container=st.none()
    | st.builds(Container, runtime=st.just("apptainer"), image=PATH, options=WORDS),
    trainer=st.none()
    | st.builds(
        ChosenTrainer,
        adapter=NAME,
        folder=PATH,
        set=st.dictionaries(NAME, LINE | WORDS | st.booleans()),
    ),
    polling=st.builds(Polling, interval_s=st.floats(0.05, 3600)),
    retries=st.builds(Retries, attempts=st.integers(1, 100)),
    pilot=st.builds(Pilot, nodes=st.none() | st.integers(1, 64)),
)
