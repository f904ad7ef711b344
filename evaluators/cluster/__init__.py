"""Cluster profiles: job options and environments, as TOML files that a site's users share.

To add a built-in one, add a file to `profiles/`; its name without `.toml` is the profile's.
"""

from evaluators.cluster.catalog import (
    load_profile,
    profile_as_dict,
    profile_file,
    profile_for_machine,
    profile_from_dict,
    profile_names,
    read_profile,
)
from evaluators.cluster.profile import ClusterProfile

__all__ = [
    "ClusterProfile",
    "load_profile",
    "profile_as_dict",
    "profile_file",
    "profile_for_machine",
    "profile_from_dict",
    "profile_names",
    "read_profile",
]
