// SPDX-License-Identifier: Apache-2.0
// What equal calls of an op share: its Call, the layouts of its results, its steps if it is a view.
#pragma once
#include <memory>

#include "bridge/record/call/ivalue.h"
#include "bridge/record/call/op_info.h"
#include "bridge/record/call/views.h"
#include "bridge/tensor/meta.h"

namespace spmdx::bridge {

struct Interned {
  std::vector<uint64_t> key;
  CallRef call;                               // null for a view-like op
  std::vector<std::vector<MetaRef>> results;  // per result of the schema its tensors
  std::vector<ViewResult> views;              // of a view-like op
};

using InternedRef = std::shared_ptr<const Interned>;

// Those used last are kept. REQUIRES: the recorder's lock.
InternedRef intern_op(const OpInfo& info, IValues args, const Key& key);
InternedRef intern_view(const OpInfo& info, IValues args);
size_t interned_count();

}  // namespace spmdx::bridge
