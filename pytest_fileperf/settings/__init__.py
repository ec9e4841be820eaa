"""From marker, command line and ini to one frozen value: keys, resolution, servers as text."""
