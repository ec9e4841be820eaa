"""Plans of load: payloads, operations with their expected answers, pacing and rounds. Pure."""
