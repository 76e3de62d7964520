"""The local cloud: instances emulated by processes of this machine.

Nothing is imported here: `host` starts once per instance and must start fast.
"""
