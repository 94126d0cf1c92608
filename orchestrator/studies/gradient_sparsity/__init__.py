"""The sparsity of gradients, by role."""
