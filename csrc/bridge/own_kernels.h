// SPDX-License-Identifier: Apache-2.0
// Own kernels: what computes the ops named "spmdx.…", one function of tensors each.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>

#include "base/error.h"
#include "bridge/aten_backend.h"
#include "bridge/place.h"

namespace spmdx::bridge {

// All results of a call, from its operands and parameters.
using Compute = std::function<std::vector<at::Tensor>(std::span<const BufferRef> inputs, std::span<const Param>)>;
using PrepareCompute = Compute (*)(const Call& local);
using OwnKernels = std::map<std::string_view, PrepareCompute>;

const OwnKernels& table_kernels();      // own_kernels.cpp: rows of cut tables, as_strided
const OwnKernels& window_kernels();     // window_kernels.cpp
const OwnKernels& ctc_kernels();        // ctc_kernels.cpp
const OwnKernels& grouped_kernels();    // grouped_kernels.cpp
const OwnKernels& stencil_kernels();    // stencil_kernels.cpp: convolution and pooling of parts
const OwnKernels& attention_kernels();  // attention_kernels.cpp
const OwnKernels& flash_kernels();      // flash.cpp; none on the CPU, where ATen has them

Compute prepare_taps(const Call& local);  // tap_kernels.cpp: spmdx.stencil of interpolation and padding

template <class T>
const T& own_argument(const Call& call, size_t index) {
  internal_check(index < call.args.size() && std::holds_alternative<T>(call.args[index]),
                 call.op + " has no argument " + std::to_string(index) + " of the kind it needs");
  return std::get<T>(call.args[index]);
}

// A number that is a constant or a parameter; `missing` where it is absent.
double own_number(const Call& call, size_t index, std::span<const Param> params, double missing);

// Indices of elements [start, start + extent), counted from start, and `elsewhere` for all others.
at::Tensor in_window(const at::Tensor& indices, int64_t start, int64_t extent, int64_t elsewhere);
at::Tensor outside_window(const at::Tensor& indices, int64_t start, int64_t extent);

// Raises IndexError as eager does where an index is not in [least, total).
void check_indices(const at::Tensor& indices, int64_t least, int64_t total, const char* what);

}  // namespace spmdx::bridge
