// SPDX-License-Identifier: Apache-2.0
// What the recorded graph holds of uploads: counted as they are read, and let go of once no live value needs them.
#include <algorithm>
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include "base/error.h"
#include "bridge/recorder/recorder_state.h"
#include "bridge/tensor/root.h"
#include "bridge/world/c10d_comm.h"
#include "graph/rewrite.h"
#include "sharding/shards.h"

namespace spmdx::bridge {
namespace {

// At most, and the same in all processes.
int64_t bytes_here(const Data& data) {
  const TensorType& type = data.type();
  if (!data.sharding()) return type.bytes();
  return std::min(type.bytes(), bytes_on_a_device(type, data.sharding()) * comm().processes().devices);
}

// Bytes let go of, after which the system gets them back. To touch memory anew costs about what it costs to copy it.
constexpr int64_t kGivenBack = 33'554'432;

// The C library keeps what was freed in the midst of its heap, and the next uploads may not fit into these holes.
void give_back_heap() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// Stands where an input was that no value needs.
const DataRef& dropped() {
  static const auto* data = [] {
    auto made = std::make_shared<Data>(TensorType{DType::f32, {0}, false});
    made->fail(std::make_exception_ptr(InternalError("a step reads an input that no live value needed")));
    return new DataRef(std::move(made));
  }();
  return *data;
}

}  // namespace

void RecorderState::note_upload(Data& data) {
  if (!data.is_first_read()) return;
  const int64_t bytes = bytes_here(data);
  uploads.bytes += bytes;
  uploads.since_sweep += bytes;
}

// A view's cached value is an ancestor of its root's value, or computed from that alone; data of a root has a second
// holder. So whatever a later op may read is needed here, or held by somebody else.
void RecorderState::drop_dead_inputs() {
  uploads.since_sweep = 0;
  uploads.swept = true;
  if (capture) capture->refuse("it reads more data than a step holds");
  std::vector<bool> needed(graph.values.size(), false);
  for (const RootRef& ref : changed_roots()) {
    const LazyValue& value = root_of(ref).current;
    if (pending(value)) needed[value.id] = true;
  }
  mark_needed(graph, needed);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (needed[graph.inputs[i].value] || inputs[i].use_count() > 1) continue;
    uploads.dropped += bytes_here(*inputs[i]);
    input_of.erase(inputs[i].get());
    inputs[i] = dropped();
  }
  if (uploads.dropped < kGivenBack) return;
  uploads.dropped = 0;
  give_back_heap();
}

int64_t RecorderState::bytes_held() const {
  int64_t bytes = 0;
  for (const DataRef& data : inputs)
    if (data.use_count() == 1) bytes += bytes_here(*data);
  return bytes;
}

}  // namespace spmdx::bridge
