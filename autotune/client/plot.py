"""Figures of a service: their parameters and formats, and images for notebooks and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypedDict, get_args

from autotune.files import write_whole
from autotune.schemas.choices import FigureName, ParetoCost, ScalingKind
from autotune.schemas.figures import FigureForm
from search_spaces.errors import InvalidInput, closest

FIGURE_FORMS: tuple[FigureForm, ...] = ("svg", "png", "pdf", "csv", "vega.json", "json")
DATA_FORMS: tuple[FigureForm, ...] = ("csv", "json")
"""Formats without colours."""


class FigureInput(TypedDict, total=False):
    """Parameters of figures: `by` of the trajectory ("trial", "time", "node_hours"),
    `micro_batch_size` and `num_nodes` of the map, `against` of the Pareto front, `scaling` of that
    figure."""

    by: str
    micro_batch_size: int
    num_nodes: int
    against: ParetoCost
    scaling: ScalingKind


class Plot:
    """A figure drawn by the service. A notebook displays it without JavaScript; `svg` is its
    source."""

    def __init__(self, name: str, fetch: Callable[[FigureForm], bytes]) -> None:
        self.name = name
        self.svg = fetch("svg").decode()
        self._fetch = fetch

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the figure in the format of the file's suffix: .svg (as displayed), or .png, .pdf,
        .csv (its table), .json (its data) or .vega.json (Vega-Lite), which have the campaign's
        current state.

        Raises:
            InvalidInput: field `path`: the suffix names no format.
            OSError: the file cannot be written.
        """
        target = Path(path)
        form = figure_form(target)
        return write_whole(target, self.svg if form == "svg" else self._fetch(form))


def known_figure(kind: str) -> str:
    """Return `kind`. Raises InvalidInput with the nearest name if there is no such figure."""
    kinds = get_args(FigureName)
    if kind in kinds:
        return kind
    near = closest(kind, kinds, count=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InvalidInput("kind", kind, f"there is no such figure{hint}", valid=", ".join(kinds))


def figure_form(path: Path, *, field: str = "path") -> FigureForm:
    """Return the format of a figure, by the file's suffix.

    Raises:
        InvalidInput: field `field`: the suffix names no format.
    """
    name = path.name.lower()
    for form in FIGURE_FORMS:
        if name.endswith(f".{form}"):
            return form
    valid = (
        "a name that ends in .svg, .png, .pdf, .csv (its table), .json (its data) or .vega.json "
        "(Vega-Lite)"
    )
    raise InvalidInput(field, str(path), "its end names no format", valid=valid)
