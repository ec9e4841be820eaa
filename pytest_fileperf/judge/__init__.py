"""Judges measurements: limits, stored baselines, statistics and verdicts. Pure but for the baseline store."""
