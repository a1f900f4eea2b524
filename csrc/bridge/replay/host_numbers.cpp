// SPDX-License-Identifier: Apache-2.0
// HostNumbers: the operations of Python's floats.
#include "bridge/replay/host_numbers.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace spmdx::bridge {
namespace {

using Op = HostNumbers::Op;

bool are_same(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// A number of the host as `item` gives it. REQUIRES: a real one on the CPU.
double read_number(const at::Tensor& tensor) {
  double number = 0;
  AT_DISPATCH_FLOATING_TYPES(tensor.scalar_type(), "compile",
                             [&] { number = static_cast<double>(*tensor.const_data_ptr<scalar_t>()); });
  return number;
}

// As PyTorch adds on the CPU: in the tensor's own dtype.
void increment(const at::Tensor& tensor, double by) {
  AT_DISPATCH_FLOATING_TYPES(tensor.scalar_type(), "compile",
                             [&] { *tensor.mutable_data_ptr<scalar_t>() += static_cast<scalar_t>(by); });
  tensor.unsafeGetTensorImpl()->bump_version();
}

double apply(Op op, double a, double b) {
  switch (op) {
    case Op::add:
      return a + b;
    case Op::subtract:
      return a - b;
    case Op::multiply:
      return a * b;
    case Op::divide:
      return a / b;
    case Op::power:
      return std::pow(a, b);
    case Op::negate:
      return -a;
    case Op::absolute:
      return std::abs(a);
    case Op::root:
      return std::sqrt(a);
    default:
      return a;
  }
}

bool is_source(Op op) { return op == Op::of_tensor || op == Op::given; }

bool holds(HostNumbers::Comparison comparison, double a, double b) {
  if (comparison == HostNumbers::Comparison::less) return a < b;
  return comparison == HostNumbers::Comparison::equal ? a == b : a <= b;
}

}  // namespace

bool HostNumbers::Operand::operator==(const Operand& other) const {
  return result == other.result && (result >= 0 || are_same(constant, other.constant));
}

int64_t HostNumbers::add_tensor(const at::Tensor& tensor, double value) {
  tensors_.push_back(tensor);
  operations_.push_back({Op::of_tensor, {}, {}, static_cast<int64_t>(tensors_.size()) - 1, false});
  values_.push_back(value);
  return static_cast<int64_t>(values_.size()) - 1;
}

int64_t HostNumbers::add_given(int64_t which, double value) {
  num_given_ = std::max(num_given_, static_cast<size_t>(which) + 1);
  operations_.push_back({Op::given, {}, {}, which, false});
  values_.push_back(value);
  return static_cast<int64_t>(values_.size()) - 1;
}

int64_t HostNumbers::add(Op op, Operand a, Operand b, double value) {
  operations_.push_back({op, a, b, 0, false});
  values_.push_back(value);
  return static_cast<int64_t>(values_.size()) - 1;
}

void HostNumbers::add_guard(Comparison comparison, Operand a, Operand b, bool holds) {
  guards_.push_back({comparison, a, b, holds, values_.size()});
}

void HostNumbers::note_written(const at::Tensor& tensor) {
  const auto is_it = [&](const at::Tensor& other) { return other.is_same(tensor); };
  if (std::ranges::none_of(written_, is_it)) written_.push_back(tensor);
}

bool HostNumbers::alike(const HostNumbers& other) const {
  const auto same_operation = [](const Operation& x, const Operation& y) {
    return x.op == y.op && x.a == y.a && x.b == y.b && x.from == y.from;
  };
  const auto same_guard = [](const Guard& x, const Guard& y) {
    return x.comparison == y.comparison && x.a == y.a && x.b == y.b && x.holds == y.holds && x.after == y.after;
  };
  const auto same_tensor = [](const at::Tensor& x, const at::Tensor& y) { return x.is_same(y); };
  return std::ranges::equal(operations_, other.operations_, same_operation) &&
         std::ranges::equal(guards_, other.guards_, same_guard) && uses_ == other.uses_ &&
         std::ranges::equal(tensors_, other.tensors_, same_tensor) &&
         std::ranges::equal(written_, other.written_, same_tensor);
}

std::optional<std::vector<double>> HostNumbers::results(const std::vector<double>& sources) const {
  std::vector<double> found;
  found.reserve(operations_.size());
  const auto value = [&](const Operand& operand) {
    return operand.result < 0 ? operand.constant : found[static_cast<size_t>(operand.result)];
  };
  auto guard = guards_.begin();
  size_t source = 0;
  for (size_t i = 0; i <= operations_.size(); ++i) {
    for (; guard != guards_.end() && guard->after == i; ++guard)
      if (holds(guard->comparison, value(guard->a), value(guard->b)) != guard->holds) return std::nullopt;
    if (i == operations_.size()) break;
    const Operation& operation = operations_[i];
    const bool begins = is_source(operation.op);
    if (operation.is_held && !are_same(sources[source], values_[i])) return std::nullopt;
    found.push_back(begins ? sources[source++] : apply(operation.op, value(operation.a), value(operation.b)));
    if (!std::isfinite(found.back())) return std::nullopt;
  }
  return found;
}

bool HostNumbers::can_repeat() const {
  std::vector<double> sources;
  for (size_t i = 0; i < operations_.size(); ++i)
    if (is_source(operations_[i].op)) sources.push_back(values_[i]);
  const auto again = results(sources);
  return again && std::ranges::equal(*again, values_, are_same);
}

void HostNumbers::hold(const std::vector<std::shared_ptr<HostNumbers>>& before) {
  for (size_t i = 0; i < operations_.size(); ++i) {
    const auto is_same = [&](const auto& call) { return are_same(call->values_[i], values_[i]); };
    operations_[i].is_held = is_source(operations_[i].op) && std::ranges::all_of(before, is_same);
  }
}

bool HostNumbers::repeat(const std::vector<double>& given) {
  for (const auto& [tensor, by] : increments_) increment(tensor, by);
  std::vector<double> sources;
  for (const Operation& operation : operations_) {
    if (operation.op == Op::of_tensor) sources.push_back(read_number(tensors_[static_cast<size_t>(operation.from)]));
    if (operation.op == Op::given) sources.push_back(given.at(static_cast<size_t>(operation.from)));
  }
  auto found = results(sources);
  if (found) repeated_ = std::move(*found);
  return found.has_value();
}

void HostNumbers::save() {
  saved_.clear();
  for (const at::Tensor& tensor : written_)
    saved_.emplace_back(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
}

void HostNumbers::restore() {
  for (size_t i = 0; i < saved_.size(); ++i)
    std::memcpy(written_[i].mutable_data_ptr(), saved_[i].data(), saved_[i].size());
}

}  // namespace spmdx::bridge
