"""A finished session's reports: text for the terminal, and files for other programs."""
