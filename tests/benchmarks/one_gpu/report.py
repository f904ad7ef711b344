"""What `evaluate` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.benchmarks.one_gpu.evaluation import Errors, Method
from tests.benchmarks.one_gpu.table import Table

HEAD = (
    f"{'quantity':13}{'method':18}{'predictions':>12}{'mean':>8}{'median':>8}{'90 %':>8}"
    f"{'bias':>8}{'in interval':>13}"
)


def report(table: Table, methods: Sequence[Method]) -> str:
    return "\n".join([*_opening(table), "", *_errors(methods), "", *_fit(methods)])


def _opening(table: Table) -> Iterator[str]:
    counts = Counter(row.status for row in table.rows)
    told = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    yield f"{table.machine.gpu}, {table.machine.memory_gib:g} GiB: {told}"
    for framework in sorted({row.framework for row in table.rows}):
        yield f"measured with {framework}"


def _errors(methods: Sequence[Method]) -> Iterator[str]:
    yield "Off by, |predicted / measured - 1|; the interval is to hold 80 %:"
    yield HEAD
    for quantity in ("time", "memory", "energy"):
        for method in methods:
            yield _line(quantity, method)


def _line(quantity: str, method: Method) -> str:
    found: Errors = getattr(method, quantity)
    start = f"{quantity:13}{method.name:18}"
    if not found.predictions:
        return start + (method.no_energy if quantity == "energy" else "nothing was measured")
    shares = "".join(f"{_percent(value):>8}" for value in (found.mean, found.median, found.p90))
    bias = f"{found.bias:+.0%}" if found.bias is not None else "-"
    return f"{start}{found.predictions:>12}{shares}{bias:>8}{_percent(found.coverage):>13}"


def _fit(methods: Sequence[Method]) -> Iterator[str]:
    yield "Out of memory, a strategy being given up where it fits with less than 50 %:"
    for method in methods:
        fit = method.fit
        foreseen = f"{_percent(fit.foreseen)} of {fit.ran_out} foreseen"
        yield (
            f"{method.name:18}{foreseen if fit.ran_out else 'none ran out of memory'}, "
            f"{_percent(fit.wrongly_given_up)} of {fit.ran} that ran wrongly given up, "
            f"Brier score {fit.brier:.3f}"
        )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
