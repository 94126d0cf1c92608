"""The kinds of experiments: what each asks for, the runs that it expands into, and what follows when runs end. Pure."""
