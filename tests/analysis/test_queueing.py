"""Closed forms against the tables of others.

The tables of Rappaport, Gross and Harris, and Kleinrock are cited from memory, and agree with the code to every digit
given.
"""

from math import exp, inf

import numpy as np
import pytest

from fundoscope.analysis.queueing import (
    cold_share,
    cold_share_of_one,
    erlang_b,
    erlang_c,
    md1_wait_s,
    mdc_wait_s,
    mg1_wait_s,
    mmc_wait_quantile_s,
    mmc_wait_s,
)


@pytest.mark.parametrize(
    ("servers", "offered", "blocked"),
    [  # Rappaport, Wireless Communications (2nd edition), Table 3.4: capacity of an Erlang B system, in erlangs
        (2, 0.153, 0.01),
        (4, 0.869, 0.01),
        (5, 1.36, 0.01),
        (10, 4.46, 0.01),
        (20, 12.0, 0.01),
        (24, 15.3, 0.01),
        (40, 29.0, 0.01),
        (70, 56.1, 0.01),
        (100, 84.1, 0.01),
        (10, 3.96, 0.005),
        (20, 11.1, 0.005),
        (100, 80.9, 0.005),
    ],
)
def test_blocking_is_as_in_the_published_table(servers: int, offered: float, blocked: float) -> None:
    # Three digits are printed: the printed load blocks as much as the share says to within what rounding moves it.
    least, most = (erlang_b(servers, offered * (1 + change)) for change in (-0.005, 0.005))
    assert least <= blocked <= most


def test_an_eye_clinic_with_three_doctors() -> None:
    """Gross and Harris, Fundamentals of Queueing Theory, the city hospital's eye clinic in the section on M/M/c.

    Six patients an hour, twenty minutes each, three doctors: 8/9 patients wait on average, a visit takes 28.9 minutes.
    """
    rate, service_s = 6 / 3600, 1200.0
    wait_s = mmc_wait_s(rate, service_s, 3)
    assert rate * wait_s == pytest.approx(8 / 9)
    assert (wait_s + service_s) / 60 == pytest.approx(28.9, abs=0.05)
    assert erlang_c(3, 2.0) == pytest.approx(4 / 9)


def test_one_server_is_the_textbook_case() -> None:
    # M/M/1: rho/(mu - lambda); at 0.9 nine others are in the system and the mean wait is nine services.
    assert mmc_wait_s(0.9, 1.0) == pytest.approx(9.0)
    assert mmc_wait_quantile_s(0.95, 0.9, 1.0) == pytest.approx(10 * np.log(0.9 / 0.05))
    assert mmc_wait_quantile_s(0.05, 0.9, 1.0) == 0.0
    assert mmc_wait_s(1.0, 1.0) == inf


@pytest.mark.parametrize(("busy", "services"), [(0.5, 0.5), (0.6, 0.75), (0.8, 2.0), (0.9, 4.5), (0.95, 9.5)])
def test_constant_service_waits_half_as_long(busy: float, services: float) -> None:
    """Pollaczek and Khinchine for M/D/1: rho / (2 (1 - rho)) services (Kleinrock, Queueing Systems I, section 5.6)."""
    assert md1_wait_s(busy / 3, 3.0) == pytest.approx(3 * services)
    assert mg1_wait_s(busy / 3, 3.0, 1.0) == pytest.approx(mmc_wait_s(busy / 3, 3.0))


def crommelin(rate: float, service_s: float, servers: int) -> float:
    """The exact mean wait of M/D/c: who is there now leaves within one service time unless they queue (Crommelin 1932).

    N(t + D) = max(N(t) - c, 0) + Poisson(rate D), solved on as many states as matter.
    """
    size, mean = 600, rate * service_s
    poisson = np.exp(np.cumsum(np.log(np.r_[1.0, np.full(size - 1, mean) / np.arange(1, size)])) - mean)
    step = np.zeros((size, size))
    for n in range(size):
        left = max(n - servers, 0)
        step[n, left:] = poisson[: size - left]
        step[n, -1] += 1 - step[n].sum()
    balance = np.vstack([step.T - np.eye(size), np.ones(size)])
    chance = np.linalg.lstsq(balance, np.r_[np.zeros(size), 1.0], rcond=None)[0]
    return float(np.maximum(np.arange(size) - servers, 0) @ chance) / rate


@pytest.mark.parametrize("servers", [1, 2, 4, 8])
@pytest.mark.parametrize("busy", [0.6, 0.8, 0.9])
def test_many_servers_of_constant_service_wait_as_crommelin_says(servers: int, busy: float) -> None:
    exact = crommelin(busy * servers / 2, 2.0, servers)
    assert mdc_wait_s(busy * servers / 2, 2.0, servers) == pytest.approx(exact, rel=0.03)


def test_a_pool_of_one_is_cold_when_nobody_came_for_long_enough() -> None:
    assert cold_share_of_one(1 / 600, 600) == pytest.approx(exp(-1))


def test_a_pool_without_overlap_is_a_pool_of_one() -> None:
    assert cold_share(1 / 600, 1e-6, 600) == pytest.approx(exp(-1), rel=1e-4)


def test_two_containers_by_hand() -> None:
    """Rare overlap: the first container is cold as ever, the second nearly always, being needed about never."""
    rate, service_s, idle_s = 0.01, 1.0, 300.0
    meets_one = rate * service_s  # to first order
    assert cold_share(rate, service_s, idle_s) == pytest.approx(exp(-rate * idle_s) + meets_one, rel=0.05)
    assert cold_share(rate, service_s, idle_s, ready=1) == pytest.approx(meets_one, rel=0.05)


def test_cold_starts_become_rare_with_traffic_and_never_happen_with_enough_kept_ready() -> None:
    # Not at every step: at 0.1 a second the second container is needed for 3 % of requests, and is mostly gone again.
    shares = [cold_share(rate, 0.3, 600.0) for rate in (0.0001, 0.001, 0.1, 1.0, 10.0, 99.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.9
    assert shares[-1] == pytest.approx(1 / (99.0 * 600))  # one in ten minutes
    assert cold_share(0.01, 0.3, 600.0, ready=12) < 1e-9
    assert cold_share(0.0, 0.3, 600.0) == 1.0
