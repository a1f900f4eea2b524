# SPDX-License-Identifier: Apache-2.0
"""How each primitive op is written as nodes of ONNX, in tables by the ops' names.

A row is called with a writer, the types of the results, and the arguments of the op, whose tensors
are those of the writer; it gives a tensor, or a list of them.
"""
