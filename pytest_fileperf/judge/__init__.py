"""Judges measurements: limits, stored baselines, statistics and verdicts. Pure, except the baseline store."""
