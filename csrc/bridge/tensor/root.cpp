// SPDX-License-Identifier: Apache-2.0
// Alias roots, and the list of those that are alive.
#include "bridge/tensor/root.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "bridge/tensor/accelerator.h"

namespace spmdx::bridge {
namespace {

size_t storage_bytes(const Meta& meta) {
  return at::detail::computeStorageNbytes(meta.sizes, meta.strides, c10::elementSize(meta.dtype));
}

}  // namespace

// Its mutex is a leaf lock: while it is held nothing is freed and no strong reference is taken, since that may need
// the GIL. Weak references suffice to keep a root's memory: PyTorch frees a root that has none without a look at
// whether another thread is just taking a reference to it.
class RootList {
 public:
  void add(const RootRef& ref) {
    Root& root = root_of(ref);
    root.listed = WeakRootRef(ref);
    std::lock_guard lock(mutex_);
    root.serial = next_++;
    root.older = newest_;
    (newest_ ? newest_->newer : oldest_) = &root;
    newest_ = &root;
    ++count_;
    if (!root.current.data) add_change(root);
  }

  void remove(Root& root) {
    WeakRootRef listed(RootRef{});
    std::lock_guard lock(mutex_);
    (root.older ? root.older->newer : oldest_) = root.newer;
    (root.newer ? root.newer->older : newest_) = root.older;
    --count_;
    drop_change(root);
    std::swap(listed, root.listed);
  }

  void note_change(Root& root) {
    std::lock_guard lock(mutex_);
    if (root.serial) add_change(root);
  }

  void forget_changes() {
    std::lock_guard lock(mutex_);
    for (Root* root : changed_) root->change = 0;
    changed_.clear();
  }

  std::vector<WeakRootRef> changed() {
    std::vector<WeakRootRef> roots;
    std::lock_guard lock(mutex_);
    roots.reserve(changed_.size());
    std::vector<const Root*> in_order(changed_.begin(), changed_.end());
    std::sort(in_order.begin(), in_order.end(), [](auto* a, auto* b) { return a->serial < b->serial; });
    for (const Root* root : in_order) roots.push_back(root->listed);
    return roots;
  }

  uint64_t next() {
    std::lock_guard lock(mutex_);
    return next_;
  }

  std::vector<WeakRootRef> all() {
    std::vector<WeakRootRef> roots;
    std::lock_guard lock(mutex_);
    roots.reserve(count_);
    for (const Root* root = oldest_; root; root = root->newer) roots.push_back(root->listed);
    return roots;
  }

 private:
  void add_change(Root& root) {
    if (root.change) return;
    changed_.push_back(&root);
    root.change = changed_.size();
  }

  void drop_change(Root& root) {
    if (!root.change) return;
    Root* last = changed_.back();
    changed_[root.change - 1] = last;
    last->change = root.change;
    root.change = 0;
    changed_.pop_back();
  }

  std::mutex mutex_;
  std::vector<Root*> changed_;
  Root *oldest_ = nullptr, *newest_ = nullptr;
  size_t count_ = 0;
  uint64_t next_ = 1;
};

namespace {

RootList& roots() {
  static auto* instance = new RootList;  // outlives every tensor, module globals included
  return *instance;
}

std::vector<RootRef> alive_of(const std::vector<WeakRootRef>& listed) {
  std::vector<RootRef> alive;
  alive.reserve(listed.size());
  for (const WeakRootRef& weak : listed)
    if (RootRef ref = weak.lock()) alive.push_back(std::move(ref));
  return alive;
}

}  // namespace

Root::Root(MetaRef base, LazyValue value)
    : StorageImpl(use_byte_size_t(), storage_bytes(*base), at::DataPtr(nullptr, c10::Device(kDeviceType, 0)), nullptr,
                  false),
      current(std::move(value)),
      base(std::move(base)),
      listed(RootRef{}) {
  note_device_use();
}

void Root::release_resources() {
  if (serial) roots().remove(*this);
  current = {};
  previous = nullptr;
  StorageImpl::release_resources();
}

RootRef new_root(MetaRef base, LazyValue value) {
  RootRef ref = c10::make_intrusive<Root>(std::move(base), std::move(value));
  list_root(ref);
  return ref;
}

void list_root(const RootRef& ref) { roots().add(ref); }

uint64_t next_serial() { return roots().next(); }

std::vector<RootRef> live_roots() { return alive_of(roots().all()); }

void note_change(Root& root) { roots().note_change(root); }

std::vector<RootRef> changed_roots() { return alive_of(roots().changed()); }

void forget_changes() { roots().forget_changes(); }

}  // namespace spmdx::bridge
