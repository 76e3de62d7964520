"""The outputs of attempts, kept in the object store as the program has them."""
