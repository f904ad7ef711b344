"""A diagnosis as text."""

from __future__ import annotations

from rich.console import Group, RenderableType

from autotune.explanation.parts import TIME_WORDS, time_by_part
from autotune.schemas.diagnoses import Diagnosis
from autotune.words.quantities import figure, gibibytes, percent, plural, seconds
from server.cli.tables.elements import facts, table
from server.cli.tables.predictions import changes, parts


def diagnosis(answer: Diagnosis) -> RenderableType:
    """Return what ran, what was to be expected, the causes, and faster layouts."""
    run = answer.run
    runs = f" (the last of {answer.runs} runs)" if answer.runs > 1 else ""
    known = [
        ("log", f"{answer.source}, {answer.trainer}{runs}"),
        ("model", answer.model),
        ("machine", f"{answer.machine}, {answer.gpus} GPUs" if answer.machine else ""),
        ("layout", answer.layout),
        ("assumed", ", ".join(answer.assumed)),
        ("not known", _missing(answer)),
        (
            "iterations",
            f"{plural(run.iterations, 'report')} after {run.warm_up} of the warm-up, "
            f"{seconds(run.iteration_time_low_s)} to {seconds(run.iteration_time_high_s)}",
        ),
        ("tokens/s per GPU", figure(run.tokens_per_s_per_gpu) if run.tokens_per_s_per_gpu else ""),
        ("utilisation", f"MFU {percent(run.mfu)}, HFU {percent(run.hfu)}" if run.mfu else ""),
        ("peak memory", gibibytes(run.peak_memory_gib) if run.peak_memory_gib else ""),
        ("printed", run.printed_sentence),
    ]
    body: list[RenderableType] = [answer.sentence, "", facts([row for row in known if row[1]])]
    if answer.causes:
        columns = (
            ("|cause", lambda cause: cause.name),
            (">share of time", lambda cause: percent(cause.worth) if cause.worth else None),
            ("what to do", lambda cause: cause.sentence),
            ("evidence", lambda cause: cause.evidence),
        )
        body += ["", table(answer.causes, columns)]
    if answer.expected and answer.expected.time_parts_s:
        by_part = time_by_part(answer.expected.time_parts_s)
        named = {TIME_WORDS[name]: time_s for name, time_s in by_part.items()}
        body += ["", parts(named, title="predicted iteration, s")]
    if answer.not_shown:
        body += ["", f"To learn more, look at {'; '.join(answer.not_shown)}."]
    if answer.faster and answer.strategy:
        body += ["", changes("the largest predicted gains", answer.faster, answer.strategy)]
    if answer.command:
        body += ["", f"to measure others: {answer.command}"]
    return Group(*body)


def _missing(answer: Diagnosis) -> str:
    words = {
        "model": "the model (--model)",
        "machine": "the machine (--machine)",
        "nodes": "the number of nodes (--nodes)",
        "baseline": "the layout and its batch (--baseline, or the launch script)",
    }
    return ", ".join(words[name] for name in answer.missing)
