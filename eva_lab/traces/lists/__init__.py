"""Job lists of other systems: SWF, Philly, Helios, Alibaba's of 2020, and plain columns."""
