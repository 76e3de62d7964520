"""Worth of tasks, price of instances, and cost of moving and launching."""
