"""``python -m eva_master.app.cli`` is ``eva``."""

from eva_master.app.cli import main

main(prog_name="eva")
