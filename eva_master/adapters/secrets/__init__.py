"""The store of secrets: sealed in the journal's database, under a key in the state directory."""
