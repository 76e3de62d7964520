"""The paper's Algorithm 1, and filling instances task by task."""
