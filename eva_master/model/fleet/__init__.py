"""Machines that the cluster has without launching them."""
