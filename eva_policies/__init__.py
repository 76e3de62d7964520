"""Policies of papers and their successors, a package each.

All are written as plug-ins are: with the public toolkits of `eva_master.packing`, the values of
`eva_master.model` and the ports; an entry point of the group ``eva.policies`` names each.
"""
