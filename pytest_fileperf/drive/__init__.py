"""Makes the load, in a generator process, or in the test process for an app that runs there."""
