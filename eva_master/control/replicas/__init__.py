"""Tasks of arrays with several runs: who wins, who is late, and whose outputs count."""
