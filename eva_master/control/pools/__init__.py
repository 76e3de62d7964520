"""What pools and lines come to in a turn: room is filled, instances are drained."""
