"""What `adapm-bench doctor` checks; each check runs in a process of its own."""
