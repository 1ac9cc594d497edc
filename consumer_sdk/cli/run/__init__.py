"""``consumer-sdk run``: a service from a module and a configuration file, in one process or several."""
