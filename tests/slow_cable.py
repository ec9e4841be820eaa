"""A cable between two network namespaces that takes its time: each packet comes some milliseconds later, in order.

python slow_cable.py HERE THERE MS JITTER_MS     the names of the namespaces; says `joined` and runs until it is killed

Linux's own delay (`tc … netem`) is not in every kernel; TUN devices are: what one namespace sends is read here, and
written to the other.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
DEVICE = "cable"


def main() -> None:
    """Carries packets between the two namespaces."""
    here, there, ms, jitter_ms = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    ends = (_end_in(here), _end_in(there))
    print("joined", flush=True)
    under_way: tuple[deque[tuple[float, bytes]], ...] = (deque(), deque())
    """What goes to each end, with when it arrives."""
    while True:
        now_s = time.monotonic()
        for place, packets in enumerate(under_way):
            while packets and packets[0][0] <= now_s:
                with suppress(OSError):  # an end that is not up yet loses what comes
                    os.write(ends[place], packets.popleft()[1])
        due_s = min((packets[0][0] for packets in under_way if packets), default=now_s + 1)
        ready, _, _ = select.select(ends, (), (), max(0.0, due_s - now_s))
        for end in ready:
            packets = under_way[1 - ends.index(end)]
            arrives_s = time.monotonic() + (ms + random.uniform(-jitter_ms, jitter_ms)) / 1e3
            packets.append((max(arrives_s, packets[-1][0]) if packets else arrives_s, os.read(end, 65536)))


def _end_in(namespace: str) -> int:
    """Returns the end of the cable in a namespace, in which this process then is."""
    descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    os.close(descriptor)
    end = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    return end


if __name__ == "__main__":
    main()
