"""Checkpoints of programs without the SDK: the files in ``$EVA_CHECKPOINT_DIR`` as they stand."""
