"""PyTorch: a module, autograd, its own optimiser."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fundoscope.experiment.cnn import Plan
from fundoscope.experiment.networks import Conv, Pool, channels_first, inputs
from fundoscope.experiment.unavailable import Unavailable

CHANNELS_FIRST = True


class Trainer:
    def __init__(self, plan: Plan) -> None:
        torch.set_num_threads(plan.threads)
        if plan.gpu and not torch.cuda.is_available():
            raise Unavailable("PyTorch sees no GPU on this machine")
        self._device = torch.device("cuda" if plan.gpu else "cpu")
        self.device_name = torch.cuda.get_device_name() if plan.gpu else "cpu"
        self._module = Network(plan).to(self._device)
        self.parameters = sum(weight.numel() for weight in self._module.parameters())
        self._optimiser = torch.optim.SGD(self._module.parameters(), lr=plan.learning_rate, momentum=plan.momentum)
        self._loss = nn.CrossEntropyLoss()

    def step(self, pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> Any:
        self._optimiser.zero_grad()
        loss = self._loss(self._module(self._sent(pixels)), self._sent(labels))
        loss.backward()
        self._optimiser.step()
        return loss.detach()

    def wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def losses(self, steps: list[Any]) -> list[float]:
        return [float(loss) for loss in torch.stack(steps).cpu()]

    def classes(self, pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
        with torch.inference_mode():
            found: NDArray[np.int64] = self._module(self._sent(pixels)).argmax(1).cpu().numpy()
        return found

    def _sent(self, array: NDArray[Any]) -> Any:
        return torch.from_numpy(array).to(self._device)


class Network(nn.Module):  # type: ignore[misc]
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for layer, given in inputs(plan.network, plan.image, plan.channels):
            if isinstance(layer, Conv):
                parts += [nn.Conv2d(given[2], layer.channels, 3, padding="same"), nn.ReLU()]
            elif isinstance(layer, Pool):
                parts += [nn.MaxPool2d(2)]
            else:
                parts += [nn.Flatten(), nn.Linear(given[0], layer.units), nn.ReLU()]
        self.layers = nn.Sequential(*parts[:-1])  # no ReLU after the last
        ours = channels_first(plan.network, plan.image, plan.channels, plan.weights)
        with torch.no_grad():
            for weight, value in zip(self.parameters(), ours, strict=True):
                weight.copy_(torch.from_numpy(value))

    def forward(self, pixels: Any) -> Any:
        return self.layers(pixels.float() / 255)
