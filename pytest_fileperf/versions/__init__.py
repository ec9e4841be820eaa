"""The old and the new code: their Git trees, the directories of their files, and their packages."""
