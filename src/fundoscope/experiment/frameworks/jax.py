"""JAX: pure functions and one compiled step, whose weights are updated in place."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from fundoscope.experiment.cnn import Plan
from fundoscope.experiment.networks import Conv, Network, Pool
from fundoscope.experiment.unavailable import Unavailable

CHANNELS_FIRST = False


class Trainer:
    def __init__(self, plan: Plan) -> None:
        # Threads are the processors this process is held to: XLA counts those.
        if not plan.gpu:
            jax.config.update("jax_platforms", "cpu")
        try:
            self._device = jax.devices("gpu" if plan.gpu else "cpu")[0]
        except RuntimeError:
            raise Unavailable("JAX sees no GPU on this machine") from None
        self.device_name = self._device.device_kind if plan.gpu else "cpu"
        weights = [jax.device_put(weight, self._device) for weight in plan.weights]
        self.parameters = sum(weight.size for weight in weights)
        self._state = weights, [jnp.zeros_like(weight) for weight in weights]
        step = partial(one_step, plan.network, plan.learning_rate, plan.momentum)
        self._step = jax.jit(step, donate_argnums=0)
        self._classes = jax.jit(lambda weights, pixels: jnp.argmax(logits(plan.network, weights, pixels), 1))

    def step(self, pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> Any:
        x, y = jax.device_put((pixels, labels.astype(np.int32)), self._device)
        self._state, loss = self._step(self._state, x, y)
        return loss

    def wait(self) -> None:
        jax.block_until_ready(self._state)

    def losses(self, steps: list[Any]) -> list[float]:
        return [float(loss) for loss in jax.device_get(steps)]

    def classes(self, pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
        return np.asarray(self._classes(self._state[0], jax.device_put(pixels, self._device)), np.int64)


def one_step(network: Network, rate: float, momentum: float, state: Any, pixels: Any, labels: Any) -> Any:
    weights, speeds = state
    loss, gradients = jax.value_and_grad(partial(mean_loss, network))(weights, pixels, labels)
    speeds = [momentum * speed + gradient for speed, gradient in zip(speeds, gradients, strict=True)]
    weights = [weight - rate * speed for weight, speed in zip(weights, speeds, strict=True)]
    return (weights, speeds), loss


def mean_loss(network: Network, weights: Any, pixels: Any, labels: Any) -> Any:
    logs = jax.nn.log_softmax(logits(network, weights, pixels))
    return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()


def logits(network: Network, weights: Any, pixels: Any) -> Any:
    x, left = pixels.astype(jnp.float32) / 255, iter(weights)
    for layer in network:
        if isinstance(layer, Conv):
            kernel, bias = next(left), next(left)
            same = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(same + bias)
        elif isinstance(layer, Pool):
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        else:
            x = x.reshape(len(x), -1) @ next(left) + next(left)
            x = x if layer is network[-1] else jax.nn.relu(x)
    return x
