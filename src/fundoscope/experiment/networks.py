"""Rede 1 and Rede 2, written down once, and what follows from that: parameters, arithmetic, first weights.

The paper (Moura Filho and Souza) shows its two networks in figures whose numbers are not in the text: VGG-like,
convolutions with ReLU and pooling, then fully connected layers, Rede 2 the larger. The sizes here are therefore our
choice, not theirs. Every convolution is 3×3, stride 1, padded to keep the size; every pooling is 2×2 maximum; every
layer but the last is followed by ReLU.

Weights are drawn here and not by the frameworks, so that all of them start from the same point: their own
initialisers differ, and with them the losses that are compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

CLASSES = 10
KERNEL = 3


@dataclass(frozen=True)
class Conv:
    channels: int


@dataclass(frozen=True)
class Pool:
    pass


@dataclass(frozen=True)
class Dense:
    units: int


Layer = Conv | Pool | Dense
Network = tuple[Layer, ...]
Shape = tuple[int, ...]  # of what goes into a layer: (height, width, channels), or (units,)

NETWORKS: dict[str, Network] = {
    "rede1": (Conv(32), Pool(), Conv(64), Pool(), Dense(128), Dense(CLASSES)),
    "rede2": (
        *(Conv(32), Conv(32), Pool()),
        *(Conv(64), Conv(64), Pool()),
        *(Conv(128), Conv(128), Pool()),
        *(Dense(256), Dense(CLASSES)),
    ),
}


def inputs(network: Network, image: int, channels: int) -> Iterator[tuple[Layer, Shape]]:
    """Each layer with the shape of what it is given for one picture; a dense layer is given a flat row."""
    shape: Shape = (image, image, channels)
    for layer in network:
        if isinstance(layer, Dense):
            shape = (prod(shape),)
        yield layer, shape
        if isinstance(layer, Conv):
            shape = (*shape[:2], layer.channels)
        elif isinstance(layer, Pool):
            shape = (shape[0] // 2, shape[1] // 2, shape[2])
        else:
            shape = (layer.units,)


def weight_shapes(network: Network, image: int, channels: int) -> list[Shape]:
    """Kernel and bias of every layer that has them: (height, width, in, out) or (in, out), and (out,)."""
    shapes: list[Shape] = []
    for layer, given in inputs(network, image, channels):
        if isinstance(layer, Conv):
            shapes += [(KERNEL, KERNEL, given[2], layer.channels), (layer.channels,)]
        elif isinstance(layer, Dense):
            shapes += [(given[0], layer.units), (layer.units,)]
    return shapes


def parameter_count(network: Network, image: int, channels: int) -> int:
    return sum(prod(shape) for shape in weight_shapes(network, image, channels))


def multiply_adds(network: Network, image: int, channels: int) -> int:
    """Of one picture's forward pass, padding counted as pixels; training does about three times as many."""
    total = 0
    for layer, given in inputs(network, image, channels):
        if isinstance(layer, Conv):
            total += given[0] * given[1] * KERNEL**2 * given[2] * layer.channels
        elif isinstance(layer, Dense):
            total += given[0] * layer.units
    return total


def initial_weights(network: Network, image: int, channels: int, seed: int) -> list[NDArray[np.float32]]:
    """Glorot-uniform kernels and zero biases, shaped as `weight_shapes` says; a dense layer's rows are in the order
    height, width, channel."""
    # The old generator, because its numbers are the same in every NumPy, and the environments' differ.
    draw = np.random.RandomState(seed)
    weights: list[NDArray[np.float32]] = []
    for shape in weight_shapes(network, image, channels):
        if len(shape) == 1:
            weights.append(np.zeros(shape, np.float32))
        else:
            window = prod(shape[:-2])
            limit = sqrt(6 / (window * (shape[-2] + shape[-1])))
            weights.append(draw.uniform(-limit, limit, shape).astype(np.float32))
    return weights


def channels_first(
    network: Network, image: int, channels: int, weights: list[NDArray[np.float32]]
) -> list[NDArray[np.float32]]:
    """The same network for a framework whose pictures are (channels, height, width): kernels (out, in, height, width),
    dense (out, in), and the rows of the first dense layer in the order channel, height, width."""
    turned: list[NDArray[np.float32]] = []
    pairs = zip(weights[::2], weights[1::2], strict=True)
    grid: Shape = (image, image, channels)
    for layer, given in inputs(network, image, channels):
        if isinstance(layer, Dense):
            kernel, bias = next(pairs)
            if len(grid) == 3:
                kernel = kernel.reshape(*grid, -1).transpose(2, 0, 1, 3).reshape(given[0], -1)
                grid = given
            turned += [np.ascontiguousarray(kernel.T), bias]
        elif isinstance(layer, Conv):
            kernel, bias = next(pairs)
            turned += [np.ascontiguousarray(kernel.transpose(3, 2, 0, 1)), bias]
            grid = (*given[:2], layer.channels)
        else:
            grid = (given[0] // 2, given[1] // 2, given[2])
    return turned
