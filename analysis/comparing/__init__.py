"""Result sets side by side: comparison, verification, grids of rows."""
