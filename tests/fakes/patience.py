"""How long tests wait for what is to come."""

DEADLINE_S = 480.0
"""For whatever is waited for. A machine that needs longer is taken for stuck.

Nothing takes nearly so long on an idle machine; but a dozen clusters may share two cores.
"""
