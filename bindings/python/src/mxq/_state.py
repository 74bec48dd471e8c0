"""State dicts in memory: what a trainer sends to an engine. The work is in tools/, whose modules need numpy."""

from typing import Any, Dict, Mapping, Optional, Sequence


def recipe(layout: str, format: str, *, scaling: Optional[str] = None, include: Sequence[str] = (), exclude: Sequence[str] = (),
           experts: str = "keep", share_global: bool = False) -> Any:
    """What quantize_state_dict does with which weights, in the words of mxq-quantize.

    layout: "compressed-tensors", "modelopt", "deepseek" or "gpt-oss". format, scaling: what the layout has for weights.
    include, exclude: patterns of the shell for names, instead of the usual ones.
    experts: "keep", "split" for a tensor of each expert of a stack, or "stack" for a stack of the tensors of all experts.
    share_global: one NVFP4 global scale for the tensors that engines join: q, k and v, gate and up, w1 and w3.
    """
    from .tools import plan

    return plan.recipe(layout, format, scaling, include, exclude, experts, share_global)


def quantize_state_dict(state: Mapping[str, Any], recipe: Any, *, out: Optional[Mapping[str, Any]] = None,
                        config: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """The weights of a state dict quantized under the names, dtypes and shapes of a layout, as mxq-quantize writes them.

    state: numpy arrays, or torch tensors on any device, by their names. Tensors that are no weights come back as they are.
    recipe: what mxq.recipe() gives.
    out: buffers by the names of the result, which are written and given back; all of them are checked before. It may have more.
    config: the content of config.json, for families whose names the usual patterns must know.
    """
    from .tools import state as states

    return states.quantize(state, recipe, out, config)


def dequantize_state_dict(state: Mapping[str, Any], dtype: Any = "bfloat16", *,
                          out: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
    """The inverse of quantize_state_dict: values of `dtype` under the names of the weights. Reads every layout that
    mxq-quantize inspect knows.

    out: buffers by the names of the result, as in quantize_state_dict.
    """
    from .tools import state as states

    return states.dequantize_state(state, dtype, out)
