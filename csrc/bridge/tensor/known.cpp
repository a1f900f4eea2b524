// SPDX-License-Identifier: Apache-2.0
// Known elements, in a table by data.
#include "bridge/tensor/known.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"

namespace spmdx::bridge {
namespace {

struct Row {
  std::weak_ptr<Data> of;  // another data may get the address
  Known known;
};

// Guarded by the recorder's lock.
struct KnownRows {
  std::unordered_map<const Data*, Row> rows;
  std::unordered_set<ValueId> unknown;  // values of the graph `epoch`
  uint64_t epoch = 0;
  size_t swept_at = 64;  // rows from which on those of data that are gone are looked for

  void sweep() {
    if (rows.size() < swept_at) return;
    std::vector<Known> gone;  // they hold data, of which there are rows
    for (auto row = rows.begin(); row != rows.end();) {
      if (!row->second.of.expired()) {
        ++row;
        continue;
      }
      gone.push_back(std::move(row->second.known));
      row = rows.erase(row);
    }
    swept_at = std::max<size_t>(64, 2 * rows.size());
  }
};

KnownRows& table() {
  static auto* instance = new KnownRows;
  return *instance;
}

}  // namespace

void note_known(const DataRef& data, Known known) {
  table().sweep();
  table().rows.insert_or_assign(data.get(), Row{data, std::move(known)});
}

const Known* find_known(const Data& data) {
  const auto row = table().rows.find(&data);
  return row == table().rows.end() || row->second.of.expired() ? nullptr : &row->second.known;
}

DataRef elements_of(const DataRef& data) {
  const Known* known = find_known(*data);
  if (!known) return nullptr;
  if (known->elements) return known->elements;
  const auto compute = known->compute;  // which may ask for other rows
  DataRef elements = compute();
  note_known(data, {.elements = elements});
  return elements;
}

void forget_known(const Data& data) { table().rows.erase(&data); }

void forget_all_known() {
  KnownRows gone;
  std::swap(gone, table());
}

void note_unknown(const LazyValue& value) {
  if (table().epoch != value.epoch) table().unknown.clear();
  table().epoch = value.epoch;
  table().unknown.insert(value.id);
}

bool is_unknown(ValueId value, uint64_t epoch) { return table().epoch == epoch && table().unknown.contains(value); }

void note_uploaded(const DataRef& data, const at::Tensor& host) {
  const bool lies_here =
      host.is_cpu() && host.layout() == at::kStrided && !host.unsafeGetTensorImpl()->is_python_dispatch();
  if (!lies_here || host.requires_grad() || static_cast<int64_t>(host.nbytes()) > kMostUploadedBytes) return;
  KernelGuard kernels_only;
  const at::Tensor copy = host.detach().resolve_conj().resolve_neg().clone(at::MemoryFormat::Contiguous);
  note_known(data, {.compute = [copy, type = data->type()] {
               return std::make_shared<Data>(type, nullptr, Shards{lent(copy)});
             }});
}

}  // namespace spmdx::bridge
