"""TensorFlow 2: variables, tf.nn and a traced step; no Keras, so that what is timed is TensorFlow."""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from fundoscope.experiment.cnn import Plan
from fundoscope.experiment.networks import Conv, Network, Pool
from fundoscope.experiment.unavailable import Unavailable

CHANNELS_FIRST = False


class Trainer:
    def __init__(self, plan: Plan) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(plan.threads)
        tf.config.threading.set_inter_op_parallelism_threads(plan.threads)
        gpus = tf.config.list_physical_devices("GPU")
        if plan.gpu and not gpus:
            raise Unavailable("TensorFlow sees no GPU on this machine")
        tf.config.set_visible_devices(gpus[:1] if plan.gpu else [], "GPU")
        self.device_name = tf.config.experimental.get_device_details(gpus[0])["device_name"] if plan.gpu else "cpu"
        with tf.device("GPU:0" if plan.gpu else "CPU:0"):
            self._weights = [tf.Variable(weight) for weight in plan.weights]
            self._speeds = [tf.Variable(tf.zeros_like(weight), trainable=False) for weight in self._weights]
        self.parameters = sum(int(tf.size(weight)) for weight in self._weights)
        self._step = tf.function(self._one_step)
        self._classes = tf.function(lambda pixels: tf.argmax(logits(plan.network, self._weights, pixels), 1))
        self._plan = plan

    def step(self, pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> Any:
        return self._step(tf.constant(pixels), tf.constant(labels))

    def _one_step(self, pixels: Any, labels: Any) -> Any:
        plan = self._plan
        with tf.GradientTape() as tape:
            scores = logits(plan.network, self._weights, pixels)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores))
        gradients = tape.gradient(loss, self._weights)
        for weight, speed, gradient in zip(self._weights, self._speeds, gradients, strict=True):
            # The kernel behind TensorFlow's own momentum optimiser: one pass over each weight.
            tf.raw_ops.ResourceApplyMomentum(
                var=weight.handle, accum=speed.handle, lr=plan.learning_rate, grad=gradient, momentum=plan.momentum
            )
        return loss

    def wait(self) -> None:
        tf.test.experimental.sync_devices()

    def losses(self, steps: list[Any]) -> list[float]:
        return [float(loss) for loss in tf.stack(steps).numpy()]

    def classes(self, pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._classes(tf.constant(pixels)).numpy()
        return found


def logits(network: Network, weights: list[Any], pixels: Any) -> Any:
    x, left = tf.cast(pixels, tf.float32) / 255, iter(weights)
    for layer in network:
        if isinstance(layer, Conv):
            x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, next(left), strides=1, padding="SAME"), next(left)))
        elif isinstance(layer, Pool):
            x = tf.nn.max_pool2d(x, ksize=2, strides=2, padding="VALID")
        else:
            x = tf.nn.bias_add(tf.reshape(x, [x.shape[0], -1]) @ next(left), next(left))
            x = x if layer is network[-1] else tf.nn.relu(x)
    return x
