// SPDX-License-Identifier: Apache-2.0
// The alias root: the storage that a tensor and its views share, with the current value; the list of live roots.
#pragma once
#include <c10/core/StorageImpl.h>

#include <memory>
#include <vector>

#include "bridge/tensor/annotation.h"
#include "bridge/tensor/meta.h"
#include "graph/graph.h"
#include "runtime/data/data.h"

namespace spmdx::bridge {

constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;

// A value of the graph being recorded, if `epoch` is still the recorder's; or data of an earlier step.
struct LazyValue {
  uint64_t epoch = 0;
  ValueId id = kNone;
  DataRef data;  // if set, `id` does not count
};

// The layout that a whole tensor had until its storage grew, and the steps that lead to it from the next layout.
struct Outgrown {
  MetaRef base;
  ViewChain steps;
};

using RootRef = c10::intrusive_ptr<c10::StorageImpl>;
using WeakRootRef = c10::weak_intrusive_ptr<c10::StorageImpl>;

// The alias root: the storage that all views of one memory share. Its data pointer is null.
class Root final : public c10::StorageImpl {
 public:
  Root(MetaRef base, LazyValue value);
  LazyValue current;
  uint64_t writes = 1;             // counts the writes
  uint64_t serial = 0;             // order of creation; 0: not listed
  MetaRef base;                    // declared layout of the whole tensor, offset 0
  std::vector<Outgrown> outgrown;  // layouts before each growth, in order
  // The declared layout of the whole tensor after so many growths.
  const Meta& layout(size_t growths) const { return growths < outgrown.size() ? *outgrown[growths].base : *base; }
  bool too_small = false;    // its storage holds fewer bytes than `base` has
  uint64_t gradient_of = 0;  // the serial of the leaf whose gradient it is; 0: none
  std::unique_ptr<Annotation> annotation;
  DataRef previous;                   // its data before the graph being recorded wrote to it, for ties
  void release_resources() override;  // the last strong reference went: leaves the list, frees the value

 private:
  friend class RootList;
  WeakRootRef listed;                       // the list's reference to it
  size_t change = 0;                        // 1 + its place in the list of changed roots; 0: it is not there
  Root *newer = nullptr, *older = nullptr;  // its neighbours there
};
inline Root& root_of(const RootRef& ref) { return static_cast<Root&>(*ref); }

// A root that is listed. Thread-safe.
RootRef new_root(MetaRef base, LazyValue value);
// Adds a root to the list and gives it its serial: from now on steps compute its value. Thread-safe.
void list_root(const RootRef& ref);
// The serial of the next root that is listed. Thread-safe.
uint64_t next_serial();
// Every listed root that is still reachable, in order of serials. Thread-safe.
std::vector<RootRef> live_roots();

// Steps look at roots that changed only, so that the end of a graph costs what is recorded, not what is alive. A root
// changes when its value becomes one of the graph being recorded, or it holds data or an annotation that may ask for a
// move. Thread-safe, all.
void note_change(Root& root);
// Those that are listed and reachable, in order of serials.
std::vector<RootRef> changed_roots();
void forget_changes();

}  // namespace spmdx::bridge
