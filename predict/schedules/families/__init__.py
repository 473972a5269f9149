"""The schedules, a family a file. Whatever registers here is found by itself."""
