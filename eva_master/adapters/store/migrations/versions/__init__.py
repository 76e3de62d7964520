"""One module per revision of the schema; written by hand, never edited once released."""
