"""Other tools' configs: launch arguments of a run for four tools, and a run config from the files of four."""
