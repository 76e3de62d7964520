"""What follows the records and is made of them again at a start."""
