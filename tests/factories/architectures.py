"""A small mixture of experts, for tests that train one."""

from torch import nn

from tests.plans.architectures import causal


def mixtral() -> nn.Module:
    """Mixtral with two experts, its head untied."""
    return causal("mixtral", num_local_experts=2, tie_word_embeddings=False)()
