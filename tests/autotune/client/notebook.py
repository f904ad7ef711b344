"""The example notebook with its outputs, executed against a service of its own.

    python -m tests.autotune.client.notebook

runs its cells as they stand in the file, and writes what they give into it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from tests.patience import PATIENCE_S
from tests.serving import environment, serving

ROOT = Path(__file__).parents[3]
NOTEBOOK = ROOT / "docs" / "examples" / "campaign.ipynb"
VERSION = 4
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""Of the notebook: nothing of the machine that ran it."""


class ThisPython(KernelSpecManager):
    """Runs cells with the Python that runs this, whatever kernels the user has installed."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        # A history would be kept in the user's home.
        command = [sys.executable, "-m", "ipykernel_launcher", "--HistoryManager.enabled=False"]
        return KernelSpec(
            argv=[*command, "-f", "{connection_file}"], display_name=kernel_name, language="python"
        )


def read() -> Any:
    """Return the notebook as it is kept."""
    return nbformat.read(NOTEBOOK, as_version=VERSION)  # type: ignore[no-untyped-call]


def executed(notebook: Any, *, url: str, folder: Path) -> Any:
    """Return the notebook with the outputs of its cells, run in `folder` against the service at
    `url`; raises CellExecutionError where one fails."""
    kernel = AsyncKernelManager(
        kernel_spec_manager=ThisPython(),
        connection_file=str(folder / "kernel.json"),
        transport="ipc",
    )
    client = NotebookClient(
        notebook,
        km=kernel,
        timeout=10 * PATIENCE_S,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    found = environment() | {"AUTOTUNE_URL": url, "IPYTHONDIR": str(folder / "ipython")}
    run = client.execute(env=found, cleanup_kc=True)
    run.metadata = METADATA
    return run


def executed_alone(notebook: Any) -> Any:
    """Return the notebook as a service that knows of nothing else answers it."""
    with tempfile.TemporaryDirectory() as folder:
        data, work = Path(folder, "data"), Path(folder, "work")
        data.mkdir()
        work.mkdir()
        with serving(data) as service:
            return executed(notebook, url=service.url, folder=work)


if __name__ == "__main__":
    run = executed_alone(read())
    nbformat.write(run, NOTEBOOK, version=VERSION)  # type: ignore[no-untyped-call]
