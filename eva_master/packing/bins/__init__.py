"""What policies share that fill instances one by one: open instances, groups, plans."""
