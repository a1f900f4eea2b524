// SPDX-License-Identifier: Apache-2.0
// What equal calls of an op share: its Call, the layouts of its results, its steps if it is a view.
#pragma once
#include "bridge/alias.h"

namespace spmdx::bridge {

struct Interned {
  std::vector<uint64_t> key;
  CallRef call;                               // null for a view-like op
  std::vector<std::vector<MetaRef>> results;  // per result of the schema its tensors
  std::vector<ViewResult> views;              // of a view-like op
};

// Entries live and keep their address for the process' life. REQUIRES: the recorder's lock.
const Interned& intern_op(const OpInfo& info, IValues args, const Key& key);
const Interned& intern_view(const OpInfo& info, IValues args);

}  // namespace spmdx::bridge
