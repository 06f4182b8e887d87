"""Problems: cases with their tensors filled, those too large to be looked at everywhere, and those to look at long."""
