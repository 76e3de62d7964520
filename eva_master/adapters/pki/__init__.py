"""The cluster's certificate authority and the certificates that it issues.

Clients of a master import `names` alone, not the libraries that make certificates.
"""
