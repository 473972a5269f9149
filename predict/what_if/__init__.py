"""Questions of the kind "what if": sweeps over a config's keys, the difference of two runs, and what each figure of a run is worth."""
