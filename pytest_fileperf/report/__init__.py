"""What a finished session tells: results as text for the terminal, and as files for other programs."""
