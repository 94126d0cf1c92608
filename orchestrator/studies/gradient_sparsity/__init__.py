"""How sparse gradients are, by role."""
