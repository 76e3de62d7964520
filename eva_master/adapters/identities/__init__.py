"""Identities of AWS in place of stored tokens: what a caller proves, and what that lets them be."""
