"""Which weights are quantized where nobody says otherwise, and which modules of which families stay as they are."""

from fnmatch import fnmatchcase
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

MATRICES = ("*.weight",)  # takes matrices alone: convolutions have such names, too
STACKS = ("*.experts.gate_up_proj", "*.experts.down_proj")


class Kept(NamedTuple):
    """Tensors that stay as they are. pattern: of the shell, for their names.

    model_types: the families that it is for, as config.json names them; all where it is empty.
    """

    pattern: str
    what: str
    model_types: Tuple[str, ...] = ()


_GPT2 = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer", "clvp")
_INPUTS_FIRST = "matrix with inputs as rows"
KEPT: List[Kept] = [
    Kept("*embed*", "embedding"),
    Kept("*emb.weight", "embedding of RWKV"),
    Kept("*wte*", "embedding of tokens, GPT-2"),
    Kept("*wpe*", "embedding of positions, GPT-2"),
    Kept("shared.weight", "embedding of T5 and BART"),
    Kept("model.shared.weight", "embedding of BART"),
    Kept("*relative_attention_bias*", "embedding of positions, T5"),
    Kept("*lm_head*", "head"),
    Kept("*head.weight", "head of DeepSeek's files, RWKV, ViT"),
    Kept("output.weight", "head of Llama's own files, InternLM2"),
    Kept("*.output.weight", "the same in a multimodal model"),
    Kept("*output_layer.weight", "head of ChatGLM"),
    Kept("proj_out.weight", "head of Whisper, last matrix of diffusion transformers"),
    Kept("cls.*", "head of BERT"),
    Kept("*classifier*", "head of a classifier"),
    Kept("*score.weight", "head of a classifier"),
    Kept("*qa_outputs.weight", "head for questions and answers"),
    Kept("*norm*", "norm"),
    Kept("*router*", "router"),
    Kept("*.gate.weight", "router"),
    Kept("*.gate.wg.weight", "router of Hunyuan"),
    Kept("*shared_expert_gate*", "gate of a shared expert, Qwen"),
    Kept("*eh_proj*", "matrix that joins embedding and state, MTP of DeepSeek and GLM"),
    Kept("*.indexer.weights_proj.weight", "weights of DeepSeek's indexer"),
    Kept("*conv*", "convolution"),
    Kept("*.c_attn.weight", _INPUTS_FIRST, _GPT2),
    Kept("*.q_attn.weight", _INPUTS_FIRST, _GPT2),
    Kept("*.c_fc.weight", _INPUTS_FIRST, _GPT2),
    Kept("*.c_proj.weight", _INPUTS_FIRST, _GPT2),
]


def first_match(patterns: Sequence[str], name: str) -> Optional[str]:
    return next((pattern for pattern in patterns if fnmatchcase(name, pattern)), None)


def included(patterns: Sequence[str], name: str, rank: int) -> bool:
    """True for a matrix whose name matches, and for a stack that a pattern of its own names."""
    found = first_match([pattern for pattern in patterns if rank < 3 or pattern not in MATRICES], name)
    return found is not None


def _types(config: Dict[str, Any]) -> List[Any]:
    """The families of a config.json, whose parts may be of other ones."""
    parts = [part for part in config.values() if isinstance(part, dict)]
    return [part.get("model_type") for part in (config, *parts)]


def kept(name: str, config: Dict[str, Any]) -> Optional[Kept]:
    """The row of the table that keeps a tensor of a checkpoint with this config.json."""
    types = _types(config)
    rows = (row for row in KEPT if not row.model_types or any(one in row.model_types for one in types))
    return next((row for row in rows if fnmatchcase(name, row.pattern)), None)
