"""Parts of a cluster with policies of their own: which jobs and instances they have."""
