"""A port that is taken is refused with the way out."""

import pytest

from api.processes.address import ServiceError, listen


def test_a_port_that_is_taken_and_an_address_of_another_machine_are_refused() -> None:
    with listen("127.0.0.1", 0) as listener, pytest.raises(ServiceError, match="in use; choose another port"):
        listen("127.0.0.1", listener.getsockname()[1])
    with pytest.raises(ServiceError, match=r"cannot listen on 192\.0\.2\.1 port 0: [^;]*assign[^;]*; choose"):
        listen("192.0.2.1", 0)
