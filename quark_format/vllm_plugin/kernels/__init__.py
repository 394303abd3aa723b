"""Reference kernels in plain torch, for any device, with the arithmetic of amd-quark 0.13."""
