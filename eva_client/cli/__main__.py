"""``python -m eva_client.cli`` is ``eva``."""

from eva_client.cli import main

main(prog_name="eva")
