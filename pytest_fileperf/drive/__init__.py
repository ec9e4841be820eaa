"""Makes the load: one loop, in a generator process or, for in-process apps, in this one."""
