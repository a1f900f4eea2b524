# SPDX-License-Identifier: Apache-2.0
"""Programs that are no nets: clusters, iterations, stencils, transforms, search."""

import functools

import torch
from program_row import (
    F32,
    I64,
    Row,
    exchanged,
    floats,
    gathered,
    integers,
    marked,
    reduced,
    repeated,
    scattered,
)

LINE = {"x": 8}
POINTS, FEATURES, CLUSTERS = 65536, 256, 512


def clusters(mesh):
    """A step of k-means: points cut, centres whole."""
    points, centres = marked(mesh, floats(POINTS, FEATURES), "x"), floats(CLUSTERS, FEATURES)
    marked(mesh, centres)

    def step():
        distances = centres.square().sum(1) - 2 * (points @ centres.t())
        nearest = distances.argmin(1)
        sums = torch.zeros_like(centres).index_add(0, nearest, points)
        ones = torch.ones_like(points[:, 0])
        counts = torch.zeros_like(centres[:, 0]).index_add(0, nearest, ones)
        centres.copy_(sums / counts[:, None])

    return repeated(step)


def covariance(mesh, spec):
    points = marked(mesh, floats(POINTS, 1024), "x")
    return repeated(lambda: marked(mesh, points.t() @ points, *spec))


def statistics():
    n = CLUSTERS * (FEATURES + 1) * F32
    # Sums and counts of all points; the centres are kept whole.
    yield Row("k-means, points cut", LINE, clusters, reduced(n, 8), "AR sums", small=4096)
    n = 1024 * 1024 * F32
    for spec, least, why in (((), reduced(n, 8), "AR"), (("x",), scattered(n, 8), "RS")):
        run = functools.partial(covariance, spec=spec)
        name = "covariance, points cut, result " + ("cut" if spec else "whole")
        yield Row(name, LINE, run, least, why)


# --- iterations -----------------------------------------------------------------------------------

M, VECTORS, TIMES = 4096, 64, 4


def iterated(mesh, spec):
    """A few steps towards the largest eigenvectors, from and to whole vectors."""
    matrix, vectors = marked(mesh, floats(M, M), *spec), marked(mesh, floats(M, VECTORS))

    def step():
        v = vectors
        for _ in range(TIMES):
            v = matrix @ v
            v = v / v.norm(dim=0)
        vectors.copy_(v)

    return repeated(step)


def relaxed(mesh):
    """Sweeps over a grid that is a torus."""
    grid = marked(mesh, floats(M, M), "x")

    def step():
        u = grid
        for _ in range(TIMES):
            u = (u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1)) / 4
        grid.copy_(u)

    return repeated(step)


def iterations():
    n = M * VECTORS * F32
    run = functools.partial(iterated, spec=("x",))
    # Rows of a product are gathered for the next one, and at the end.
    least = TIMES * gathered(n, 8)
    yield Row("power iteration, rows cut", LINE, run, least, "an AG each time")
    run = functools.partial(iterated, spec=(None, "x"))
    # A partial product is scattered to the rows that the next one reads; the last is gathered.
    least = TIMES * scattered(n, 8) + gathered(n, 8)
    yield Row("power iteration, columns cut", LINE, run, least, "a RS each time, an AG")
    # A row from each side, each time.
    least = 2 * TIMES * M * F32
    yield Row("relaxation of a grid", LINE, relaxed, least, "2 rows each time", small=4096)


# --- whole dims of cut tensors --------------------------------------------------------------------


def transformed(mesh):
    x = marked(mesh, floats(M, M, dtype=torch.complex64), "x")
    return repeated(lambda: torch.fft.fft(torch.fft.fft(x, dim=1), dim=0))


def transposed(mesh):
    x = marked(mesh, floats(M, M), "x")
    return repeated(lambda: marked(mesh, x.t() * 2, "x"))


def kernel(mesh):
    x, v = (marked(mesh, floats(8192, 64), "x") for _ in "xv")

    def step():
        lengths = x.square().sum(1)
        distances = lengths[:, None] + lengths - 2 * (x @ x.t())
        return torch.exp(-distances) @ v

    return repeated(step)


def moved():
    run, n = transformed, M * M * 8
    yield Row("Fourier transform of rows and columns", LINE, run, exchanged(n, 8), "A2A")
    yield Row("transposition", LINE, transposed, exchanged(M * M * F32, 8), "A2A")
    # A device has the rows of the kernel's matrix that belong to its points.
    least = 2 * gathered(8192 * 64 * F32, 8)
    yield Row("kernel matrix times values", LINE, kernel, least, "AG points, AG values")


# --- search ---------------------------------------------------------------------------------------


def found(mesh, count):
    queries, documents = floats(4096, 256), marked(mesh, floats(POINTS, 256), "x")
    marked(mesh, queries)
    return repeated(lambda: (queries @ documents.t()).topk(count))


def returns(mesh):
    """Discounted sums from the end, of many cut episodes."""
    rewards = marked(mesh, floats(2048, 4096), None, "x")
    return repeated(lambda: rewards.flip(0).cumsum(0).flip(0))


def histogram(mesh):
    ids = marked(mesh, integers(1 << 20), "x")
    weights = marked(mesh, floats(1 << 20), "x")
    return repeated(lambda: marked(mesh, torch.zeros_like(weights[:M]).index_add(0, ids, weights)))


def lookups():
    run = functools.partial(found, count=10)
    # The first of each part, with their places, for the queries of a device.
    least = exchanged(8 * 4096 * 10 * (F32 + I64), 8)
    yield Row("search in cut documents", LINE, run, least, "A2A of parts' first 10")
    yield Row("sums over time of cut episodes", LINE, returns, 0, "nothing crosses", small=0)
    least = reduced(M * F32, 8)
    yield Row("histogram of cut numbers", LINE, histogram, least, "AR of bins", small=1024)


def rows():
    return [*statistics(), *iterations(), *moved(), *lookups()]
