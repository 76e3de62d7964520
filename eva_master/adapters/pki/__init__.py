"""The cluster's certificate authority and the certificates that it issues.

Whoever calls a master needs `names` alone, and not what certificates are made with.
"""
