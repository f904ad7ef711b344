"""A figure as a picture that a notebook shows."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from autotune.client.asynchronous.transport import AsyncTransport
from autotune.client.files import figure_form
from autotune.client.views import FigureRequest, PlotView
from autotune.files import write_whole


class AsyncPlot(PlotView):
    """A figure, drawn by the service; nothing is needed to show it but the notebook."""

    def __init__(
        self, transport: AsyncTransport, request: FigureRequest, *, name: str, svg: bytes
    ) -> None:
        super().__init__(name, svg.decode())
        self._transport = transport
        self._request = request

    @classmethod
    async def drawn(cls, transport: AsyncTransport, request: FigureRequest, *, name: str) -> Self:
        """Return the figure that `request` asks for."""
        svg = await transport.send(request(form="svg"))
        return cls(transport, request, name=name, svg=svg)

    async def save(self, path: str | Path) -> Path:
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
        content = await self._transport.send(self._request(form=form))
        return write_whole(target, content)
