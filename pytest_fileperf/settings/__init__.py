"""Turns texts and values from the user into settings and requests, and both into a measurement's plan."""
