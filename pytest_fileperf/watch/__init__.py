"""Processes seen from outside: their CPU time, memory, threads, queues and profiles."""
