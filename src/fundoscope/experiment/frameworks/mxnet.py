"""MXNet 1.9.1: a Gluon block, hybridised, and its Trainer."""

from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from numpy.typing import NDArray

from fundoscope.experiment.cnn import Plan
from fundoscope.experiment.networks import Conv, Pool, channels_first, inputs
from fundoscope.experiment.unavailable import Unavailable

CHANNELS_FIRST = True


class Trainer:
    def __init__(self, plan: Plan) -> None:
        # Threads are OMP_NUM_THREADS alone here, read when MXNet was imported.
        if plan.gpu and not gpus():
            raise Unavailable("MXNet sees no GPU on this machine, or was built without CUDA")
        self._context = mx.gpu() if plan.gpu else mx.cpu()
        self.device_name = "GPU 0" if plan.gpu else "cpu"  # it cannot say which one
        self._block = Network(plan)
        self._block.initialize(ctx=self._context)
        weights = list(self._block.collect_params().values())
        ours = channels_first(plan.network, plan.image, plan.channels, plan.weights)
        for weight, value in zip(weights, ours, strict=True):
            weight.set_data(mx.nd.array(value, ctx=self._context))
        self.parameters = sum(weight.data().size for weight in weights)
        self._block.hybridize(static_alloc=True, static_shape=True)
        self._loss = gluon.loss.SoftmaxCrossEntropyLoss()
        options = {"learning_rate": plan.learning_rate, "momentum": plan.momentum}
        self._trainer = gluon.Trainer(self._block.collect_params(), "sgd", options, kvstore=None)

    def step(self, pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> Any:
        x, y = self._sent(pixels), self._sent(labels)
        with autograd.record():
            loss = self._loss(self._block(x), y)
        loss.backward()
        self._trainer.step(len(labels))  # the gradient is of the sum; this divides it
        return loss.mean()

    def wait(self) -> None:
        mx.nd.waitall()

    def losses(self, steps: list[Any]) -> list[float]:
        return [float(loss) for loss in mx.nd.concat(*steps, dim=0).asnumpy()]

    def classes(self, pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._block(self._sent(pixels)).asnumpy().argmax(1)
        return found

    def _sent(self, array: NDArray[Any]) -> Any:
        return mx.nd.array(array, ctx=self._context, dtype=array.dtype)


def gpus() -> int:
    try:
        found: int = mx.context.num_gpus()
    except mx.MXNetError:  # built for CUDA, and no driver here
        return 0
    return found


class Network(gluon.HybridBlock):  # type: ignore[misc]
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        last = plan.network[-1]
        with self.name_scope():
            self.layers = gluon.nn.HybridSequential()
            for layer, given in inputs(plan.network, plan.image, plan.channels):
                if isinstance(layer, Conv):
                    part = gluon.nn.Conv2D(layer.channels, 3, padding=1, activation="relu", in_channels=given[2])
                elif isinstance(layer, Pool):
                    part = gluon.nn.MaxPool2D(2)
                else:  # flattens what it is given
                    part = gluon.nn.Dense(layer.units, activation=None if layer is last else "relu", in_units=given[0])
                self.layers.add(part)

    def hybrid_forward(self, F: Any, pixels: Any) -> Any:  # noqa: N803 (Gluon's name for it)
        return self.layers(F.cast(pixels, "float32") / 255)
