// SPDX-License-Identifier: Apache-2.0
// Known elements: what abstract data would hold, of constants and of what the program says.
#pragma once
#include <cstdint>
#include <functional>

#include "bridge/tensor/tensor.h"

namespace spmdx::bridge {

// Bytes up to which a tensor that moves to the device while steps are only planned is copied, so that it can be read.
constexpr int64_t kMostUploadedBytes = 1 << 20;

// What is known of the elements of one data.
struct Known {
  DataRef elements = nullptr;             // data that have them; null: nobody has asked yet
  std::function<DataRef()> compute = {};  // what makes them, where nobody has asked
  int64_t too_large = 0;                  // bytes of a value that is not computed because it has so many; 0: none is
  uint32_t depth = 0;  // of how many steps, one after the other, the values would have to be computed
};

// All: Holds the recorder's lock.

void note_known(const DataRef& data, Known known);
// Null: nothing is known. Valid until the next note.
const Known* find_known(const Data& data);
// Data with the elements of `data`, computed now if nobody has asked before; null: nothing is known. REQUIRES: they are
// not too large.
DataRef elements_of(const DataRef& data);
void forget_known(const Data& data);
void forget_all_known();

// The value of the recorded graph is whatever memory held, as of torch.empty: no constant, though it is recorded as
// zeros.
void note_unknown(const LazyValue& value);
bool is_unknown(ValueId value, uint64_t epoch);

// The elements of a CPU tensor, copied, become known of the data; not of one that is large or needs a gradient, as
// parameters do.
void note_uploaded(const DataRef& data, const at::Tensor& host);

}  // namespace spmdx::bridge
