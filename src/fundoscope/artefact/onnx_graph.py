"""ONNX as tf2onnx writes it, made whole and made the same every time. Works on protobufs: imports nothing for it."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


def _cumulative_product(graph: Any, node: Any, name: str, _: Any) -> None:
    """The ordinal head's P(at least k). tf2onnx writes a loop for it, and fails where the axis counts from the end."""
    values, output, shape = node.input[0], node.output[0], graph.get_shape(node.input[0])
    axis = int(node.inputs[1].get_tensor_value()) % len(shape)
    parts = graph.make_node(
        "Split", [values], attr={"axis": axis, "num_outputs": shape[axis]}, output_count=shape[axis]
    )
    products = [parts.output[0]]
    for part in parts.output[1:]:
        products.append(graph.make_node("Mul", [products[-1], part]).output[0])
    graph.remove_node(name)
    graph.make_node("Concat", products, attr={"axis": axis}, outputs=[output])


def _complementary_error(graph: Any, node: Any, name: str, _: Any) -> None:
    """ConvNeXt's GELU is written with it."""
    values, output = node.input[0], node.output[0]
    one = graph.make_const(f"{name}_one", np.array(1, np.float32)).output[0]
    graph.remove_node(name)
    graph.make_node("Sub", [one, graph.make_node("Erf", [values]).output[0]], outputs=[output])


# What tf2onnx lacks, or writes badly.
HANDLERS: dict[str, Callable[[Any, Any, str, Any], None]] = {
    "Cumprod": _cumulative_product,
    "Erfc": _complementary_error,
}


def name_by_place(graph: Any, *, keep: str) -> None:
    """Order and name everything by its place on the way from the output back to `keep`, the one input.

    tf2onnx merges what it finds twice in the order of memory addresses, and numbers what it makes: the same network
    comes out under other names, and in another order, every time.
    """
    names = {keep: keep} | {value.name: value.name for value in graph.output}
    nodes = _in_order(graph)
    for number, node in enumerate(nodes, start=1):
        node.name = f"{node.op_type}_{number}"
        for i, name in enumerate(node.input):
            names.setdefault(name, f"{node.name}/in{i}" if name else "")
        for i, name in enumerate(node.output):
            names.setdefault(name, f"{node.name}/out{i}")
        node.input[:] = [names[name] for name in node.input]
        node.output[:] = [names[name] for name in node.output]
    weights = {tensor.name: tensor for tensor in graph.initializer}
    used = [weights[name] for name in names if name in weights]
    for tensor in used:
        tensor.name = names[tensor.name]
    graph.name = "fundoscope"
    _replace(graph.input, [value for value in graph.input if value.name == keep])
    _replace(graph.node, nodes)
    _replace(graph.initializer, used)
    del graph.value_info[:]


def _in_order(graph: Any) -> list[Any]:
    """The operations in an order in which they can run, found by walking back from the output: no name has a say."""
    maker = {output: node for node in graph.node for output in node.output}
    done: dict[str, Any] = {}  # by first output
    to_make = [value.name for value in graph.output]
    while to_make:  # a loop and not a recursion: some networks are a thousand operations deep
        node = maker.get(to_make[-1])
        if node is None or node.output[0] in done:
            to_make.pop()
        elif waiting := [name for name in node.input if name in maker and maker[name].output[0] not in done]:
            to_make.append(waiting[0])
        else:
            done[node.output[0]] = node
    return list(done.values())


def _replace(field: Any, items: Iterable[Any]) -> None:
    copies = [type(item).FromString(item.SerializeToString()) for item in items]  # clearing the field empties them
    del field[:]
    field.extend(copies)
