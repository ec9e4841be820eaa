"""Plans for a load: requests, their expected answers, payloads, pacing and rounds."""
