"""Generated answers: greedy ones are argmaxes, sampled ones follow the model and depend on nothing but their seed."""

import math

import pytest
import torch
from transformers.modeling_utils import PreTrainedModel

from worker.models import build_model
from worker.tasks.generation import GumbelNoise, generate

END = 0


@pytest.fixture(scope="module", params=["gpt2-tiny", "llama-tiny"])
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    built = build_model(request.param, 3)
    torch.nn.Module.eval(built)
    return built


PROMPTS = torch.tensor([[0, 0, 72, 73], [0, 70, 71, 72], [65, 66, 67, 68]])
MASK = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1]])


@torch.no_grad()
def test_a_greedy_answer_is_the_argmax_of_its_prompt_alone(model: PreTrainedModel) -> None:
    """Token by token without padding, cache or batch."""
    answers = generate(model, PROMPTS, MASK, most_tokens=5, end_of_text=END)

    for row in range(3):
        sequence = PROMPTS[row][MASK[row].bool()].tolist()
        for position in range(5):
            if not answers.answer_mask[row, position]:
                break
            sequence.append(int(model(torch.tensor([sequence])).logits[0, -1].argmax()))
        length = int(answers.lengths()[row])
        assert answers.tokens[row, 4 : 4 + length].tolist() == sequence[int(MASK[row].sum()) :]
    assert answers.tokens.shape == (3, 9)


def test_a_sampled_answer_depends_on_its_seed_and_not_on_its_neighbours(model: PreTrainedModel) -> None:
    """Alone, in another order, or again: the same. The global random state is left alone."""
    random_state = torch.get_rng_state()
    batch = generate(model, PROMPTS, MASK, most_tokens=5, end_of_text=END, seeds=[1, 2, 3])
    single_answer = generate(model, PROMPTS[1:2], MASK[1:2], most_tokens=5, end_of_text=END, seeds=[2])
    reseeded_batch = generate(model, PROMPTS, MASK, most_tokens=5, end_of_text=END, seeds=[4, 5, 6])

    assert torch.equal(batch.tokens[1:2], single_answer.tokens)
    assert not torch.equal(batch.tokens, reseeded_batch.tokens)
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_sampling_follows_the_models_probabilities(temperature: float) -> None:
    """4,000 first tokens over a vocabulary of five, each with a seed of its own."""
    logits = torch.tensor([0.0, 1.0, -1.0, 0.5, -3.0])
    noise = GumbelNoise(list(range(4_000)), temperature, torch.device("cpu"))
    drawn = noise(torch.zeros(4_000, 1, dtype=torch.int64), logits.expand(4_000, -1)).argmax(dim=1)
    shares = torch.bincount(drawn, minlength=5) / 4_000
    assert torch.allclose(shares, (logits / temperature).softmax(0), atol=0.03)


def test_an_answer_ends_with_its_first_end_and_padding_is_no_part_of_it() -> None:
    """A model that says 5, 5, end, and so on for ever."""
    built = build_model("gpt2-tiny", 0)

    def scripted(step: int) -> int:
        return END if step % 3 == 2 else 5

    class Script(torch.nn.Module):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(*hidden.shape[:2], 256)
            logits[..., scripted(self.step)] = 9.0
            self.step += 1
            return logits

        step = 0

    built.lm_head = Script()
    answers = generate(built, PROMPTS[2:3], MASK[2:3], most_tokens=6, end_of_text=END)
    assert answers.tokens[0, 4:].tolist() == [5, 5, END, END, END, END]
    assert answers.answer_mask[0].tolist() == [True, True, True, False, False, False]
    assert answers.lengths().tolist() == [3]
    assert answers.positions()[0].tolist() == [0, 1, 2, 3, 4, 5, 6, 6, 6, 6]


@torch.no_grad()
def test_the_first_token_follows_the_policy_its_end_included() -> None:
    """A model that ends at once half of the time: sampled answers are those of the very policy that is trained."""
    built = build_model("gpt2-tiny", 0)
    logits = torch.zeros(256)
    logits[END] = math.log(255)  # as probable as the other 255 together

    class Undecided(torch.nn.Module):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return logits.expand(*hidden.shape[:2], -1)

    built.lm_head = Undecided()
    prompts = PROMPTS[2:3].expand(400, -1)
    sampled = generate(built, prompts, torch.ones_like(prompts), most_tokens=3, end_of_text=END, seeds=list(range(400)))
    assert 150 < int((sampled.lengths() == 1).sum()) < 250
    greedy = generate(built, prompts[:2], torch.ones_like(prompts[:2]), most_tokens=3, end_of_text=END)
    assert greedy.tokens[:, 4:].tolist() == [[END] * 3] * 2
    assert greedy.answer_mask.tolist() == [[True, False, False]] * 2
