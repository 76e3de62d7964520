"""The read side: immutable models of the state, for all who only look."""
