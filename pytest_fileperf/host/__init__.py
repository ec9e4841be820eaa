"""All that the operating system gives: processes, directories, samples."""
