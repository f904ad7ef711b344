# Generated from `asynchronous` by `make client`: change that and run it again.
"""A figure as a picture that a notebook shows."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from autotune.client.files import figure_form
from autotune.client.synchronous.transport import Transport
from autotune.client.views import FigureRequest, PlotView
from autotune.files import write_whole


class Plot(PlotView):
    """A figure, drawn by the service; nothing is needed to show it but the notebook."""

    def __init__(
        self, transport: Transport, request: FigureRequest, *, name: str, svg: bytes
    ) -> None:
        super().__init__(name, svg.decode())
        self._transport = transport
        self._request = request

    @classmethod
    def drawn(cls, transport: Transport, request: FigureRequest, *, name: str) -> Self:
        """Return the figure that `request` asks for."""
        svg = transport.send(request(form="svg"))
        return cls(transport, request, name=name, svg=svg)

    def save(self, path: str | Path) -> Path:
        """Write it as the file's end says: .svg as it is shown, .png, .pdf, .json (its data) and
        .vega.json (Vega-Lite) as the campaign stands by now.

        Raises:
            InvalidInput: field `path`: its end names none of these.
            OSError: it cannot be written.
        """
        target = Path(path)
        form = figure_form(target)
        if form == "svg":
            return write_whole(target, self.svg)
        content = self._transport.send(self._request(form=form))
        return write_whole(target, content)
