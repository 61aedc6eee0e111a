"""What the thesis says of its numbers, as data: where, in English, in its own words, and what it is said of.

Whether it holds is not said here: thesis_verdicts.py works it out. Numbers that the thesis only states (sizes, prices)
are in its tables; here is what can be checked by others.
"""

from collections.abc import Iterator
from itertools import permutations

from fundoscope.analysis.thesis import (
    COLD,
    INSTANCES,
    MOBILENET,
    REAL_TIME,
    VGG19,
    WARM,
    Cell,
    Measure,
    Quantity,
    Results,
)
from fundoscope.analysis.thesis_verdicts import Judged, Name, NoDifference, Number, judge


def statements(results: Results) -> tuple[Judged, ...]:
    return tuple(judge(statement, results) for statement in STATEMENTS)


def _memory(scenario: str, model: str, size_gb: int, metric: str = "total_latency") -> Cell:
    return Cell(scenario, model, "memory", f"{1024 * size_gb}MB", metric)


def _machine(model: str, name: str, metric: str = "total_latency") -> Cell:
    return Cell(REAL_TIME, model, "instance_type", f"ml.{name}.xlarge", metric)


def _price(name: str) -> Cell:
    return Cell("price", "any", "instance_type", f"ml.{name}.xlarge", "price_per_hour")


def _image(model: str, size: str) -> Cell:
    return Cell(COLD, model, "docker_image", size, "total_latency")


def _of(measure: Measure, *cells: Cell) -> tuple[Quantity, ...]:
    return (Quantity(measure, cells),)


def _times(one: Cell, other: Cell) -> tuple[Quantity, ...]:
    return _of("times", one, other)


PREDICTION, TOTAL = "prediction_time", "total_latency"
COST = "cost_per_inference_total_latency"
MODELS = (MOBILENET, VGG19)
S611, S6121, S6122, S613, S621, S622 = (
    f"Section {n}" for n in ("6.1.1", "6.1.2.1", "6.1.2.2", "6.1.3", "6.2.1", "6.2.2")
)
CONCLUSION = "Chapter 7"
ARTICLE = "The companion article, section 3"
Q_IMAGE = "houve um speed-up de 1,2864× para o modelo MobileNet e um speed-up de 1,3272× para o modelo VGG19"
Q_COLD = (
    "Para o modelo MobileNet, houve um speed-up de 1,6529× entre a configuração de 1 GB e 2 GB, sendo que para o "
    "modelo VGG19 o speedup foi de 1,54019×"
)
Q_SAME = "para ambos os modelos não houve uma diferença considerável entre a configuração de memória 2 GB e 3 GB"
Q_RATIO = (
    "Comparando a latência warm-up com a latência cold-start dos endpoints com configuração de 2 GB, a latência "
    "cold-start é 57,42× maior para o modelo MobileNet e 19,82× maior para o modelo VGG19"
)
Q_BEST = (
    "Considerando o tipo de instância que apresenta o melhor desempenho, m5, com a máquina de pior desempenho, m6g, "
    "houve um speed-up de 1,9163× para o modelo VGG19 e um speed-up de 1,42009× para o modelo MobileNet"
)
Q_X86 = (
    "comparando a instância m5 frente à instância m4, houve um speed-up de 1,7134× para o modelo VGG19 e 1,3176× para "
    "o modelo MobileNet"
)
Q_ARM = (
    "quando comparamos uma instância c7g frente a uma instância m6g há um speed-up de 1,2701× para o modelo VGG19 e "
    "1,2264× para o modelo MobileNet"
)
Q_CUT = (
    "Para o caso da arquitetura x86 existe uma redução de custo de 4,1667% ao utilizar a instância mais recente, e "
    "para a arquitetura ARM existe uma redução de custo de 5,8441%"
)
Q_TOTAL = (
    "Para o modelo VGG19 ainda existe uma diferença significativa no tempo total de latência entre o tipo de instância "
    "mais rápido, m5, e o tipo de instância mais lento, m4, totalizando um speed-up de 1,5001× entre as instâncias"
)
Q_SMALL = (
    "No entanto, para o modelo MobileNet o speed-up entre as duas instâncias é de apenas 1,08972×, comparado a um "
    "speed-up de 1,42009× quando se analisa apenas o tempo de predição"
)
Q_LOSS = (
    "há uma redução de desempenho de 33,72% ao utilizar a instância de menor custo para a execução do modelo VGG19. "
    "Quando efetuamos a mesma comparação para o modelo MobileNet, a redução de desempenho é de 13,63%"
)
Q_ARTICLE = (
    "Para o caso da arquitetura x86, comparando a instância m6 frente à instância m5, houve um speed-up de 1,71× para "
    "o modelo VGG19 e 1,32× para o modelo MobileNet"
)


def _cost_tables() -> Iterator[Number]:
    printed = {VGG19: ("0.0000376", "0.0000344", "0.0000408"), MOBILENET: ("0.0000095", "0.0000144", "0.0000206")}
    for table, model in (("Table 6.1", VGG19), ("Table 6.2", MOBILENET)):
        for size, usd in enumerate(printed[model], start=1):
            said_so = f"An inference of {model} with {size} GB costs {usd} USD"
            yield Number(table, said_so, f"{size} GB: {usd} USD", usd, _of("mean", _memory(WARM, model, size, COST)))


def _setup_tables() -> Iterator[Number]:
    printed = {VGG19: ("10.7879", "6.8852", "6.5223"), MOBILENET: ("10.6071", "5.6728", "5.6074")}
    for table, model in (("Table 6.3", VGG19), ("Table 6.4", MOBILENET)):
        for size, seconds in enumerate(printed[model], start=1):
            cell = _memory(COLD, model, size, "ModelSetupTime")
            original = f"{size} GB: {seconds.replace('.', ',')} s"
            yield Number(
                table, f"ModelSetupTime of {model} with {size} GB is {seconds} s", original, seconds, _of("mean", cell)
            )


def _cold_table() -> Iterator[Number]:
    for model, before, after in ((VGG19, "22.63", "11.07"), (MOBILENET, "26.59", "12.48")):
        original = f"{model}: {before} s, {after} s".replace(".", ",")
        cells = _image(model, "4.97GB"), _memory(COLD, model, 2)
        for when, printed, cell in zip(("before", "after"), (before, after), cells, strict=True):
            yield Number(
                "Table 6.5",
                f"A cold start of {model} {when} optimising: {printed} s",
                original,
                printed,
                _of("mean", cell),
            )


def _figure_labels() -> Iterator[Number]:
    for size, mean, deviation in ((1, "20.67", "1.18"), (2, "12.48", "0.40"), (3, "12.46", "0.28")):
        cell = _memory(COLD, MOBILENET, size)
        for measure, sign, printed in (("mean", "μ", mean), ("deviation", "σ", deviation)):
            text = f"Cold start of MobileNet with {size} GB: {sign} = {printed} s"
            quantity = Quantity("mean" if measure == "mean" else "deviation", (cell,))
            yield Number("Figure 6.7", text, f"{sign}={printed}", printed, (quantity,))


def _speed_table() -> Iterator[Number]:
    for model, share, speed in ((VGG19, "0.51572", "1.5001"), (MOBILENET, "0.23605940", "1.08972")):
        original = f"{model}: {share}; {speed}".replace(".", ",")
        own = _times(_machine(model, "m5", PREDICTION), _machine(model, "m5"))
        yield Number("Table 6.7", f"Prediction time over total latency of {model} is {share}", original, share, own)
        every = [_machine(model, name) for name in ("m4", "m5", "m6g", "c7g")]
        pairs = tuple(Quantity("times", pair) for pair in permutations(every, 2))
        text = f"The greatest speed-up between instance types, {model}, is {speed}"
        yield Number("Table 6.7", text, original, speed, pairs, "most")


def _speed(where: str, original: str, fast: str, slow: str, large: str, small: str) -> Iterator[Number]:
    """Prediction on one machine so many times as fast as on another, for either network."""
    for model, printed in ((VGG19, large), (MOBILENET, small)):
        text = f"Prediction of {model} is {printed} times as fast with {fast} as with {slow}"
        yield Number(
            where, text, original, printed, _times(_machine(model, slow, PREDICTION), _machine(model, fast, PREDICTION))
        )


def _loss(model: str) -> tuple[Quantity, ...]:
    """Performance is one over time: m5's time is so many per cent less than c7g's."""
    return _of("percent less", _machine(model, "m5"), _machine(model, "c7g"))


def _share(model: str, size_gb: int) -> Quantity:
    return Quantity("percent of", (_memory(WARM, model, size_gb, PREDICTION), _memory(WARM, model, size_gb)))


_SIZES = tuple(
    Quantity("times", tuple(Cell("model-size", model, "", "", metric) for model in (VGG19, MOBILENET)))
    for metric in ("parameters", "savedmodel_size")
)
_COLD_OVER_WARM = tuple(
    Quantity("times", (_memory(COLD, model, size), _memory(WARM, model, size)))
    for model in MODELS
    for size in (1, 2, 3)
)
_MORE_MEMORY = tuple(
    Quantity("times", (_memory(WARM, model, 1), _memory(WARM, model, size))) for model in MODELS for size in (2, 3)
)
_INSTANCE_PAIRS = tuple(
    Quantity("times", (_machine(model, one), _machine(model, other)))
    for model in MODELS
    for one, other in permutations(("m4", "m5", "m6g", "c7g"), 2)
)
_COLD_PREDICTIONS = tuple(
    (_memory(COLD, model, size, PREDICTION), _memory(WARM, model, size, PREDICTION))
    for model in MODELS
    for size in (1, 2, 3)
)


def _instances(model: str, metric: str) -> tuple[Cell, ...]:
    return tuple(Cell(REAL_TIME, model, "instance_type", level, metric) for level in INSTANCES)


STATEMENTS: tuple[Number | Name | NoDifference, ...] = (
    Number(
        "Table 5.1",
        "VGG19 is about 6 times as large as MobileNet",
        "Nota-se que o modelo VGG19 é cerca de 6× maior que o modelo MobileNet",
        "6",
        _SIZES,
        "each",
    ),
    NoDifference(
        S611,
        "A cold start does not raise the prediction time",
        "o caso cold-start não contribui para o aumento do tempo de predição dos modelos",
        _COLD_PREDICTIONS,
    ),
    Number(
        S611,
        "From the largest to the smallest image, cold start of MobileNet is 1.2864 times as fast",
        Q_IMAGE,
        "1.2864",
        _times(_image(MOBILENET, "4.97GB"), _image(MOBILENET, "2.06GB")),
    ),
    Number(
        S611,
        "From the largest to the smallest image, cold start of VGG19 is 1.3272 times as fast",
        Q_IMAGE,
        "1.3272",
        _times(_image(VGG19, "4.97GB"), _image(VGG19, "2.06GB")),
    ),
    Number(
        S6121,
        "Prediction of VGG19 is 2.7413 times as fast with 2 GB as with 1 GB",
        "houve um speed-up de 2,7413× analisando o tempo de predição",
        "2.7413",
        _times(_memory(WARM, VGG19, 1, PREDICTION), _memory(WARM, VGG19, 2, PREDICTION)),
    ),
    Name(
        S6121,
        "VGG19 is cheapest with 2 GB",
        "o menor custo financeiro de endpoint é atingido com 2 GB de memória",
        "2048MB",
        tuple(_memory(WARM, VGG19, size, COST) for size in (1, 2, 3)),
        "least",
    ),
    Number(
        S6121,
        "2 GB cut the cost of VGG19 by 9.4 %",
        "conseguimos obter uma redução de custo financeiro de 9,4%",
        "9.4",
        _of("percent less", _memory(WARM, VGG19, 2, COST), _memory(WARM, VGG19, 1, COST)),
    ),
    Number(
        S6121,
        "Prediction of MobileNet is 2.3500 times as fast with 2 GB as with 1 GB",
        "houve um aumento de desempenho considerável entre os endpoints de 1 GB e 2 GB, totalizando um speed-up de "
        "2,3500×",
        "2.3500",
        _times(_memory(WARM, MOBILENET, 1, PREDICTION), _memory(WARM, MOBILENET, 2, PREDICTION)),
    ),
    Number(
        S6121,
        "Total latency of MobileNet is 1.3807 times as fast with 2 GB as with 1 GB",
        "No entanto, quando analisamos a latência total do endpoint, o speed-up diminui para 1,3807×",
        "1.3807",
        _times(_memory(WARM, MOBILENET, 1), _memory(WARM, MOBILENET, 2)),
    ),
    Number(
        S6121,
        "Prediction is 37 % of MobileNet's latency",
        "o tempo de predição do modelo MobileNet é pequeno comparado à latência total, representando apenas 37% da "
        "latência total",
        "37",
        tuple(_share(MOBILENET, size) for size in (1, 2, 3)),
        "each",
    ),
    *_cost_tables(),
    Number(
        S6122,
        "Cold start of MobileNet is 1.6529 times as fast with 2 GB as with 1 GB",
        Q_COLD,
        "1.6529",
        _times(_memory(COLD, MOBILENET, 1), _memory(COLD, MOBILENET, 2)),
    ),
    Number(
        S6122,
        "Cold start of VGG19 is 1.54019 times as fast with 2 GB as with 1 GB",
        Q_COLD,
        "1.54019",
        _times(_memory(COLD, VGG19, 1), _memory(COLD, VGG19, 2)),
    ),
    NoDifference(
        S6122,
        "Cold start of MobileNet does not differ between 2 GB and 3 GB",
        Q_SAME,
        ((_memory(COLD, MOBILENET, 3), _memory(COLD, MOBILENET, 2)),),
    ),
    NoDifference(
        S6122,
        "Cold start of VGG19 does not differ between 2 GB and 3 GB",
        Q_SAME,
        ((_memory(COLD, VGG19, 3), _memory(COLD, VGG19, 2)),),
    ),
    *_setup_tables(),
    *_cold_table(),
    Number(
        S613,
        "Image and memory together make cold start of VGG19 2.04 times as fast",
        "Para o modelo VGG19 houve um aumento de desempenho de 2,04×",
        "2.04",
        _times(_image(VGG19, "4.97GB"), _memory(COLD, VGG19, 2)),
    ),
    Number(
        S613,
        "Image and memory together make cold start of MobileNet 2.13 times as fast",
        "para o modelo MobileNet houve um aumento de desempenho de 2,13×",
        "2.13",
        _times(_image(MOBILENET, "4.97GB"), _memory(COLD, MOBILENET, 2)),
    ),
    Number(
        S613,
        "With 2 GB, a cold start of MobileNet takes 57.42 times as long as a warm request",
        Q_RATIO,
        "57.42",
        _times(_memory(COLD, MOBILENET, 2), _memory(WARM, MOBILENET, 2)),
    ),
    Number(
        S613,
        "With 2 GB, a cold start of VGG19 takes 19.82 times as long as a warm request",
        Q_RATIO,
        "19.82",
        _times(_memory(COLD, VGG19, 2), _memory(WARM, VGG19, 2)),
    ),
    *_figure_labels(),
    Name(S621, "m5 predicts fastest, VGG19", Q_BEST, "ml.m5.xlarge", _instances(VGG19, PREDICTION), "least"),
    Name(S621, "m6g predicts slowest, VGG19", Q_BEST, "ml.m6g.xlarge", _instances(VGG19, PREDICTION), "most"),
    Name(S621, "m5 predicts fastest, MobileNet", Q_BEST, "ml.m5.xlarge", _instances(MOBILENET, PREDICTION), "least"),
    Name(S621, "m6g predicts slowest, MobileNet", Q_BEST, "ml.m6g.xlarge", _instances(MOBILENET, PREDICTION), "most"),
    *_speed(S621, Q_BEST, "m5", "m6g", "1.9163", "1.42009"),
    *_speed(S621, Q_X86, "m5", "m4", "1.7134", "1.3176"),
    *_speed(S621, Q_ARM, "c7g", "m6g", "1.2701", "1.2264"),
    Number(S621, "m5 costs 4.1667 % less than m4", Q_CUT, "4.1667", _of("percent less", _price("m5"), _price("m4"))),
    Number(
        S621, "c7g costs 5.8441 % less than m6g", Q_CUT, "5.8441", _of("percent less", _price("c7g"), _price("m6g"))
    ),
    Name(S622, "Total latency of VGG19 is least with m5", Q_TOTAL, "ml.m5.xlarge", _instances(VGG19, TOTAL), "least"),
    Name(S622, "Total latency of VGG19 is most with m4", Q_TOTAL, "ml.m4.xlarge", _instances(VGG19, TOTAL), "most"),
    Number(
        S622,
        "Total latency of VGG19 is 1.5001 times as fast with m5 as with m4",
        Q_TOTAL,
        "1.5001",
        _times(_machine(VGG19, "m4"), _machine(VGG19, "m5")),
    ),
    Number(
        S622,
        "Total latency of MobileNet is 1.08972 times as fast with m5 as with m4",
        Q_SMALL,
        "1.08972",
        _times(_machine(MOBILENET, "m4"), _machine(MOBILENET, "m5")),
    ),
    *_speed_table(),
    Name(
        S622,
        "The fastest instance type is m6",
        "pouca redução de desempenho comparada ao tipo de instância mais rápida, m6",
        "ml.m6.xlarge",
        _instances(MOBILENET, TOTAL),
        "least",
    ),
    Number(S622, "In total latency, c7g is 33.72 % slower than m5 for VGG19", Q_LOSS, "33.72", _loss(VGG19)),
    Number(S622, "In total latency, c7g is 13.63 % slower than m5 for MobileNet", Q_LOSS, "13.63", _loss(MOBILENET)),
    Number(
        S622,
        "c7g costs 24.34 % less than m5",
        "conseguimos reduzir o custo da execução em 24,34%",
        "24.34",
        _of("percent less", _price("c7g"), _price("m5")),
    ),
    NoDifference(
        "Figure 6.12",
        "Total latency of MobileNet does not differ between instance types",
        "Nota-se que não há uma diferença significativa quanto aos diferentes tipos de instância",
        tuple((_machine(MOBILENET, name), _machine(MOBILENET, "m5")) for name in ("m4", "m6g", "c7g")),
    ),
    Number(
        CONCLUSION,
        "Cold starts take up to 57 times as long as warm requests",
        "latências elevadas em casos de cold-start, que chegam ser até 57× maiores que a latência no caso normal",
        "57",
        _COLD_OVER_WARM,
        "most",
    ),
    Number(
        CONCLUSION,
        "Image and memory make cold starts up to 2.13 times as fast",
        "resultando em aumento de desempenho de até 2,13×",
        "2.13",
        tuple(Quantity("times", (_image(model, "4.97GB"), _memory(COLD, model, 2))) for model in MODELS),
        "most",
    ),
    Number(
        CONCLUSION,
        "More memory makes warm requests up to 2.16 times as fast",
        "melhorando o desempenho em até 2,16×",
        "2.16",
        _MORE_MEMORY,
        "most",
    ),
    Number(
        CONCLUSION,
        "More memory cuts the cost by 8.5 %",
        "reduzindo o custo financeiro em 8,5%",
        "8.5",
        _of("percent less", _memory(WARM, VGG19, 2, COST), _memory(WARM, VGG19, 1, COST)),
    ),
    Number(
        CONCLUSION,
        "The instance type makes total latency up to 1.5 times as fast",
        "é possível otimizar o tempo de latência total em até 1.5×",
        "1.5",
        _INSTANCE_PAIRS,
        "most",
    ),
    *_speed(ARTICLE, Q_ARTICLE, "m6g", "m5", "1.71", "1.32"),
)
