"""The errors a user can cause, each with the exit code that a command ends with.

UserError               2  usage or config
├── ConfigError         2  every fault of a config in one message
├── SkippedError        2  a call that cannot be timed here; the sampler reports it and goes on
├── SamplesError        3  samples or regressors missing, stale or not matching
└── InfeasibleError     4  the plan does not fit, or no valid plan exists
"""

from __future__ import annotations


class UserError(Exception):
    """An error that the user can fix; the message gives what, where, the value and the fix."""

    exit_code = 2


class ConfigError(UserError):
    """A config that cannot be used; the message lists every fault at once."""


class SkippedError(UserError):
    """A call that this machine or its software cannot run; the message is shown in place of its rows."""


class SamplesError(UserError):
    """Samples or regressors that are missing, from another machine, or out of date."""

    exit_code = 3


class InfeasibleError(UserError):
    """A plan that cannot run as asked."""

    exit_code = 4
