"""The planner's lists are the best there are: against brute force on every small case, and at full size in time."""

import itertools
import random

import numpy as np
import pytest

from advisor.search.capture_planner import Steps, plan
from tests import pace


def total(steps: Steps, chosen: tuple[int, ...]) -> float:
    """By the definition: each batch in the smallest chosen size that holds it, infinite where it must not run there."""
    cut = steps.boundary if 0 < steps.boundary < len(steps.sizes) else len(steps.sizes)
    whole = 0.0
    for i, size in enumerate(steps.sizes):
        larger = [j for j, other in enumerate(steps.sizes) if other in chosen and other >= size]
        if not larger:
            whole += steps.eager_ms[i]
        elif i < cut <= larger[0]:
            return float("inf")
        else:
            whole += steps.count[i] * steps.graph_ms[larger[0]]
    return whole


def bests(steps: Steps) -> list[float]:
    """The least total with at most 0, 1, 2 .. graphs: of all subsets there are."""
    exactly = [
        min(total(steps, chosen) for chosen in itertools.combinations(steps.sizes, graphs))
        for graphs in range(len(steps.sizes) + 1)
    ]
    return list(itertools.accumulate(exactly, min))


def check(steps: Steps) -> None:
    curve = plan(steps)
    assert curve.most == len(steps.sizes)
    for graphs, least in enumerate(bests(steps)):
        chosen = curve.sizes(graphs)
        assert len(chosen) <= graphs and list(chosen) == sorted(set(chosen)) and set(chosen) <= set(steps.sizes)
        assert curve.total_ms[graphs] == pytest.approx(least, rel=1e-9)
        assert total(steps, chosen) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("size", range(1, 5))
def test_all_small_cases(size):
    """Every combination of few or many steps, equal or rising times, and cheap or dear steps without a graph."""
    for counts in itertools.product((1, 7), repeat=size):
        for rises in itertools.product((0, 1, 5), repeat=size - 1):
            for dear in itertools.product((0.5, 3), repeat=size):
                graph = np.cumsum([1, *rises]).tolist()
                eager = [count * ms * factor for count, ms, factor in zip(counts, graph, dear, strict=True)]
                check(Steps(tuple(range(1, size + 1)), counts, graph, eager))


@pytest.mark.parametrize("seed", range(40))
def test_random_cases_of_up_to_eight_sizes(seed):
    rng = random.Random(seed)
    for _ in range(15):
        size = rng.randint(1, 8)
        counts = [rng.choice((1, 2, 1e-3 + 100 * rng.random(), 10**7)) for _ in range(size)]
        graph = sorted(rng.choice((1, 1.5, 2, 9 * rng.random())) for _ in range(size))
        eager = [c * rng.choice((0.5, 3.0, 20.0, 2 * ms)) for c, ms in zip(counts, graph, strict=True)]
        sizes = tuple(sorted(rng.sample(range(1, 40), size)))
        check(Steps(sizes, counts, graph, eager, boundary=rng.randint(0, size)))


def test_larger_cases_against_the_plain_recurrence():
    rng = np.random.default_rng(1)
    counts, graph = rng.poisson(3, 90) + 1.0, np.sort(rng.random(90)) + 1
    steps = Steps(tuple(range(1, 91)), counts, graph, counts * 50)
    work = np.concatenate(([0], np.cumsum(counts)))
    row = np.full(91, np.inf)
    row[0] = 0
    curve = plan(steps)
    for graphs in range(1, 91):
        row = np.array(
            [0.0] + [min(row[i] + (work[j] - work[i]) * graph[j - 1] for i in range(j)) for j in range(1, 91)]
        )
        # `row` needs exactly so many graphs where there are as many sizes; everything is covered, as 50 ms is dear.
        assert curve.total_ms[graphs] == pytest.approx(row[90], rel=1e-12)


def test_decode_batches_never_run_in_a_size_of_the_others():
    steps = Steps((8, 64), (10, 1), (1.0, 1.1), (100, 100), boundary=1)
    assert plan(steps).sizes(1) == (8,)  # 64 would take both, were it allowed
    assert plan(steps).sizes(2) == (8, 64)
    assert plan(Steps((8, 64), (10, 1), (1.0, 1.1), (100, 100))).sizes(1) == (64,)


def test_no_graph_where_none_is_quicker():
    assert plan(Steps((1, 2), (5, 5), (2.0, 2.0), (1.0, 1.0))).sizes(2) == ()


def test_a_limit_on_graphs():
    curve = plan(Steps((1, 2, 3), (1, 1, 1), (1, 2, 3), (9, 9, 9)), most=2)
    assert curve.most == 2 and curve.sizes(7) == curve.sizes(2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sizes": (2, 1)},
        {"count": (1, 0)},
        {"graph_ms": (2, 1)},
        {"eager_ms": (1,)},
    ],
)
def test_impossible_input_is_refused(wrong):
    given = {"sizes": (1, 2), "count": (1, 1), "graph_ms": (1, 2), "eager_ms": (3, 3), **wrong}
    with pytest.raises(ValueError):
        Steps(**given)


SHAPES = {
    "even": np.ones(1024),
    "one load": np.random.default_rng(0).poisson(2000 * np.exp(-((np.arange(1024) - 600) ** 2) / 5000)) + 1.0,
    "heavy tails": np.random.default_rng(0).lognormal(0, 3, 1024),
    "few large": np.where(np.arange(1024) % 128 == 0, 1000.0, 1.0),
}

LIMIT_S = 0.050


@pytest.mark.parametrize("shape", SHAPES)
def test_1024_sizes_take_less_than_50_ms(shape):
    """The whole curve, 1 to 1024 graphs: 20 to 43 ms on a core of an AMD EPYC (two cores, both busy). Processor time."""
    steps = Steps(tuple(range(1, 1025)), SHAPES[shape], 2 + 0.01 * np.arange(1024), SHAPES[shape] * 20)

    def planned() -> None:
        curve = plan(steps)
        assert curve.most == 1024 and len(curve.sizes(51)) <= 51

    spent = pace.best_s(lambda: pace.spent_s(planned), pace.arrays_s, pace.ARRAYS_S, LIMIT_S)
    assert spent < LIMIT_S
