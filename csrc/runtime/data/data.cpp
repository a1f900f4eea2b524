// SPDX-License-Identifier: Apache-2.0
// Data: filled once by the thread that runs the step; any thread may wait for it.
#include "runtime/data/data.h"

#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/waiting.h"
#include "sharding/shards.h"

namespace spmdx {
namespace {

// Of a device.
int64_t bytes_in_its_memory(const TensorType& type, const ShardingRef& sharding) {
  return sharding && sharding->place.host ? 0 : bytes_on_a_device(type, sharding);
}

}  // namespace

Data::Data(TensorType type, ShardingRef sharding, Shards shards)
    : type_(std::move(type)),
      sharding_(sharding),
      shards_(std::move(shards)),
      done_(true),
      common_(!sharding),
      unread_(true) {
  if (!shards_.empty()) held_.set(bytes_in_its_memory(type_, sharding_));
}

std::shared_ptr<Data> Data::abstract(TensorType type, ShardingRef sharding, std::exception_ptr error) {
  auto data = std::make_shared<Data>(std::move(type), sharding, Shards{});
  data->error_ = std::move(error);
  data->abstract_ = true;
  data->unread_ = false;
  return data;
}

int64_t Data::held_bytes() const {
  std::lock_guard lock(mutex_);
  return held_.get();
}

bool Data::ready() const {
  std::lock_guard lock(mutex_);
  return done_;
}

bool Data::lost() const {
  std::lock_guard lock(mutex_);
  return done_ && (error_ || given_up_);
}

std::shared_ptr<Data> Data::fallback() const {
  std::lock_guard lock(mutex_);
  return fallback_;
}

void Data::fill(Shards shards) {
  std::shared_ptr<Data> previous;  // dies after the lock is given up
  {
    std::lock_guard lock(mutex_);
    internal_check(!done_, "data were filled twice");
    shards_ = std::move(shards);
    held_.set(bytes_in_its_memory(type_, sharding_));
    previous = std::move(fallback_);
    done_ = true;
  }
  filled_.notify_all();
}

void Data::fail(std::exception_ptr error) {
  {
    std::lock_guard lock(mutex_);
    if (done_) return;
    error_ = std::move(error);
    done_ = true;
  }
  filled_.notify_all();
}

void Data::give_up(size_t shard) {
  BufferRef buffer;
  std::lock_guard lock(mutex_);
  buffer.swap(shards_.at(shard));  // dies after the lock is given up
  given_up_ = true;
  held_.set(0);  // a result takes the memory
}

const Shards& Data::wait() const {
  std::unique_lock lock(mutex_);
  wait_until_ready(filled_, lock, [this] { return done_; });
  if (error_) std::rethrow_exception(error_);
  if (given_up_) throw std::runtime_error("the step that was overwriting this tensor failed, its values are lost");
  return shards_;
}

}  // namespace spmdx
