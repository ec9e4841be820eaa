"""Serves the app under test: specs, launchers, readiness, logs, cores and a clean end."""
