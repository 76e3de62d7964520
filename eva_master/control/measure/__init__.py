"""Measurements of the control loop: money, throughput, delays, and lessons from them."""
