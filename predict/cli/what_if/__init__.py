"""Commands that ask what another setting, machine or training would bring."""
