# SPDX-License-Identifier: Apache-2.0
"""Parts of a model that is searched: what each costs, and what is computed again."""
