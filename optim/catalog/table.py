"""Every optimizer that this project ships, as data: what each is, its options with bounds, and its defaults.

A new entry has a row in more tables than this one; CONTRIBUTING.md lists them.

A baseline's defaults are from its own paper; where a paper has several values, the one for pretraining language models
is taken. Weight decay is the workload's 0.1 (AdaPM's paper, section 5.1) wherever an optimizer's learning rate is of
Adam's size; a comment says where it is not.
"""

import re
from dataclasses import replace
from functools import partial

from .records import Claim, Need, OptimizerEntry, Option


def _number(name: str, default: float, meaning: str, minimum: float = 0.0, maximum: float | None = None) -> Option:
    """Return a number in [minimum, maximum]."""
    return Option(name=name, kind="float", default=default, meaning=meaning, minimum=minimum, maximum=maximum)


def _positive_number(name: str, default: float, meaning: str, maximum: float | None = None) -> Option:
    """Return a number in (0, maximum]."""
    return replace(_number(name, default, meaning, maximum=maximum), exclusive_minimum=True)


def _rate(name: str, default: float, meaning: str) -> Option:
    """Return a decay rate in [0, 1)."""
    return replace(_number(name, default, meaning, maximum=1.0), exclusive_maximum=True)


def _count(name: str, default: int | None, meaning: str, minimum: int = 1, maximum: int = 10**9) -> Option:
    """Return a whole number; or null, where that is the default."""
    return Option(
        name=name,
        kind="int",
        default=default,
        meaning=meaning,
        minimum=minimum,
        maximum=maximum,
        nullable=default is None,
    )


def _seed(meaning: str) -> Option:
    return _count("seed", 0, meaning, minimum=0, maximum=2**63 - 1)


def _flag(name: str, default: bool, meaning: str) -> Option:
    return Option(name=name, kind="bool", default=default, meaning=meaning)


def _choice(name: str, default: str | None, meaning: str, *choices: str) -> Option:
    """Return an option with some words as values; or null, if that is the default."""
    nullable = default is None
    return Option(name=name, kind="choice", default=default, meaning=meaning, choices=choices, nullable=nullable)


# AdaPM's paper, section 5.1
BETA1 = _rate("beta1", 0.9, "decay rate of the momentum")
BETA2 = _rate("beta2", 0.95, "decay rate of the second moment")
EPS = _number("eps", 1e-8, "added to the root of the second moment")
WEIGHT_DECAY = _number("weight_decay", 0.1, "decoupled decay of matrices; vectors never decay")
_ADAM = (BETA1, BETA2, EPS, WEIGHT_DECAY)
# Decay is lr × weight_decay a step, and these rates are a hundred times Adam's.
_NO_DECAY = replace(WEIGHT_DECAY, default=0.0)
_PROJECTION_SEED = _seed("seed of the random projections")
_UNKNOWN = _choice(
    "unknown",
    "warn",
    "weights that the block plan cannot place: keep full Adam moments with or without a warning, or refuse them",
    "warn",
    "full",
    "error",
)
_STOCHASTIC_ROUNDING = _flag("bf16_stochastic_round", False, "round bfloat16 weights up or down by chance")

_TORCH = "BSD-3-Clause (PyTorch)"
_own_entry = partial(OptimizerEntry, licence="Apache-2.0")
_library_entry = partial(
    OptimizerEntry, licence="Apache-2.0 (pytorch_optimizer)", package="pytorch_optimizer", extra="baselines"
)
_torchao_entry = partial(OptimizerEntry, licence="BSD-3-Clause (torchao)", package="torchao", extra="low-bit")


def _projection_options(rank_ratio: float | None, scale: float, *more: Option) -> tuple[Option, ...]:
    """Return the options of Adam in a subspace."""
    rank = "rank of the projection over min(m, n)"
    return (
        *_ADAM,
        *(() if rank_ratio is None else (_positive_number("rank_ratio", rank_ratio, rank, maximum=1.0),)),
        _count("update_gap", 200, "steps between new projections"),
        _positive_number("scale", scale, "factor on projected updates"),
        *more,
    )


_ADAPM_OPTIONS = (  # numbers: the paper, section 5.1; the clip: algorithm 1, line 9
    *_ADAM,
    _positive_number("rank_ratio", 0.05, "rank of low-rank momentum over min(m, n)", maximum=1.0),
    _choice(
        "solver",
        "subspace",
        "how the factors of the momentum are found; svd is exact and slow",
        *("subspace", "svd"),
    ),
    _count("inner_iterations", None, "iterations of subspace a step; null for 1", maximum=100),
    _count("refresh_interval", 100, "steps between fresh starts of the factors; 0 for never", minimum=0),
    replace(
        _positive_number(
            "clip", 1.0, "bound on each element of the update of low-rank and momentum-free blocks; null for none"
        ),
        nullable=True,
    ),
    _flag("bias_correction", True, "make up for what the low rank drops (paper, algorithm 1, line 8)"),
    _flag("debias_moments", False, "divide the moments by 1 - b^t, as Adam does and algorithm 1 does not"),
    _positive_number("momentum_free_lr_scale", 0.75, "learning-rate factor of blocks without momentum", maximum=10.0),
    _choice(
        "state_dtype",
        None,
        "type of all state; null for the parameter's own, at least float32; int8: 8 bits per element with scales",
        *("float32", "bfloat16", "int8"),
    ),
    _UNKNOWN,
    _seed("seed of the factors' fresh starts, and of stochastic rounding"),
    _flag("master_weights", False, "keep a float32 copy of weights in bfloat16 or float16, and train that"),
    _STOCHASTIC_ROUNDING,
    replace(
        _choice(
            "matmul_precision",
            None,
            "products with the gradient, where the device can: as float32, in TF32 (high), or on a CPU in bfloat16 "
            "(medium); null: what torch is set to, highest here",
            *("highest", "high", "medium"),
        ),
        depends_on_device=True,
    ),
)

_ADAPM_PAPER = "Zhang, Liu, Fang: AdaPM, a Partial Momentum Algorithm for LLM Training, arXiv 2510.09103"

# Grid centres are the field's value for GPT-2 124M: 6e-4 (GPT-3 paper, table 2.1; nanoGPT's default). The paper gives
# AdaPM AdamW's own rate. Small models want more: a comparison states its own rates.
CATALOG: tuple[OptimizerEntry, ...] = (
    OptimizerEntry(
        name="adamw",
        title="AdamW",
        factory=".catalog.factories:adamw",
        learning_rate=6e-4,
        options=_ADAM,
        summary="Adam with decoupled weight decay; torch's own, fused. The baseline.",
        paper="Loshchilov, Hutter: Decoupled Weight Decay Regularization, arXiv 1711.05101",
        licence=_TORCH,
        claims=frozenset({Claim.STEADY, Claim.SCALE_FREE, Claim.FRESH_START}),
        elementwise=True,
    ),
    _own_entry(
        name="adapm",
        title="AdaPM",
        factory=".catalog.factories:adapm",
        learning_rate=6e-4,
        options=_ADAPM_OPTIONS,
        summary="Adam with no, low-rank or full momentum, block by block; about half of AdamW's state.",
        paper=_ADAPM_PAPER,
        claims=frozenset({Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _own_entry(
        name="adapm-mini",
        title="AdaPM-mini",
        factory=".catalog.factories:adapm_mini",
        learning_rate=6e-4,
        options=_ADAPM_OPTIONS,
        summary="AdaPM with Adam-mini's second moment; about a twentieth of AdamW's state.",
        paper=_ADAPM_PAPER,
        claims=frozenset({Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _own_entry(
        name="adam-mini",
        title="Adam-mini",
        factory=".catalog.factories:adam_mini",
        learning_rate=6e-4,  # AdamW's, as its paper says
        options=(*_ADAM, _UNKNOWN),
        summary="AdamW with one second moment a head, neuron or token; half of AdamW's state.",
        paper="Zhang et al.: Adam-mini, Use Fewer Learning Rates To Gain More, arXiv 2406.16793",
        claims=frozenset({Claim.STEADY, Claim.SCALE_FREE, Claim.FRESH_START, Claim.NEURONS_APART}),
    ),
    _torchao_entry(
        name="adamw-8bit",
        title="AdamW 8-bit",
        factory=".baselines.low_bit:adamw_8bit",
        learning_rate=6e-4,  # AdamW's
        options=(*_ADAM, _STOCHASTIC_ROUNDING),
        summary="AdamW with moments of 8 bits, by blocks of 256 values; needs the extra low-bit (torchao).",
        paper="Dettmers et al.: 8-bit Optimizers via Block-wise Quantization, arXiv 2110.02861",
        claims=frozenset({Claim.STEADY, Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _torchao_entry(
        name="adamw-4bit",
        title="AdamW 4-bit",
        factory=".baselines.low_bit:adamw_4bit",
        learning_rate=6e-4,  # AdamW's
        options=(*_ADAM, _STOCHASTIC_ROUNDING),
        summary="AdamW with moments of 4 bits, by blocks of 128 values; needs the extra low-bit (torchao).",
        paper="Li et al.: Memory Efficient Optimizers with 4-bit States, arXiv 2309.01507",
        claims=frozenset({Claim.STEADY, Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _library_entry(
        name="adafactor",
        title="Adafactor",
        factory=".catalog.factories:adafactor",
        learning_rate=1e-2,  # AdaPM's paper, section 5.1
        options=(
            BETA1,  # the others are AdaPM's paper's too
            _number("decay_rate", -0.8, "c of b2 = 1 - t^c", minimum=-1.0, maximum=0.0),
            _positive_number("clip_threshold", 1.0, "bound on the root mean square of the update"),
            # AdaPM's paper leaves it to the implementation (None); this is Adafactor's own.
            _number("eps1", 1e-30, "added to squared gradients"),
            _number("eps2", 1e-3, "least size of a parameter, to which steps are relative"),
            WEIGHT_DECAY,
        ),
        summary="Second moments as row and column means, steps relative to the weights, with momentum.",
        paper="Shazeer, Stern: Adafactor, Adaptive Learning Rates with Sublinear Memory Cost, arXiv 1804.04235",
        claims=frozenset({Claim.SCALE_FREE}),
    ),
    _library_entry(
        name="came",
        title="CAME",
        factory=".catalog.factories:came",
        learning_rate=2e-4,  # the README of yangluo7/CAME, as the betas
        options=(
            BETA1,
            _rate("beta2", 0.999, "decay rate of the second moment"),
            _rate("beta3", 0.9999, "decay rate of the confidence"),
            _positive_number("clip_threshold", 1.0, "bound on the root mean square of the update"),
            WEIGHT_DECAY,
        ),
        summary="Adafactor with momentum, damped where momentum and update disagree.",
        paper="Luo et al.: CAME, Confidence-guided Adaptive Memory Efficient Optimization, arXiv 2307.02047",
        claims=frozenset({Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _library_entry(
        name="sm3",
        title="SM3",
        factory=".catalog.factories:sm3",
        learning_rate=0.1,  # the library's; the paper tunes it task by task
        options=(_rate("momentum", 0.9, "decay rate of the momentum"), _NO_DECAY),  # the paper's experiments
        summary="AdaGrad with one accumulator a row and a column, and momentum.",
        paper="Anil et al.: Memory-Efficient Adaptive Optimization, arXiv 1901.11150",
        claims=frozenset({Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _own_entry(
        name="galore",
        title="GaLore",
        factory=".catalog.factories:galore",
        learning_rate=1e-2,  # jiaweizzhao/GaLore, scripts/benchmark_c4/llama_*.sh (rank a quarter there)
        options=_projection_options(0.5, 0.25),  # AdaPM's paper, section 5.1
        summary="Adam in the gradient's leading singular subspace on attention and MLP; AdamW elsewhere.",
        paper="Zhao et al.: GaLore, Memory-Efficient LLM Training by Gradient Low-Rank Projection, arXiv 2403.03507",
        claims=frozenset({Claim.STEADY, Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _own_entry(
        name="golore",
        title="GoLore",
        factory=".catalog.factories:golore",
        learning_rate=1e-2,  # GaLore's; pkumelon/Golore, script/Go_pt.sh has 1e-3
        options=_projection_options(0.5, 0.25, _PROJECTION_SEED),  # GaLore's
        summary="GaLore with random subspaces, into which the momentum is turned.",
        paper="He et al.: Subspace Optimization for LLMs with Convergence Guarantees, arXiv 2410.11289",
        claims=frozenset({Claim.STEADY, Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _own_entry(
        name="fira",
        title="Fira",
        factory=".catalog.factories:fira",
        learning_rate=1e-2,  # xichen-fy/Fira, pre_training_c4/scripts/llama_350m.sh, as alpha and the gap
        options=_projection_options(0.5, 0.25),
        summary="GaLore, and the rest of the gradient at the size that Adam gives the projected part.",
        paper="Chen et al.: Fira, Full-rank Training of LLMs Under Low-rank Constraint, arXiv 2410.01623",
        claims=frozenset({Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _own_entry(
        name="apollo",
        title="APOLLO",
        factory=".catalog.factories:apollo",
        learning_rate=1e-2,  # the authors' script for Llama 350M: rank 256 of 1024, scale 1, gap 200
        options=_projection_options(0.25, 1.0, _PROJECTION_SEED),
        summary="The gradient with Adam's scale for each channel, found in a random sketch.",
        paper="Zhu et al.: APOLLO, SGD-like Memory, AdamW-level Performance, arXiv 2412.05270",
        claims=frozenset({Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _own_entry(
        name="apollo-mini",
        title="APOLLO-mini",
        factory=".catalog.factories:apollo_mini",
        learning_rate=1e-2,  # APOLLO's
        options=_projection_options(
            None, 128.0**0.5, _PROJECTION_SEED
        ),  # the authors' scripts say 128, their code takes the root
        summary="The gradient with one Adam scale for each matrix, found in a random sketch of rank 1.",
        paper="Zhu et al.: APOLLO, SGD-like Memory, AdamW-level Performance, arXiv 2412.05270",
        claims=frozenset({Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _own_entry(
        name="scale",
        title="SCALE",
        factory=".catalog.factories:scale",
        learning_rate=1e-3,  # the authors' README, 350m_scale.sh, as the momentum
        options=(_rate("momentum", 0.9, "decay rate of the last layer's momentum"), *_ADAM),
        summary="Gradients normalised neuron by neuron, momentum in the last layer alone; AdamW for vectors.",
        paper="Glentis et al.: A Minimalist Optimizer Design for LLM Pretraining, arXiv 2506.16659",
        claims=frozenset({Claim.STEADY, Claim.SCALE_FREE, Claim.FRESH_START, Claim.NEURONS_APART}),
    ),
    _own_entry(
        name="muon",
        title="Muon",
        factory=".catalog.factories:muon",
        # With Moonshot's adjustment one rate, AdamW's, serves both parts (arXiv 2502.16982).
        learning_rate=6e-4,
        options=(
            _rate("momentum", 0.95, "decay rate of the matrices' momentum"),
            _flag("nesterov", True, "Nesterov's momentum"),
            _count("newton_schulz_steps", 5, "iterations of the orthogonalisation", maximum=99),
            _choice(
                "adjust_lr",
                "match_rms_adamw",
                "size of a matrix's update: AdamW's, or Jordan's own, which wants rates of 0.02",
                *("match_rms_adamw", "original"),
            ),
            *_ADAM,
        ),
        summary="Orthogonalised momentum on attention and MLP matrices; AdamW elsewhere.",
        paper="Jordan et al.: Muon, kellerjordan.github.io/posts/muon; Liu et al., arXiv 2502.16982",
        claims=frozenset({Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _own_entry(
        name="normuon",
        title="NorMuon",
        factory=".catalog.factories:normuon",
        learning_rate=6e-4,  # Muon's, whose steps have the same size
        options=(
            _rate("momentum", 0.95, "decay rate of the matrices' momentum"),
            _flag("nesterov", True, "Nesterov's momentum"),
            _count("newton_schulz_steps", 5, "iterations of the orthogonalisation", maximum=99),
            *_ADAM,  # beta2 is of the neurons' second moments, too
        ),
        summary="Muon whose neurons take steps of one size.",
        paper="Li et al.: NorMuon, Making Muon more efficient and scalable, arXiv 2510.05491",
        claims=frozenset({Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _library_entry(
        name="soap",
        title="SOAP",
        factory=".catalog.factories:soap",
        learning_rate=3e-3,  # the README of nikhilvyas/SOAP, as betas and frequency
        options=(
            _rate("beta1", 0.95, "decay rate of the momentum"),
            BETA2,
            EPS,
            WEIGHT_DECAY,
            _count("precondition_frequency", 10, "steps between new eigenbases"),
            _count("max_precondition_dim", 10_000, "sides longer than this are not rotated"),  # its soap.py
        ),
        summary="Adam in the eigenbasis of Shampoo's preconditioners; its first step only looks.",
        paper="Vyas et al.: SOAP, Improving and Stabilizing Shampoo using Adam, arXiv 2409.11321",
    ),
    _own_entry(
        name="shampoo",
        title="Shampoo",
        factory=".catalog.factories:shampoo",
        learning_rate=6e-4,  # AdamW's: its steps have Adam's size
        options=(
            *_ADAM,
            # SOAP's, so that the two compare.
            _count("precondition_frequency", 10, "steps between new inverse roots"),
            _count("max_precondition_dim", 10_000, "sides longer than this are not preconditioned"),
        ),
        summary="Momentum preconditioned from both sides by inverse fourth roots, with steps of Adam's size.",
        paper="Gupta et al., arXiv 1802.09568; Anil et al.: Scalable Second Order Optimization, arXiv 2002.09018",
        claims=frozenset({Claim.STEADY, Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _library_entry(
        name="lion",
        title="Lion",
        factory=".catalog.factories:lion",
        # The paper advises a rate 3 to 10 times smaller than AdamW's, a decay as many times larger. Here 6 times.
        learning_rate=1e-4,
        options=(
            BETA1,
            _rate("beta2", 0.99, "decay rate of the momentum that is kept"),  # paper, algorithm 2
            replace(WEIGHT_DECAY, default=0.6),
        ),
        summary="The sign of a momentum; half of AdamW's state.",
        paper="Chen et al.: Symbolic Discovery of Optimization Algorithms, arXiv 2302.06675",
        claims=frozenset({Claim.STEADY, Claim.SCALE_FREE, Claim.FRESH_START}),
        elementwise=True,
    ),
    _library_entry(
        name="signsgd",
        title="Signum",
        factory=".catalog.factories:signsgd",
        learning_rate=1e-4,  # Lion's, as the decay: its steps are signs, too
        options=(
            _rate("momentum", 0.9, "decay rate of the momentum; 0 for signSGD"),
            replace(WEIGHT_DECAY, default=0.6),
        ),
        summary="The sign of the momentum; half of AdamW's state.",
        paper="Bernstein et al.: signSGD, Compressed Optimisation for Non-Convex Problems, arXiv 1802.04434",
        claims=frozenset({Claim.STEADY, Claim.SCALE_FREE, Claim.FRESH_START}),
        elementwise=True,
    ),
    _own_entry(
        name="ademamix",
        title="AdEMAMix",
        factory=".catalog.factories:ademamix",
        learning_rate=6e-4,  # AdamW's
        options=(  # apple/ml-ademamix, pytorch/ademamix.py
            BETA1,
            _rate("beta2", 0.999, "decay rate of the second moment"),
            _rate("beta3", 0.9999, "decay rate of the slow momentum"),
            EPS,
            WEIGHT_DECAY,
            _number("alpha", 2.0, "weight of the slow momentum"),
            _count("slow_warmup", None, "steps over which alpha and beta3 rise"),
        ),
        summary="AdamW with a second momentum that remembers ten thousand steps.",
        paper="Pagliardini, Ablin, Grangier: The AdEMAMix Optimizer, Better, Faster, Older, arXiv 2409.03137",
        claims=frozenset({Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _own_entry(
        name="adopt",
        title="ADOPT",
        factory=".catalog.factories:adopt",
        learning_rate=6e-4,  # AdamW's, which it is to replace (the authors' README)
        options=(
            BETA1,
            _rate("beta2", 0.9999, "decay rate of the second moment"),
            _number("eps", 1e-6, "least root of the second moment"),
            WEIGHT_DECAY,
        ),
        summary="Adam that divides by the second moment of the step before; its first step only looks.",
        paper="Taniguchi et al.: ADOPT, Modified Adam Can Converge with Any b2, arXiv 2411.02853",
        claims=frozenset({Claim.SCALE_FREE, Claim.FRESH_START}),
    ),
    _own_entry(
        name="mars",
        title="MARS",
        factory=".catalog.factories:mars",
        learning_rate=6e-3,  # AGI-Arena/MARS, config/train_gpt2_small_mars.py, as betas and gamma
        options=(
            _rate("beta1", 0.95, "decay rate of the momentum"),
            _rate("beta2", 0.99, "decay rate of the second moment"),
            _number("gamma", 0.025, "strength of the variance reduction"),
            EPS,
            WEIGHT_DECAY,
        ),
        summary="AdamW on gradients corrected by the change since the last one (MARS-AdamW, approximate).",
        paper="Yuan et al.: MARS, Unleashing the Power of Variance Reduction, arXiv 2411.10438",
        claims=frozenset({Claim.FRESH_START}),
    ),
    _library_entry(
        name="schedule-free-adamw",
        title="Schedule-Free AdamW",
        factory=".catalog.factories:schedule_free_adamw",
        learning_rate=2.5e-3,  # the default of facebookresearch/schedule_free, as the betas
        options=(
            replace(
                _positive_number("beta1", 0.9, "interpolation towards the average", maximum=1.0), exclusive_maximum=True
            ),
            _rate("beta2", 0.999, "decay rate of the second moment"),
            EPS,
            WEIGHT_DECAY,
        ),
        summary="AdamW that averages its iterates instead of following a schedule; its rate is constant.",
        paper="Defazio et al.: The Road Less Scheduled, arXiv 2405.15682",
        claims=frozenset({Claim.SCALE_FREE}),
        elementwise=True,
        needs=frozenset({Need.MODES, Need.CONSTANT_RATE}),
    ),
    OptimizerEntry(
        name="sgd",
        title="SGD",
        factory=".catalog.factories:sgd",
        learning_rate=0.1,  # the field's usual start; no paper has one for language models
        options=(_NO_DECAY,),
        summary="Plain stochastic gradient descent; no state.",
        paper="Robbins, Monro: A Stochastic Approximation Method, 1951",
        licence=_TORCH,
        claims=frozenset({Claim.STEADY, Claim.FRESH_START}),
        elementwise=True,
    ),
    OptimizerEntry(
        name="nesterov",
        title="Nesterov SGD",
        factory=".catalog.factories:nesterov",
        learning_rate=0.1,  # SGD's
        options=(_rate("momentum", 0.9, "decay rate of the momentum"), _NO_DECAY),
        summary="SGD with Nesterov's momentum.",
        paper="Sutskever et al.: On the importance of initialization and momentum in deep learning, 2013",
        licence=_TORCH,
        claims=frozenset({Claim.FRESH_START}),
        elementwise=True,
    ),
    _own_entry(
        name="asgd",
        title="Accelerated SGD",
        factory=".catalog.factories:asgd",
        learning_rate=0.1,  # SGD's
        options=(
            # The paper names no value; ours is the momentum that everybody uses.
            _positive_number("beta", 0.1, "1 - momentum", maximum=1.0),
            replace(
                _number(
                    "spectral_decay",
                    2.0,  # the paper asks for more than 1 and names no value
                    "a, where the Hessian's eigenvalues fall as i^-a: the long step is lr beta^(1/a - 1)",
                    minimum=1.0,
                ),
                exclusive_minimum=True,
            ),
            _NO_DECAY,
        ),
        summary="The accelerated SGD of AdaPM's theory: a short and a long step from one gradient.",
        paper="Jain et al.: Accelerating SGD for Least Squares Regression, arXiv 1704.08227",
        claims=frozenset({Claim.FRESH_START}),
        needs=frozenset({Need.MODES}),
    ),
)
"""The optimizers of this project."""

_CLASS = re.compile(r"pytorch_optimizer\.([A-Za-z]\w*)", re.ASCII)


def unchecked(name: str) -> OptimizerEntry | None:
    """Return the entry of a class of `pytorch_optimizer` by its name, `pytorch_optimizer.Prodigy`; None for any other
    name.

    Whether there is such a class is known where it is built: nothing here imports the library.
    """
    if (match := _CLASS.fullmatch(name)) is None:
        return None
    return _library_entry(
        name=name,
        title=f"{match[1]} (unchecked)",
        factory=f".baselines.unchecked:{match[1]}",
        learning_rate=1e-3,  # the library's usual default
        options=(WEIGHT_DECAY,),
        summary="Not checked here; all defaults but the decay's are the library's, as options are.",
        paper="Kim: pytorch_optimizer, github.com/kozistr/pytorch_optimizer",
        has_more_options=True,
    )
