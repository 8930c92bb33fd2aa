"""What a cell is, how it is run, its record, and the registry of tables and figures."""
