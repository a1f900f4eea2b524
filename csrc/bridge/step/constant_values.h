// SPDX-License-Identifier: Apache-2.0
// Which values of the recorded graph are constants, and the part of the graph that computes one of them.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "bridge/recorder/recorder_state.h"
#include "bridge/tensor/known.h"

namespace spmdx::bridge {

// What the program said a tensor holds: the value `of`, or what a view by `steps` (null: none) shows of it.
struct Assumed {
  LazyValue of;
  ViewChain steps;
  DataRef elements;
};

// Of a graph that does not change while this lives. Holds the recorder's lock.
class ConstantValues {
 public:
  // `most`: bytes of the largest value that may be computed. `is_given`: whether data with elements are constants.
  ConstantValues(const RecorderState& state, const std::vector<Assumed>& assumed, int64_t most,
                 bool (*is_given)(const Data&));
  bool constant(ValueId value) const { return largest_[value] >= 0; }
  // Of a constant, the bytes of a value that it is computed from, or of itself, if that has too many; 0: none has.
  int64_t too_large(ValueId value) const { return largest_[value]; }
  // What is known of a constant's elements: how to compute them.
  Known known(ValueId value) const;

 private:
  void add_input(size_t index);
  void add_node(const Node& node);
  bool shows(ValueId value, const Assumed& assumed, ValueId of) const;
  std::vector<NodeId> nodes_of(ValueId value) const;

  const RecorderState& state_;
  const int64_t most_;
  bool (*const is_given_)(const Data&);
  std::vector<int64_t> largest_;                              // by value; -1: it is no constant
  std::unordered_map<ValueId, DataRef> leaves_;               // inputs that are constants, and assumed values
  std::vector<std::pair<const Assumed*, ValueId>> of_views_;  // with the value of the view's root
};

}  // namespace spmdx::bridge
