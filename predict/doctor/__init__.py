"""The state of the installation, the machine and the data that predictions rest on."""
