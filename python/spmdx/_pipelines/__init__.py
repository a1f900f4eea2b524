# SPDX-License-Identifier: Apache-2.0
"""Pipelines of whole models: which stage holds what, as is said or as costs least."""
