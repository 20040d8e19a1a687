"""Read the weights of ONNX graphs under the names that they had before the export.

PyTorch's exporter stores the weight of a linear layer transposed, under a name such as `onnx::MatMul_268`.
The node that uses it is named after the module, such as `/encoder/layer.0/attention/self/query/MatMul`.
attnlaw offers it as `encoder.layer.0.attention.self.query.weight`, with shape (out, in) again.
"""

from __future__ import annotations

from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnlaw.checkpoints.tensors import Tensors, UnchangedFile
from attnlaw.core.errors import InputError, as_input_error
from attnlaw.core.files import distinct_keys, links_outside

MOST = 2**31  # bytes; protobuf cannot store a larger graph
MOST_DIGITS = 19  # the largest number of digits in an offset
MOST_STEPS = 4  # copies and transposes between a product and its weight


class OnnxFile(Tensors):
    """The weights of one `.onnx` file, including those in files next to it."""

    def __init__(self, path: Path) -> None:
        self.source = str(path)
        self.metadata = {}
        self._onnx, graph = _load(path)
        initializers = [(_text(tensor.name), tensor) for tensor in graph.initializer]
        with as_input_error(
            f"{path}: two tensors have the same name; export the model again", "export it again", ValueError
        ):
            self._stored = _constants(graph) | distinct_keys(initializers)
        # name -> (initialiser, whether it is stored transposed)
        self._names = {name: (name, False) for name in self._stored} | _renamed(graph, self._stored)
        external = self._onnx.TensorProto.EXTERNAL
        outside = {name: part for name, part in self._stored.items() if part.data_location == external}
        self._offsets = {name: _external(path, tensor) for name, tensor in outside.items()}
        self._files = {file: UnchangedFile(file) for file, _ in self._offsets.values()}
        self.shapes = {name: self._shape(name) for name in self._names}
        if branch := _branch(graph):
            raise InputError(
                f"{path}: this graph stores weights in the branches of a node {branch}; export the model "
                "without branches (for a decoder: without past keys and values)"
            )
        if not self._stored:
            raise InputError(f"{path}: this ONNX graph has no weights; export the model with its parameters")

    def dtype(self, name: str) -> str:
        return self._type(self._names[name][0]).name

    def read(self, name: str, member: int | None = None) -> NDArray[Any]:
        stored, transposed = self._names[name]
        array = self._from_file(stored) if stored in self._offsets else self._from_graph(stored)
        array = array.T if transposed else array
        return array if member is None else array[member]

    def _shape(self, name: str) -> tuple[int, ...]:
        stored, transposed = self._names[name]
        shape = tuple(self._stored[stored].dims)
        return shape[::-1] if transposed else shape

    def _type(self, stored: str) -> np.dtype[Any]:
        code, what = (
            self._stored[stored].data_type,
            (f"{self.source}: tensor {stored} has a data type that this onnx package does not know"),
        )
        with as_input_error(what, "update the onnx package", KeyError, TypeError, with_reason=False):
            dtype: np.dtype[Any] = np.dtype(self._onnx.helper.tensor_dtype_to_np_dtype(code))
        return dtype

    def _from_graph(self, stored: str) -> NDArray[Any]:
        self._type(stored)
        shape = list(self._stored[stored].dims)
        what = f"{self.source}: tensor {stored} does not hold as many numbers as its shape {shape} needs"
        with as_input_error(what, "export it again", ValueError, TypeError, with_reason=False):
            array: NDArray[Any] = self._onnx.numpy_helper.to_array(self._stored[stored])
        return array

    def _from_file(self, stored: str) -> NDArray[Any]:
        file, offset = self._offsets[stored]
        dtype, shape = self._type(stored), tuple(self._stored[stored].dims)
        data = self._files[file].read(offset, prod(shape) * dtype.itemsize, stored)
        array: NDArray[Any] = data.view(dtype)
        return array.reshape(shape)


def _load(path: Path) -> tuple[Any, Any]:
    import onnx
    from google.protobuf.message import DecodeError

    if path.stat().st_size > MOST:
        raise InputError(
            f"{path}: this file is larger than 2 GB, the limit of an ONNX graph; export the weights into "
            "files next to it"
        )
    what, remedy = f"{path}: this is not a complete ONNX file", "copy, download or export it again"
    with as_input_error(what, remedy, DecodeError, ValueError, with_reason=False):
        return onnx, onnx.load_model(path, load_external_data=False).graph


def _text(value: str | bytes) -> str:
    """Return a text of the graph as a string. protobuf gives it as bytes if it is not valid UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _constants(graph: Any) -> dict[str, Any]:
    return {
        _text(node.output[0]): attribute.t
        for node in graph.node
        if node.op_type == "Constant" and node.output
        for attribute in node.attribute
        if _text(attribute.name) == "value" and len(attribute.t.dims) > 0
    }


def _branch(graph: Any) -> str | None:
    """Return the type (`If`, `Loop`) of the first node whose inner graphs contain matrices, or None."""
    for node in graph.node:
        for inner in (part for attribute in node.attribute for part in (attribute.g, *attribute.graphs)):
            held = [*inner.initializer, *_constants(inner).values()]
            if any(len(tensor.dims) == 2 for tensor in held) or _branch(inner):
                return _text(node.op_type)
    return None


def _renamed(graph: Any, stored: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """Return copies of stored tensors, and weights named after the `MatMul` nodes that use them.

    A module that uses several weights is left out, because its name would be that of each.
    """
    before = {
        _text(node.output[0]): (_text(node.input[0]), node.op_type == "Transpose")
        for node in graph.node
        if node.op_type in ("Identity", "Transpose") and node.output and node.input
    }
    parameters: dict[str, set[tuple[str, bool]]] = {}
    for node in graph.node:
        if node.op_type != "MatMul" or len(node.input) != 2:
            continue
        weight, turned = _text(node.input[1]), False
        for _ in range(MOST_STEPS):
            if weight in before:
                weight, once_more = before[weight]
                turned ^= once_more
        *module, _operation = _text(node.name).strip("/").split("/")
        if module and weight in stored and len(stored[weight].dims) == 2:
            parameters.setdefault(".".join(module) + ".weight", set()).add((weight, not turned))
    copies = {
        name: (weight, turned) for name, (weight, turned) in before.items() if weight in stored and not turned
    }
    return copies | {name: weights.pop() for name, weights in parameters.items() if len(weights) == 1}


def _external(path: Path, tensor: Any) -> tuple[Path, int]:
    entries = {_text(entry.key): _text(entry.value) for entry in tensor.external_data}
    location = entries.get("location", "")
    relative = PurePosixPath(location.replace("\\", "/"))
    file = path.parent / relative
    inside = location and not relative.is_absolute() and not {"..", ":", "\0"} & {*relative.parts, *location}
    if not inside or links_outside(file, path.parent):
        raise InputError(
            f"{path}: tensor {tensor.name} is stored in {location!r}, outside the directory of the graph; "
            "attnlaw reads only files next to the graph: export the model again, with its data there"
        )
    offset = entries.get("offset", "0")
    if not offset.isascii() or not offset.isdecimal() or len(offset) > MOST_DIGITS:
        raise InputError(
            f"{path}: tensor {tensor.name} has the offset {offset!r:.40}, expected a number; export it again"
        )
    return file, int(offset)
