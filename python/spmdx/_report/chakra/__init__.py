# SPDX-License-Identifier: Apache-2.0
"""Traces of plans for simulators of clusters, in the format of MLCommons Chakra."""
