"""In which order the requests of a load are sent: the same at every run, by a seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ("ORDERS", "Order")

ORDERS = ("cycle", "shuffle", "zipf")
"""One after the other; in a random order, again and again; at random, with the first ones far more often."""
_DRAWN_AT_ONCE = 1024
"""Drawing so many takes some ten microseconds: the load does not notice it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which request is the next one."""

    kind: str = "cycle"
    """One of `ORDERS`."""
    seed: int = 0
    each: bool = False
    """Whether each connection goes through all of them by itself."""

    def places(self, count: int, *, own: int = 0, first: int = 0) -> Iterator[int]:
        """Returns the places, from 0 to below `count`, without an end.

        They begin with the place that is at `first` in the order, and those of `zipf` are drawn by the chance number
        `own`.

        `zipf` draws place i with a probability in proportion to 1 / (i + 1): Zipf's law, as the files of a web server
        are asked for (Breslau et al., "Web caching and Zipf-like distributions", INFOCOM 1999).
        """
        if self.kind == "zipf" and count > 1:
            return chain.from_iterable(self._drawn(count, own))
        if self.kind != "shuffle":
            return chain(range(first, count), chain.from_iterable(repeat(range(count))))
        shuffled = self._generator(0).permutation(count).tolist()
        return chain(shuffled[first:], chain.from_iterable(repeat(shuffled)))

    def identity(self) -> dict[str, object]:
        """Returns what must be equal for two measurements to be of the same thing, as JSON values."""
        seed = {} if self.kind == "cycle" else {"seed": self.seed}
        return {"order": self.kind, **seed, **({"each connection": True} if self.each else {})}

    def _drawn(self, count: int, own: int) -> Iterator[list[int]]:
        import numpy as np

        generator = self._generator(own)
        ends = np.array(list(accumulate(1 / (place + 1) for place in range(count))))
        while True:
            drawn = np.searchsorted(ends, generator.random(_DRAWN_AT_ONCE) * ends[-1], side="right")
            yield np.minimum(drawn, count - 1).tolist()

    def _generator(self, own: int) -> np.random.Generator:
        import numpy as np

        return np.random.default_rng((self.seed, own))
