from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """Of one kind: these rules know no database."""
    return f"sqlite:///{tmp_path / 'autotune.db'}"
