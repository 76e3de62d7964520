"""Which task runs where: configurations, and how live instances become part of them."""
