"""From the rows that model_store/formats reads to the records a dataset stores."""
