"""The lab: traces of jobs, the simulator, experiments and their reports, for researchers."""
