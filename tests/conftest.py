"""Generated examples are the same in every run: what fails is then due to a change. A search for
others is `pytest --hypothesis-profile=default`."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
