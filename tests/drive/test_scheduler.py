"""Which Dask scheduler is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fileperf.drive.scheduler import scheduler_address
from pytest_fileperf.errors import GeneratorError

ADDRESSES = ("tcp://10.0.0.5:8786", "tls://[::1]:8786", "10.0.0.5:8786", "load-1:8786", "inproc://10.0.0.5/12/1")


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_taken_as_it_is_also_from_a_file(address: str, tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    path.write_text(f'{{"address": "{address}"}}')
    assert scheduler_address(address) == scheduler_address(str(path)) == address


@pytest.mark.parametrize(
    "scheduler", ["missing.json", "./missing.json", "127.0.0.1", "tcp://127.0.0.1", "./" + "x" * 300, "/dev/null/x"]
)
def test_what_is_neither_an_address_nor_a_file_says_so(scheduler: str) -> None:
    with pytest.raises(GeneratorError) as error:
        scheduler_address(scheduler)
    assert str(error.value) == (
        f"{scheduler} is neither an address with a port, as in tcp://127.0.0.1:8786, nor a file that is there"
    )


@pytest.mark.parametrize(
    "content, why",
    [
        (b"garbage", "it has no address in JSON"),
        (b'{"x": 1}', "it has no address in JSON"),
        (b"[]", "it has no address in JSON"),
        (b"\xff", "it has no address in JSON"),
        (b'{"address": ""}', "'' is no address with a port"),
        (b'{"address": 5}', "5 is no address with a port"),
        (b'{"address": "10.0.0.5"}', "'10.0.0.5' is no address with a port"),
    ],
)
def test_a_scheduler_file_that_is_none_says_so(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    path.write_bytes(content)
    with pytest.raises(GeneratorError) as error:
        scheduler_address(str(path))
    assert str(error.value).startswith(f"{path} is no scheduler file ({why}): give the one that `dask scheduler ")


def test_a_directory_is_no_scheduler_file(tmp_path: Path) -> None:
    with pytest.raises(GeneratorError, match=r"is no scheduler file \(Is a directory\): give"):
        scheduler_address(str(tmp_path))
