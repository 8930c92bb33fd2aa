"""From cells to Slurm jobs and back: shapes, arrays, submission, status, collection; and the test cluster."""
