"""Statistics in the slow, readable way: scipy.stats and textbook loops, to hold the fast ones against."""
