"""What to do: payloads, operations with what a good answer is, pacing and rounds. Pure."""
