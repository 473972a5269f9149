"""The vocabulary of work that can be timed, the facts of the hardware, and the act of timing it."""
