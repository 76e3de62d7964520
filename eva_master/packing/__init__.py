"""Packing tasks onto instances, for all policies: pure functions over one snapshot.

Module `problem` turns a snapshot into classes of identical tasks. `valuation` gives their worth,
`interference` their speeds together. `greedy` fills instances (Algorithm 1 of the Eva paper, and
backfill of instances that stay), `lp` solves the configuration LP with columns that its `pricing`
finds, and `local_search` improves a configuration step by step. `configuration` builds
configurations and matches them to live instances, and `reconfiguration` compares them with the
present one. `bins` is for policies that fill instances one by one. A policy's memory from round to
round is in its `planner_cache`.
"""
