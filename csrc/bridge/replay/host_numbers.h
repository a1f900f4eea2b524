// SPDX-License-Identifier: Apache-2.0
// HostNumbers: arithmetic that a call does on the host, as the bias corrections of Adam, done anew at each replay.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace spmdx::bridge {

// A list of operations in the order of the call. What they begin with are numbers that change from call to call: those
// of tensors of the host, and those that Python gives. All members: Program threads, with the GIL.
class HostNumbers {
 public:
  enum class Op : uint8_t { of_tensor, given, add, subtract, multiply, divide, power, negate, absolute, root };
  enum class Comparison : uint8_t { less, less_equal, equal };
  // A result of an operation before, or a constant.
  struct Operand {
    int64_t result = -1;  // -1: it is `constant`
    double constant = 0;
    bool operator==(const Operand&) const;  // of constants, the bits
  };

  // Each returns the number of the result. `value`: what the call had.
  int64_t add_tensor(const at::Tensor& tensor, double value);
  int64_t add_given(int64_t which, double value);
  int64_t add(Op op, Operand a, Operand b, double value);
  // The call went on as this comparison came out.
  void add_guard(Comparison comparison, Operand a, Operand b, bool holds);
  // A call of PyTorch was given these results. What it recorded has these parameters and values. `gradients`: a
  // backward pass may use the numbers again.
  struct Use {
    uint32_t params_begin = 0, params_end = 0;
    ValueId values_begin = 0, values_end = 0;
    std::vector<int64_t> results;
    bool gradients = false;
    bool in_order = false;  // one for each of a list of tensors
    bool operator==(const Use&) const = default;
  };
  void add_use(Use use) { uses_.push_back(std::move(use)); }
  const std::vector<Use>& uses() const { return uses_; }
  // The call adds to a tensor of one real number on the host before it reads numbers; so does each repetition.
  void add_increment(const at::Tensor& tensor, double by) { increments_.push_back({tensor, by}); }
  // What replays write to tensors of the host; where a replay stops, they are as before it.
  void note_written(const at::Tensor& tensor);

  size_t num_given() const { return num_given_; }
  bool empty() const { return operations_.empty(); }
  // Whether the other call did the same operations, on other numbers.
  bool alike(const HostNumbers& other) const;
  // Whether doing them again gives, from the numbers that the call began with, what it had.
  bool can_repeat() const;
  const std::vector<double>& values() const { return values_; }
  // Numbers that were the same in this call and those before it: nobody knows what the call would do with others.
  // REQUIRES: they are alike.
  void hold(const std::vector<std::shared_ptr<HostNumbers>>& before);
  // Adds to tensors, and does the operations again with the numbers that there are now. Returns whether those that are
  // held are what they were, all comparisons come out as they did, and all results are finite numbers.
  bool repeat(const std::vector<double>& given);
  // What that gave.
  const std::vector<double>& repeated() const { return repeated_; }

  // What the tensors hold that replays write to; and back to that, unless the step was sent since.
  void save();
  void restore();
  void note_sent() { saved_.clear(); }

 private:
  struct Operation {
    Op op;
    Operand a, b;
    int64_t from = 0;      // of the tensors, or of the given numbers
    bool is_held = false;  // it begins with a number that has to be what it was
  };
  struct Guard {
    Comparison comparison;
    Operand a, b;
    bool holds;
    size_t after = 0;  // results that were there
  };
  std::optional<std::vector<double>> results(const std::vector<double>& sources) const;

  struct Increment {
    at::Tensor tensor;
    double by;
  };

  std::vector<at::Tensor> tensors_, written_;
  std::vector<Increment> increments_;
  std::vector<std::string> saved_;
  std::vector<Operation> operations_;
  std::vector<Guard> guards_;
  std::vector<Use> uses_;
  std::vector<double> values_, repeated_;
  size_t num_given_ = 0;
};

}  // namespace spmdx::bridge
