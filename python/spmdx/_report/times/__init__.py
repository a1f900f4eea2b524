# SPDX-License-Identifier: Apache-2.0
"""When things run: pictures of time lines and of schedules of pipelines."""
