"""Which instances may be bought now: what is sold out, what fails to boot, spot."""
