"""What the operating system gives: processes, directories, samples."""
