"""The operators of Python on quantized tensors, and the functions of torch that take them."""
from typing import Any, Dict, Optional, Tuple


class Operators:
    """a @ b, and torch.matmul(a, b) and torch.nn.functional.linear(x, w, bias), which torch.compile sees where @ is written."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy then leaves array @ tensor to __rmatmul__

    def __matmul__(self, other: Any) -> Any:
        from ._products import matmul

        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        from ._products import matmul

        return matmul(other, self)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None) -> Any:
        from ._torch_calls import torch_function

        return torch_function(function, args, kwargs or {})
