from __future__ import annotations

from fastapi.testclient import TestClient

from autotune.schemas.catalog import ProfileDetail, ProfileSummary
from server.settings import Settings

PROFILES = "/api/v1/profiles"
MINE = """
description = "ours"
machine = "frontier"

[slurm]
account = "abc123"

[environment.variables]
NCCL_DEBUG = "WARN"
"""


def listed(client: TestClient) -> dict[str, ProfileSummary]:
    found = [ProfileSummary.model_validate(one) for one in client.get(PROFILES).json()]
    return {profile.name: profile for profile in found}


def test_ready_profiles_are_listed_and_can_be_read(shared_client: TestClient) -> None:
    found = listed(shared_client)
    assert {"frontier", "generic"} <= set(found)
    for name, summary in found.items():
        assert summary.source == ""
        assert summary.problem == ""
        detail = ProfileDetail.model_validate(shared_client.get(f"{PROFILES}/{name}").json())
        assert (detail.name, detail.machine) == (name, summary.machine)
        assert detail.content["slurm"].keys() >= {"account", "partition"}


def test_ones_own_profiles_are_among_them_and_say_where_from_or_what_is_wrong(
    client: TestClient, sqlite_settings: Settings
) -> None:
    folder = sqlite_settings.profiles_dir
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(MINE)
    (folder / "generic.toml").write_text('description = "instead of the ready one"')
    (folder / "broken.toml").write_text("[slurm]\npartitoin = 'batch'")
    found = listed(client)
    assert found["mine"].description == "ours"
    assert found["mine"].source == str(folder / "mine.toml")
    assert found["generic"].description == "instead of the ready one"
    assert "partition" in found["broken"].problem
    assert found["frontier"].problem == ""
    detail = client.get(f"{PROFILES}/mine").json()
    assert detail["content"]["slurm"]["account"] == "abc123"
    assert detail["content"]["environment"]["variables"] == {"NCCL_DEBUG": "WARN"}
    answer = client.get(f"{PROFILES}/broken")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "slurm.partitoin"
    for name in ("fronteer", "..%2Ffrontier", "%2Fetc%2Fpasswd", "mine.toml"):
        assert client.get(f"{PROFILES}/{name}").status_code == 404, name
