"""From a command line to validated cells: configuration, composition, choice of backend."""
