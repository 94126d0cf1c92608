"""What `adapm-bench doctor` looks at, each look in a process beside the command."""
