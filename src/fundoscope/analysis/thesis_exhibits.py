"""The thesis's tables 5.1, 5.2 and 6.1 to 6.7 and figures 6.1 to 6.12: which numbers stand in each."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fundoscope.analysis.thesis import (
    COLD,
    IMAGES,
    INSTANCES,
    MEMORY,
    MOBILENET,
    REAL_TIME,
    VGG19,
    WARM,
    Cell,
    Exhibit,
    Quantity,
    name_of,
)


def _by_level(title: tuple[str, str, str], over: Cell, levels: Sequence[str], *metrics: str, note: str = "") -> Exhibit:
    """Levels down, metrics across; `over` says of which scenario, model and factor."""
    asks = tuple(tuple(Quantity("mean", (over._replace(level=x, metric=m),)) for m in metrics) for x in levels)
    return Exhibit(*title, tuple(map(name_of, levels)), tuple(map(name_of, metrics)), asks, note)


def _cost(name: str, model: str) -> Exhibit:
    metrics = (f"cost_per_inference_{way}" for way in ("printed", "total_latency", "server_time"))
    original = f"Custo médio por inferência para o modelo {model} e diferentes configurações de tamanho de endpoint."
    note = (
        "The thesis multiplies the price by the client's latency. AWS bills the processing time, of which the "
        "container's own is the nearest that was recorded, and the data moved, which is not in these numbers."
    )
    title = name, f"Mean cost of an inference by memory, {model}", original
    return _by_level(title, Cell(WARM, model, "memory", "", ""), MEMORY, *metrics, note=note)


def _setup(name: str, model: str) -> Exhibit:
    original = f"ModelSetupTime médio do modelo {model} para cada configuração de memória utilizada."
    title = name, f"Mean ModelSetupTime by memory, {model}", original
    return _by_level(title, Cell(COLD, model, "memory", "", ""), MEMORY, "ModelSetupTime")


def _sizes() -> Exhibit:
    models, metrics = (MOBILENET, VGG19), ("parameters", "savedmodel_size")
    return Exhibit(
        "Table 5.1",
        "Networks, their parameters and the size of their artefact",
        "Relação entre modelo utilizado no trabalho, número de parâmetros e tamanho do artefato de modelo (SavedModel) "
        "armazenado em disco.",
        models,
        tuple(map(name_of, metrics)),
        tuple(tuple(Quantity("mean", (Cell("model-size", x, "", "", m),)) for m in metrics) for x in models),
    )


def _images() -> Exhibit:
    title = (
        "Table 5.2",
        "Image variants and their sizes",
        "Tabela de diferentes otimizações aplicadas à imagem base e o respectivo tamanho da imagem em disco (sem estar "
        "comprimida) e tamanho da imagem comprimida (tamanho ocupado pela imagem em registros, como ECR).",
    )
    levels = ("none", "two-step build", "reduced dependencies")
    return _by_level(title, Cell("image-size", "any", "docker_image", "", ""), levels, "compressed_size", "disk_size")


def _before_after() -> Exhibit:
    def asked(model: str) -> tuple[Quantity, ...]:
        before = Cell(COLD, model, "docker_image", "4.97GB", "total_latency")
        return tuple(Quantity("mean", (cell,)) for cell in (before, before._replace(factor="memory", level="2048MB")))

    return Exhibit(
        "Table 6.5",
        "Cold start before and after optimising the image and the memory",
        "Latência cold-start por modelo utilizado antes e após otimizações.",
        (VGG19, MOBILENET),
        ("image of 4.97 GB, 1 GB of memory", "image of 2.06 GB, 2 GB of memory"),
        (asked(VGG19), asked(MOBILENET)),
    )


def _prices() -> Exhibit:
    title = (
        "Table 6.6",
        "Price of an hour by instance type",
        "Relação de memória, número de vCPUs, ISA e custo por hora para cada tipo de instância utilizada no serviço "
        "Sagemaker real-time inference.",
    )
    note = "Memory, vCPUs and instruction set, which the thesis prints too, are in the price list of SageMaker."
    return _by_level(title, Cell("price", "any", "instance_type", "", ""), INSTANCES, "price_per_hour", note=note)


def _share_and_speed() -> Exhibit:
    def asked(model: str) -> tuple[Quantity, ...]:
        total = Cell(REAL_TIME, model, "instance_type", "ml.m5.xlarge", "total_latency")
        every = tuple(total._replace(level=level) for level in INSTANCES)
        return Quantity("times", (total._replace(metric="prediction_time"), total)), Quantity("most over least", every)

    return Exhibit(
        "Table 6.7",
        "Share of the prediction in the latency, and the greatest speed-up between instance types",
        "Relação entre razão de tempo de predição por latência total e speed-up máximo atingido entre diferentes tipos "
        "de instância para os modelos analisados.",
        (VGG19, MOBILENET),
        ("prediction time over total latency, m5", "total latency, slowest over fastest"),
        (asked(VGG19), asked(MOBILENET)),
    )


def _figures(first: int, of: tuple[str, str], title: str, original: str, scenario: str, metric: str) -> list[Exhibit]:
    """Two figures that differ in the network alone; they are not always neighbours."""
    step = 2 if scenario == WARM else 1
    factor, levels = ("instance_type", INSTANCES) if scenario == REAL_TIME else ("memory", MEMORY)
    if "Docker" in original:
        factor, levels = "docker_image", IMAGES
    return [
        _by_level(
            (f"Figure 6.{first + step * i}", f"{title}, {model}", original.format(model)),
            Cell(scenario, model, factor, "", ""),
            levels,
            metric,
        )
        for i, model in enumerate(of)
    ]


def _all_figures() -> list[Exhibit]:
    serverless = "para o modelo {} quando executado através do serviço serverless inference"
    real_time = (
        "para o modelo {} quando executado através do serviço real-time inference por tipo de instância utilizado."
    )
    memory = "por tamanho de memória utilizado."
    small_first, large_first = (MOBILENET, VGG19), (VGG19, MOBILENET)
    image = f"Tempo de latência total {serverless}, a partir de diferentes imagens Docker."
    predict, total = "prediction_time", "total_latency"
    warm_predict, warm_total = f"Tempo de predição {serverless} {memory}", f"Latência total {serverless} {memory}"
    found = [
        *_figures(1, small_first, "Cold start by image size", image, COLD, total),
        *_figures(3, large_first, "Prediction time by memory, warm", warm_predict, WARM, predict),
        *_figures(4, large_first, "Total latency by memory, warm", warm_total, WARM, total),
        *_figures(
            7, small_first, "Cold start by memory", f"Latência total de cold-start {serverless} {memory}", COLD, total
        ),
        *_figures(
            9, large_first, "Prediction time by instance type", f"Tempo de predição {real_time}", REAL_TIME, predict
        ),
        *_figures(
            11, large_first, "Total latency by instance type", f"Tempo de latência total {real_time}", REAL_TIME, total
        ),
    ]
    return sorted(found, key=lambda exhibit: int(exhibit.name.split(".")[1]))


EXHIBITS: tuple[Exhibit, ...] = (
    _sizes(),
    _images(),
    _cost("Table 6.1", VGG19),
    _cost("Table 6.2", MOBILENET),
    _setup("Table 6.3", VGG19),
    _setup("Table 6.4", MOBILENET),
    _before_after(),
    _prices(),
    _share_and_speed(),
    *_all_figures(),
)
THESIS: Mapping[str, Exhibit] = MappingProxyType({exhibit.name: exhibit for exhibit in EXHIBITS})
