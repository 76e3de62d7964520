"""Jobs with deadlines: how much time they may lose, and what is bought for them meanwhile."""
