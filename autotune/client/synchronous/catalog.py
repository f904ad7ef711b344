# Generated from `asynchronous` by `make client`: change that and run it again.
"""What a service knows by name."""

from __future__ import annotations

from autotune.client import calls
from autotune.client.calls.subject import RayInput, SlurmInput, profile_named
from autotune.client.files import MachineInput
from autotune.client.synchronous.connection import Connection
from autotune.schemas import (
    Activity,
    AdapterSummary,
    MachineShape,
    ModelShape,
    ProfileDetail,
    ProfileSummary,
)
from search_spaces.errors import InvalidInput


class Catalog(Connection):
    """Models, machines, spaces, cluster profiles and trainers."""

    def models(self) -> list[str]:
        """Return the names of models; any size such as "13B" is taken as well."""
        return self._transport.send(calls.catalog.models())

    def model(self, name: str) -> ModelShape:
        """Return the shape that a name or a size stands for."""
        return self._transport.send(calls.catalog.model(name))

    def machines(self) -> list[str]:
        """Return the names of machines; `local` is the one that the service runs on."""
        return self._transport.send(calls.catalog.machines())

    def machine(self, name: str) -> MachineShape:
        return self._transport.send(calls.catalog.machine(name))

    def spaces(self) -> list[str]:
        """Return the names of ready search spaces."""
        return self._transport.send(calls.catalog.spaces())

    def profiles(self) -> list[ProfileSummary]:
        """Return the cluster profiles that the service knows, its user's own and the ready ones."""
        return self._transport.send(calls.catalog.profiles())

    def profile(self, name: str) -> ProfileDetail:
        """Return all that a cluster profile says."""
        return self._transport.send(calls.catalog.profile(name))

    def adapters(self) -> list[AdapterSummary]:
        """Return the trainers that a file describes, its user's own and the ready ones."""
        return self._transport.send(calls.catalog.adapters())

    def activity(self) -> Activity:
        """Return what runs where, and who waits for what."""
        return self._transport.send(calls.catalog.activity())

    def _machine_of(
        self,
        machine: MachineInput | None,
        slurm: SlurmInput | None,
        ray: RayInput | None = None,
    ) -> MachineInput | None:
        """Return the machine of a question: the cluster profile's where none was named."""
        name = profile_named(slurm, ray)
        if not name or machine is not None:
            return machine
        profile = self.profile(name)
        if not profile.machine:
            reason = f"the profile {profile.name!r} is for any machine, so say which"
            raise InvalidInput("machine", None, reason, valid="a name of `machines()`, or a Path")
        return profile.machine
