"""The command mxq-quantize: quantizes checkpoints, says what is in them, and compares them. Needs ml_dtypes and rich."""
