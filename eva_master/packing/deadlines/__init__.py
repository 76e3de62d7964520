"""Which market a job with a deadline uses while there is time to lose."""
