"""How much tasks that share an instance slow each other down."""
