"""Forks: copies of one training job that run at once and whose weights are averaged.

Nothing of this is imported unless a program asks for it; numpy and torch only by the fork that
averages, and only if its files need them.
"""
