"""The catalog, read without a service."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from server.cli.figures import figure, parameters
from server.cli.output import Json, document, out


def models(json: Json = False) -> None:
    """List the models that have a name. Any size such as 13B, shape, or file works as well."""
    from autotune.resolution import model_shape
    from search_spaces.catalog import load_model, model_names

    transformers = [load_model(name) for name in model_names()]
    if json:
        return document([model_shape(item) for item in transformers])
    table = Table(
        "model", "parameters", "layers", "hidden", "heads", "query groups", "seq", box=None
    )
    for item in transformers:
        table.add_row(
            item.name,
            parameters(item.parameters),
            str(item.num_layers),
            str(item.hidden_size),
            str(item.num_attention_heads),
            str(item.num_query_groups),
            str(item.seq_length),
        )
    return out().print(table)


def machines(json: Json = False) -> None:
    """List the machines that have a name; a TOML file works as well."""
    from autotune.resolution import machine_shape
    from search_spaces.catalog import load_machine, machine_names

    found = {name: load_machine(name) for name in machine_names()}
    if json:
        return document([machine_shape(item) for item in found.values()])
    table = Table("machine", "GPU", "per node", "GiB", "peak TFLOP/s", "nodes", box=None)
    for name, item in found.items():
        table.add_row(
            name,
            Text(item.gpu),
            str(item.gpus_per_node),
            figure(item.memory_gib),
            "–" if item.peak_tflops is None else f"{item.peak_tflops:g}",
            str(item.max_nodes),
        )
    return out().print(table)
