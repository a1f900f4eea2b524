# SPDX-License-Identifier: Apache-2.0
"""Batches of a loader, split over processes and laid on the devices."""
