"""How far the time models can be trusted: errors and coverage on rows held out, device by device."""
