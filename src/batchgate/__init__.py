"""batchgate."""
