"""Parts of a cluster, each planned for by a policy of its own."""
