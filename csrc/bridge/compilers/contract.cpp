// SPDX-License-Identifier: Apache-2.0
// The contract of kernels: bits of inputs, and places of results.
#include "bridge/compilers/contract.h"

#include <ATen/Functions.h>

#include <functional>
#include <sstream>
#include <stdexcept>

#include "base/types.h"

namespace spmdx::bridge {
namespace {

// A dim of size 1 may have any stride.
at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.contiguous().as_strided({tensor.numel()}, {1}).view(at::kByte);
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  const auto from = [](const at::Tensor& tensor) { return static_cast<const char*>(tensor.storage().data()); };
  const auto to = [&](const at::Tensor& tensor) { return from(tensor) + tensor.storage().nbytes(); };
  const std::less<> lies_before;
  return a.numel() > 0 && b.numel() > 0 && lies_before(from(a), to(b)) && lies_before(from(b), to(a));
}

[[noreturn]] void refuse(const at::Tensor& result, size_t index, const std::string& why) {
  throw std::runtime_error("result " + std::to_string(index) + ", " + told(result) + ", " + why +
                           ". Expected new tensors of every run.");
}

}  // namespace

void require_only_read(const Given& given, size_t index) {
  if (given.now.numel() == 0 || at::equal(bytes_of(given.now), bytes_of(given.before))) return;
  throw std::runtime_error("it wrote over input " + std::to_string(index) + ", " + told(given.before) +
                           ". Expected it only to read what segment.over does not name.");
}

void require_fresh(const std::vector<at::Tensor>& first, const std::vector<at::Tensor>& second) {
  for (size_t i = 0; i < first.size(); ++i)
    for (const at::Tensor& other : second)
      if (share_memory(first[i], other)) refuse(first[i], i, "lies where another run put its own");
}

void require_own_memory(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs) {
  const auto hides = [](const at::Tensor& a, const at::Tensor& b) { return share_memory(a, b) && !a.is_alias_of(b); };
  for (size_t i = 0; i < results.size(); ++i) {
    for (const at::Tensor& input : inputs)
      if (hides(results[i], input)) refuse(results[i], i, "lies in memory of an input");
    for (size_t j = 0; j < i; ++j)
      if (hides(results[i], results[j])) refuse(results[i], i, "lies in memory of another result");
  }
}

std::string told(const at::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  std::ostringstream layout;
  if (tensor.layout() != at::kStrided) layout << " laid as " << tensor.layout();
  return std::string(c10::toString(tensor.scalar_type())) + str(tensor.sizes().vec()) + layout.str();
}

}  // namespace spmdx::bridge
