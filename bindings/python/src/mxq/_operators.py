"""The operators of Python on quantized tensors, and the functions of mxq that they and methods call."""
from typing import Any, Callable, ClassVar, Dict, NoReturn, Optional, Tuple

from ._library import Error


class Functions:
    """The functions of mxq that methods of quantized tensors call. They take and make such tensors, so their files import the
    classes, and mxq/__init__.py attaches them here."""

    matmul: ClassVar[Callable[..., Any]]
    torch_function: ClassVar[Callable[..., Any]]
    dequantize: ClassVar[Callable[..., Any]]
    sqnr: ClassVar[Callable[..., float]]


class Operators:
    """a @ b, and torch.matmul(a, b) and torch.nn.functional.linear(x, w, bias), which torch.compile sees where @ is written."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy then leaves array @ tensor to __rmatmul__

    def __matmul__(self, other: Any) -> Any:
        return Functions.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return Functions.matmul(other, self)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None) -> Any:
        return Functions.torch_function(function, args, kwargs or {})

    def detach(self) -> NoReturn:
        """Refuses. torch calls it of a buffer or parameter, which a module takes this tensor for without looking at it."""
        raise Error("a QTensor is no buffer or parameter of a module, which calls its detach; hold it by mxq.torch.Weights(q)")

    def is_floating_point(self) -> NoReturn:
        """Refuses. torch calls it of a buffer that moves with its module."""
        raise Error("a QTensor is no buffer of a module, which calls its is_floating_point; hold it by mxq.torch.Weights(q)")
