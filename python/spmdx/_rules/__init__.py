# SPDX-License-Identifier: Apache-2.0
"""Rules of users' own ops, tried against the ops themselves."""
