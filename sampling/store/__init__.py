"""The sample store: one parquet file per call name, one manifest per profile, and a journal that survives interruption.

    data/samples/<profile>/manifest.json      the device, and the sessions (versions, date, commit, timer settings)
    data/samples/<profile>/<call>.parquet     fields of the call, then phase, threads, busy_ranks, times, quarantine
    data/samples/<profile>/journal.jsonl      rows of a session that are not yet in the parquet files
    data/samples/<profile>/begun.json         the call that is timed now
    data/samples/<profile>/failed.jsonl       calls that ended their ranks, and are not begun again

Rows hold fields and times, never features, so a new feature needs a retrain and never a resample.
"""
