"""A device that is not there: tensors say that they are on it, refuse to meet those of the CPU as a GPU's do, and are
computed by the CPU all the same. `with FakeDevice() as device:` counts what was done where.

Its name is `meta`, the only one besides the CPU's whose gradients torch computes without a driver.
"""

import functools
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, ClassVar, Self
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map_only

DEVICE = torch.device("meta")
OPTIMISER = sys.modules["torch.optim.optimizer"]
MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}
# what torch lets be of the CPU beside a tensor of a GPU: positions
POSITIONS = {torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default, torch.ops.aten.index_put.default}
# and lengths of sequences, which it wants there
LENGTHS = {
    torch.ops.aten._pack_padded_sequence.default,
    torch.ops.aten._pack_padded_sequence_backward.default,
    torch.ops.aten._pad_packed_sequence.default,
}


class There(Tensor):
    """On the device; `here` is what it holds."""

    here: Tensor

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, here: Tensor) -> "There":
        made: There = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            here.shape,
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=DEVICE,
            requires_grad=here.requires_grad,
        )
        made.here = here
        return made

    def tolist(self) -> Any:
        return self.here.tolist()

    # Of lists and arrays torch would make positions on a device of that name that holds nothing.
    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(positions(place))

    def __setitem__(self, place: Any, value: Any) -> None:
        super().__setitem__(positions(place), value)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} on a tensor of the device, outside of FakeDevice")


class RandomNumbers(torch.Generator):
    """Torch hands on what lies below, not this object: which device each was made for is known by its address."""

    made: ClassVar[dict[int, "RandomNumbers"]] = {}  # as long as they are held, nothing else has their address

    def __new__(cls, device: Any = "cpu") -> "RandomNumbers":
        new = super().__new__(cls, "cpu")
        if torch.device(device).type == DEVICE.type:
            cls.made[new._cdata] = new
        return new

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return DEVICE if self._cdata in self.made else torch.device("cpu")


def positions(place: Any) -> Any:
    if isinstance(place, tuple):
        return tuple(positions(each) for each in place)
    if not isinstance(place, list | np.ndarray):
        return place
    made = torch.as_tensor(place)
    return made if made.dtype == torch.bool else made.long()


def moved(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def made(*given: Any, device: Any = None, **more: Any) -> Tensor:
        tensor = make(*given, **more)
        return tensor if device is None else tensor.to(device)

    return made


class FakeDevice(TorchDispatchMode):
    """`calls` by device; `products` those that a network is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.products: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._patches = ExitStack()
        self._patches.enter_context(mock.patch.object(torch, "Generator", RandomNumbers))
        for name in ("tensor", "as_tensor"):  # they move what they make where nobody sees it
            self._patches.enter_context(mock.patch.object(torch, name, moved(getattr(torch, name))))
        known = [*torch.utils._foreach_utils._get_fused_kernels_supported_devices(), DEVICE.type]
        fused = "_get_fused_kernels_supported_devices"
        self._patches.enter_context(mock.patch.object(OPTIMISER, fused, return_value=known))
        super().__enter__()
        return self

    def __exit__(self, *given: Any) -> None:
        super().__exit__(*given)
        self._patches.close()
        RandomNumbers.made.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
        there = [each for each in tensors if isinstance(each, There)]
        assert len(there) == sum(each.is_meta for each in tensors), f"{func}: a tensor that holds nothing"
        asked = kwargs.get("device")
        if asked is not None:  # moved, or made from nothing
            to_there = torch.device(asked).type == DEVICE.type
        elif func is torch.ops.aten.copy_.default:
            to_there = isinstance(args[0], There)
        else:
            to_there = bool(there)
        if there and func not in MOVES:
            self._refuse_strangers(func, args, tensors)
        self._check_generator(func, kwargs, to_there)
        if asked is not None:
            kwargs["device"] = torch.device("cpu")
        where = "there" if to_there or there else "here"
        self.calls[where] += 1
        if "mm" in func.__name__ or "embedding_bag" in func.__name__:
            self.products[where] += 1
        unwrapped = functools.partial(tree_map_only, There, lambda each: each.here)
        out = func(*unwrapped(args), **unwrapped(kwargs))
        if not to_there:
            return out
        if func in LENGTHS and isinstance(out, tuple):
            return There(out[0]), *out[1:]
        out = tree_map_only(Tensor, There, out)
        if func in MOVES and func is not torch.ops.aten.copy_.default:
            return out
        return return_and_correct_aliasing(func, args, kwargs, out) if there else out

    def _refuse_strangers(self, func: Any, args: Any, tensors: list[Tensor]) -> None:
        if func in POSITIONS and isinstance(args[0], There):
            tensors = [args[0], *args[2:3]]
        elif func in LENGTHS:
            tensors = [args[0]]
        strangers = [each for each in tensors if not isinstance(each, There) and each.dim() > 0]
        if strangers:
            raise RuntimeError(f"{func}: a tensor of shape {tuple(strangers[0].shape)} is on the CPU, others are not")

    def _check_generator(self, func: Any, kwargs: dict[str, Any], to_there: bool) -> None:
        generator = kwargs.get("generator")
        if generator is not None and (generator._cdata in RandomNumbers.made) != to_there:
            raise RuntimeError(f"{func}: random numbers of another device than the tensor's")
