"""Reports of the speed of light: of a module and of a step."""
