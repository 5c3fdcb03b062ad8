"""From the rows that ehr/formats reads to the records a dataset stores."""
