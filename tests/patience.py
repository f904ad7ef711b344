"""How long a test waits for what has to happen before it fails and says what did not."""

PATIENCE_S = 480.0
"""Far longer than anything takes on a busy machine, and shorter than a test may last (the
`timeout` of pyproject.toml), so that the failure names what was waited for."""
