# SPDX-License-Identifier: Apache-2.0
"""One constant of a device, fitted on one run; and how far predictions of the others are off."""

import dataclasses
import statistics


def scaled(hardware, share):
    """The device whose products of matrices reach ``share`` of what the profile says."""
    points = [(size, of_peak * share) for size, of_peak in hardware.product_efficiency]
    return dataclasses.replace(hardware, product_efficiency=points)


def fitted(hardware, seconds_by, wanted, rounds=4):
    """The share by which ``seconds_by(hardware)`` comes out as ``wanted``, and the device."""
    share = 1.0
    # Time is a + b / share: two points tell both, which change little as a step is planned anew.
    known = [(at, seconds_by(scaled(hardware, at))) for at in (1.0, 0.7)]
    for _ in range(rounds):
        (s, t), (s2, t2) = known[-2:]
        b = (t - t2) / (1 / s - 1 / s2)
        share = min(1.0, max(0.2, b / (wanted - (t - b / s)) if wanted > t - b / s else 1.0))
        if abs(share - s2) < 1e-4:
            break
        known.append((share, seconds_by(scaled(hardware, share))))
    return share, scaled(hardware, share)


def errors(predicted, published):
    """By row, how far the prediction is off, as a share of what was published."""
    return [p / q - 1 for p, q in zip(predicted, published, strict=True)]


def mean_error(found):
    """Of such shares, without their signs."""
    return statistics.fmean(map(abs, found))


def trivial(published):
    """For each row the mean of all others: what is predicted by one who knows nothing of them."""
    total, count = sum(published), len(published)
    return [(total - one) / (count - 1) for one in published]


def rank_correlation(a, b):
    """Spearman's, of two lists without equal figures."""
    places = [[sorted(of).index(one) for one in of] for of in (a, b)]
    return statistics.correlation(*places)
