"""The clouds that instances come from, a package each."""
