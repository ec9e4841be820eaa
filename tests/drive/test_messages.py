"""Messages between the test process and a generator."""

from __future__ import annotations

import io

from pytest_fileperf.drive.generator import read_message, write_message
from pytest_fileperf.measure.histogram import Histogram


def test_messages_come_as_they_were_sent_and_none_at_the_end() -> None:
    stream = io.BytesIO()
    sent = (Histogram.of([1_000, 2_000]), ValueError("x"))
    for message in sent:
        write_message(stream, message)
    stream.seek(0)
    assert read_message(stream) == sent[0]
    assert repr(read_message(stream)) == repr(sent[1])
    assert read_message(stream) is None
