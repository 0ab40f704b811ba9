"""A backend for ONNX models made of ``Attention`` (ai.onnx, opsets 23 to 25), computed by this package's kernels.

The interface is that of ``onnx.backend.base``::

    import onnx, saccade.onnx

    prepared = saccade.onnx.prepare(onnx.load("attention.onnx"))
    outputs = prepared.run([q, k, v])         # or {"Q": q, "K": k, "V": v}
    y = outputs[0]                            # or outputs["Y"]

In every opset the operator follows its text in onnx 1.23; ``docs/onnx.md`` lists what is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._onnx_attention import Attributes, Inputs, Outputs, attention

try:
    from onnx import AttributeProto, ModelProto, NodeProto, defs, helper, numpy_helper
    from onnx.backend import base
except ImportError as error:
    raise ImportError(f"saccade.onnx needs the package onnx, 1.19 or newer: pip install onnx ({error})") from error

__all__ = ["Backend", "BackendRep", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]

_FIRST_OPSET, _LAST_OPSET = 23, 25  # that introduced Attention, and that last changed it
_OPSET_OF = {"nonpad_kv_seqlen": 24, "left_window_size": 25, "right_window_size": 25}


class BackendRep(base.BackendRep):
    """A prepared model. It can run any number of times, from several threads at once.

    :param model: an ``onnx.ModelProto`` whose nodes are ``Attention``.
    :param num_threads: threads of each run; 0: those of :func:`saccade.set_num_threads`.
    :raises ValueError: for a model that :func:`is_compatible` rejects; names the node and what is wrong with it.
    """

    def __init__(self, model: ModelProto, num_threads: int = 0) -> None:
        _require(model, ModelProto, "model")
        graph = model.graph
        self._nodes = _nodes_of(model)
        self._initializers = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        self._inputs = {value.name: value.type.tensor_type for value in graph.input}
        self._output_names = [value.name for value in graph.output]
        self._output_type = base.namedtupledict("Outputs", self._output_names)
        self._num_threads = num_threads

    def run(self, inputs: Any, **kwargs: Any) -> Any:
        """The outputs of the graph: a tuple that can be indexed by name too.

        :param inputs: a dict by name, or a list in the order of the graph's inputs. Those with an initializer may be
            left out; a list leaves out all of them or none.
        :param kwargs: not used.
        :raises ValueError: for missing or unknown inputs, and for types and shapes that do not fit the model or
            the operator; names node and input.
        """
        values = {**self._initializers, **self._named(inputs)}
        for node in self._nodes:
            given = Inputs(*(values[name] if name else None for name in node.inputs))
            values.update(zip(node.outputs, node.run(given, self._num_threads)))
        return self._output_type(*(values[name] for name in self._output_names))

    def _named(self, inputs: Any) -> dict[str, np.ndarray]:
        required = [name for name in self._inputs if name not in self._initializers]
        if not isinstance(inputs, Mapping):
            listed = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            names = list(self._inputs) if len(listed) == len(self._inputs) else required
            if len(listed) != len(names):
                raise ValueError(f"inputs: expected {len(names)} ({', '.join(names)}), got {len(listed)}")
            inputs = dict(zip(names, listed))
        for name in required:
            if name not in inputs:
                raise ValueError(f"inputs: {name} is missing; the model needs {', '.join(required)}")
        return {name: self._checked(name, value) for name, value in inputs.items()}

    def _checked(self, name: str, value: Any) -> np.ndarray:
        """The input as an array, if it is what the graph declares."""
        if name not in self._inputs:
            raise ValueError(f"inputs: {name} is no input of the model, which has {', '.join(self._inputs)}")
        array, declared = np.asarray(value), self._inputs[name]
        dtype = helper.tensor_dtype_to_np_dtype(declared.elem_type)
        if array.dtype != dtype:
            raise ValueError(f"{name}: the model declares {dtype}, got {array.dtype}")
        if declared.HasField("shape"):
            dims = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in declared.shape.dim]
            fixed = [(dim, size) for dim, size in zip(dims, array.shape) if isinstance(dim, int)]
            if len(dims) != array.ndim or any(dim != size for dim, size in fixed):
                shape = ", ".join(map(str, dims))
                raise ValueError(f"{name}: the model declares shape [{shape}], got {list(array.shape)}")
        return array


class Backend(base.Backend):
    """Runs models made of ``Attention`` on the CPU; see ``onnx.backend.base.Backend``."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether :meth:`prepare` accepts the model: whether every node is a valid ``Attention`` of a known opset.

        :param model: an ``onnx.ModelProto``.
        :param device: "CPU", or "CPU:0" with any number.
        :param kwargs: not used.
        :raises ValueError: if it is not a model.
        """
        _require(model, ModelProto, "model")
        try:
            _nodes_of(model)
        except ValueError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", *, num_threads: int = 0, **kwargs: Any) -> BackendRep:
        """Prepares a model.

        :param model: an ``onnx.ModelProto`` whose nodes are ``Attention``.
        :param device: "CPU", or "CPU:0" with any number.
        :param num_threads: threads of each run; 0: those of :func:`saccade.set_num_threads`.
        :param kwargs: not used; onnx's tests pass their tolerances here.
        :raises ValueError: for a model that :meth:`is_compatible` rejects; names the node and its fault.
        :raises onnx.checker.ValidationError: for a model that is not valid ONNX.
        """
        _check_device(device)
        prepared = BackendRep(model, num_threads)
        super().prepare(model, device)
        return prepared

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> Any:
        """The outputs of one node: a tuple that can be indexed by name too. Outputs without a name are left out.

        :param node: an ``onnx.NodeProto``, an ``Attention``.
        :param inputs: those that the node names, in its order; or all, with None for those without a name.
        :param device: "CPU", or "CPU:0" with any number.
        :param outputs_info: not used.
        :param kwargs: ``opset_version``, by default the last in which ``Attention`` changed (25, or the last one
            that the installed onnx knows); ``num_threads`` as for :meth:`prepare`.
        :raises ValueError: for a node or for inputs that do not fit.
        :raises onnx.checker.ValidationError: for a node that is not valid ONNX.
        """
        _check_device(device)
        _require(node, NodeProto, "node")
        num_threads = kwargs.pop("num_threads", 0)
        kwargs.setdefault("opset_version", min(_LAST_OPSET, defs.onnx_opset_version()))
        attention_node = _node_of(node, kwargs["opset_version"])
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        named = [name for name in node.input if name]
        if len(given) == len(named):
            in_order = iter(given)
            given = [next(in_order) if name else None for name in node.input]
        if [array is not None for array in given] != [bool(name) for name in node.input]:
            raise ValueError(f"inputs: the node names {len(named)} ({', '.join(named)}), got {len(given)}")
        arrays = Inputs(*(None if array is None else np.asarray(array) for array in given))
        results = zip(attention_node.outputs, attention_node.run(arrays, num_threads))
        outputs = {name: array for name, array in results if name}
        return base.namedtupledict("Outputs", list(outputs))(*outputs.values())

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the device is the CPU.

        :param device: "CPU", or "CPU:0" with any number, are.
        :raises ValueError: if it is not a str.
        """
        _require(device, str, "device")
        return device.split(":")[0] == "CPU"


is_compatible = Backend.is_compatible
prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device


class _Node(NamedTuple):
    """One node: its name in errors, and the names of its values, "" for those that are missing."""

    called: str
    inputs: Inputs
    outputs: Outputs
    attributes: Attributes

    def run(self, inputs: Inputs, num_threads: int) -> Outputs:
        try:
            return attention(inputs, self.attributes, bool(self.outputs.qk_matmul_output), num_threads)
        except ValueError as error:
            raise ValueError(f"{self.called}: {error}") from None


def _require(value: Any, kind: type, name: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{name}: expected a {kind.__name__}, got a {type(value).__name__}")


def _check_device(device: str) -> None:
    if not Backend.supports_device(device):
        raise ValueError(f"device: expected 'CPU', got {device!r}")


def _nodes_of(model: ModelProto) -> list[_Node]:
    """The model's nodes in the order in which they run."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if model.graph.sparse_initializer:
        name = model.graph.sparse_initializer[0].values.name
        raise ValueError(f"initializer '{name}': expected a dense tensor, got a sparse one")
    return [_node_of(node, opset) for node in model.graph.node]


def _node_of(node: NodeProto, opset: int) -> _Node:
    """:raises ValueError: for another operator, and for attributes, inputs and outputs that do not go together."""
    called = f"node '{node.name or ', '.join(filter(None, node.output))}'"
    if node.op_type != "Attention" or node.domain not in ("", "ai.onnx"):
        domain = node.domain or "ai.onnx"
        raise ValueError(f"{called}: expected the operator Attention of ai.onnx, got {node.op_type} of {domain}")
    _check_opset(called, opset)
    try:
        inputs = Inputs(*_names(node.input, Inputs))
        outputs = Outputs(*_names(node.output, Outputs))
        attributes = _attributes_of(node)
        given = {entry.name for entry in node.attribute} | {name for name in Inputs._fields if getattr(inputs, name)}
        for name in sorted(given & set(_OPSET_OF)):
            if opset < _OPSET_OF[name]:
                raise ValueError(f"{name}: came in opset {_OPSET_OF[name]}, but the model is of opset {opset}")
        _check_caches(inputs, outputs)
    except ValueError as error:
        raise ValueError(f"{called}: {error}") from None
    return _Node(called, inputs, outputs, attributes)


def _check_opset(called: str, opset: int) -> None:
    if opset < _FIRST_OPSET:
        raise ValueError(f"{called}: Attention came in opset {_FIRST_OPSET}, but the model is of opset {opset}")
    since = defs.get_schema("Attention", opset, "").since_version
    if since > _LAST_OPSET:
        raise ValueError(f"{called}: Attention changed in opset {since}; known are those of opsets 23 to {_LAST_OPSET}")


def _names(names: Sequence[str], kind: Any) -> list[str]:
    """The names of a node's values, with "" for those that it leaves out at the end."""
    if len(names) > len(kind._fields):
        raise ValueError(f"{kind.__name__.lower()}: Attention has {len(kind._fields)} of them, got {len(names)}")
    for name, field in zip([*names, *[""] * len(kind._fields)], kind._fields):
        if not name and field in ("Q", "K", "V"):
            raise ValueError(f"{field}: expected, but left out")
    return [*names, *[""] * (len(kind._fields) - len(names))]


def _attributes_of(node: NodeProto) -> Attributes:
    for entry in node.attribute:
        if entry.name not in Attributes._fields:
            raise ValueError(f"{entry.name}: Attention has no such attribute, but {', '.join(Attributes._fields)}")
        kind = AttributeProto.FLOAT if entry.name in ("scale", "softcap") else AttributeProto.INT
        if entry.type != kind:
            names = AttributeProto.AttributeType.Name
            raise ValueError(f"{entry.name}: expected an attribute of type {names(kind)}, got {names(entry.type)}")
    attributes = Attributes(**{entry.name: helper.get_attribute_value(entry) for entry in node.attribute})
    attributes.check()
    return attributes


def _check_caches(inputs: Inputs, outputs: Outputs) -> None:
    """The cache is updated by the node (all four past and present values) or by the caller (nonpad_kv_seqlen)."""
    inside = {name: getattr(inputs, name) for name in ("past_key", "past_value")}
    inside.update((name, getattr(outputs, name)) for name in ("present_key", "present_value"))
    missing = [name for name, value in inside.items() if not value]
    if 0 < len(missing) < len(inside):
        raise ValueError(f"{missing[0]}: past and present keys and values must all be given, but it is missing")
    if not missing and inputs.nonpad_kv_seqlen:
        raise ValueError("nonpad_kv_seqlen: expected without past and present keys and values, got both")
