"""Records as tables for people, on terminals and in logs."""
