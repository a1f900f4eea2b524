# SPDX-License-Identifier: Apache-2.0
"""When things run: time lines, schedules of pipelines, and the load of devices."""
