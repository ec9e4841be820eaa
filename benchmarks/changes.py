"""What gate_app.py is changed by: nothing. gate.py gives each side of a run a copy with its own values."""

from __future__ import annotations

SLOWER = 0.0
"""CPU that a request costs more, as a share."""
DELAYED = 0
"""One request of so many waits; 0 for none."""
DELAY_S = 0.0
"""For how long."""
STALL_S = 0.0
"""All requests wait for 30 ms, once in about so many seconds; 0 for never."""
SLOWER_PARTS: dict[str, float] = {}
