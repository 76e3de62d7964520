"""Pure packing algorithms, for every policy to use: which tasks share which instances.

`problem` prices tasks and sorts them into classes, `colocation` knows how they slow each other
down, `greedy` buys instances for them (Algorithm 1 of the Eva paper), `free` fills room that is
already paid for, `matching` finds the live instances that make the fewest tasks move, and
`configuration` puts these together. All amounts are integers, all ties are decided.
"""
