"""From claimed runs to processes: the dispatcher, Ray as its runner, warm actors, runs on several devices."""
