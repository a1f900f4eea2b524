// SPDX-License-Identifier: Apache-2.0
// Interned calls: equal calls of an op share its Call, the layouts of its results, and the steps of a view.
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
  std::vector<std::vector<MetaRef>> results;  // the tensors of each result of the schema
  std::vector<ViewResult> views;              // of a view-like op
};

using InternedRef = std::shared_ptr<const Interned>;

// What this call and all calls equal to it share, made at the first of them. `key` is made of the words of the op and
// its arguments (ivalue.h). Entries used last are kept. REQUIRES: the recorder's lock.
InternedRef intern_op(const OpInfo& info, IValues args, const Key& key);
InternedRef intern_view(const OpInfo& info, IValues args);
size_t interned_count();  // how many entries are kept

}  // namespace spmdx::bridge
