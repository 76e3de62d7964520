"""Pure packing algorithms, for every policy to use: which tasks share which instances.

`problem` prices tasks and sorts them into classes, `colocation` knows how they slow each other
down, `greedy` buys instances for them (Algorithm 1 of the Eva paper), `free` fills room that is
already paid for, `matching` finds the live instances that spend the fewest dollars on moves, and
`configuration` puts these together.

`optimizer` improves on Algorithm 1: `generation` solves the configuration LP (`relaxation`) with
columns found by `knapsack`, `descent`, `crowds` and `fills`, and `rounding` makes whole instances
of it. All amounts outside the LP are integers, all ties are decided.
"""
