// SPDX-License-Identifier: Apache-2.0
// Values of several devices, put together on the host, and taken apart there.
#pragma once
#include <ATen/core/Tensor.h>

#include "runtime/data/data.h"

namespace spmdx::bridge {

// The whole of `data` on the host, of which `shards` are the shards; may share memory with them. Any thread, with or
// without locks: the caller has waited for the data and holds it.
// Where it does not, it has the strides and the dtype of `like`; undefined: row by row, in the dtype of the data.
at::Tensor assembled(const Data& data, const Shards& shards, const at::Tensor& like = {});
// Whether that is in memory of its own.
bool is_assembled(const Data& data);

// Writes the elements of a CPU tensor into the memory that `target` has, at once, whichever way it is cut: nothing else
// is allocated, and no step runs. False: it is not all of its memory or of this type, or somebody else holds or may
// want back what is there. REQUIRES: `target` is ours. Holds the recorder's lock.
bool overwrite(const at::Tensor& target, const at::Tensor& host);

}  // namespace spmdx::bridge
