"""Turns samples into rounds, rounds into a recording, and a recording into figures."""
