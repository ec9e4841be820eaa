"""Joins the stages: plans, loads, compares, judges, keeps results, and fails tests."""
