"""`eva demo`: a private cluster on this machine packs jobs, moves them and shows the bill.

The instances are emulated; the scheduler, the workers and the jobs are real. Everything that is
shown comes from the master's API and from what the jobs print.
"""
