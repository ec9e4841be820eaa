"""Makes the load: in processes of its own, or in the test process if the app runs there."""
