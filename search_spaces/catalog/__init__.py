"""Models, machines and ready spaces, as TOML files next to this module.

To add one, add a file: its name without `.toml` is the name that it is chosen by.
"""

from search_spaces.catalog.hugging_face import model_from_hugging_face
from search_spaces.catalog.machines import (
    consistent_machine,
    load_machine,
    machine_from_table,
    machine_names,
    read_machine,
)
from search_spaces.catalog.models import load_model, model_names, model_with, read_model
from search_spaces.catalog.shapes import consistent_model, model_from_line, model_from_table
from search_spaces.catalog.spaces import load_space, space_names

__all__ = [
    "consistent_machine",
    "consistent_model",
    "load_machine",
    "load_model",
    "load_space",
    "machine_from_table",
    "machine_names",
    "model_from_hugging_face",
    "model_from_line",
    "model_from_table",
    "model_names",
    "model_with",
    "read_machine",
    "read_model",
    "space_names",
]
