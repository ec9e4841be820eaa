"""Turns the texts and values that a user gives into settings and requests, and these into a measurement's plan."""
