"""Old and new code: its Git tree, the place of its files, and its packages."""
