"""The spot market, as the cluster has seen it."""
