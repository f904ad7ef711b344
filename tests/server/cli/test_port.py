"""The port that the service listens on."""

from __future__ import annotations

import pytest

from search_spaces.errors import InvalidInput
from server.cli.port import free_port, is_free, listening_socket


def test_ports() -> None:
    with listening_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert not is_free("127.0.0.1", port)
        assert free_port("127.0.0.1", preferred=port) != port
    assert is_free("127.0.0.1", port)
    assert free_port("127.0.0.1", preferred=port) == port


def test_a_host_that_is_not_this_machine() -> None:
    with pytest.raises(InvalidInput, match="cannot be listened on"):
        listening_socket("192.0.2.1", 0)
