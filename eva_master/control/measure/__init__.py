"""What the control loop measures: money, throughput, delays, and what they teach."""
