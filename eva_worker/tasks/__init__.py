"""Task attempts on this instance: their records, devices and progress."""
