// SPDX-License-Identifier: Apache-2.0
// Data: a value that outlives a step, perhaps still being computed.
#pragma once
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/data/backend.h"
#include "runtime/data/held_bytes.h"

namespace spmdx {

// Made empty when a step is submitted, filled by the step thread. What has a lock of its own is for any thread: "Takes
// Data." Of the rest each part is written by one thread before others see it, as said below.
class Data {
 public:
  explicit Data(TensorType type) : type_(std::move(type)) {}
  // Data that has its elements at once: one whole buffer (sharding null) or shards of a sharding.
  Data(TensorType type, ShardingRef sharding, Shards shards);
  // Data that never gets elements: steps are planned with it, and a wait for it throws `error`.
  static std::shared_ptr<Data> abstract(TensorType type, ShardingRef sharding, std::exception_ptr error);
  // Any thread: it never changes.
  bool is_abstract() const { return abstract_; }
  // Whether it came from the program, so that every process should have the same. It is one whole buffer, or shards of
  // a tensor that each process had whole; `digest` is that tensor's. Any thread: the digest is set before the first
  // step that reads the data.
  bool is_common() const { return common_ || digest_; }
  std::optional<uint64_t> digest() const { return digest_; }
  void set_digest(uint64_t digest) { digest_ = digest; }
  // The step whose comparison it was part of (counted from 0; -1: none yet). Holds Engine::submitting.
  int64_t compared_in() const { return compared_in_; }
  void set_compared_in(int64_t step) { compared_in_ = step; }
  // Data that this process keeps while others may have made theirs anew: it takes part in every comparison. Any thread:
  // set when it is made.
  bool is_kept() const { return kept_; }
  void set_kept() { kept_ = true; }

  // Whether it came from outside of all steps, and no step that was recorded has read it before this call. Holds the
  // recorder's lock.
  bool is_first_read() { return std::exchange(unread_, false); }

  // Any thread: it never changes.
  const TensorType& type() const { return type_; }
  // Known as soon as the step that makes it is compiled; null: held whole in one buffer. Set before the step is queued,
  // by the thread that submits it; read by that thread, by the step thread, by whoever has waited for the data, and by
  // whoever found it in a root under the recorder's lock.
  ShardingRef sharding() const { return sharding_; }
  void set_sharding(ShardingRef sharding) { sharding_ = sharding; }

  // The data to go back to when the step that makes this one fails. It is held until this one is filled, so that both
  // are in memory only while the step runs. REQUIRES: set before the step is submitted, by the thread that submits it.
  void set_fallback(std::shared_ptr<Data> previous) { fallback_ = std::move(previous); }
  // All from here on: Any thread. Takes Data.
  std::shared_ptr<Data> fallback() const;

  // Its bytes in the memory of a device, 0 before it is filled.
  int64_t held_bytes() const;
  bool ready() const;
  bool lost() const;  // ready, and `wait` throws
  // The elements are there. Once; the step thread, or whoever makes the data.
  void fill(Shards shards);
  // The step failed: waits throw this error.
  void fail(std::exception_ptr error);
  // Gives up one shard, so that its memory can be reused: from now on `wait` throws. REQUIRES: filled, and nobody but
  // the run on the step thread and the fallbacks of its outputs holds the data, so that nobody reads its shards.
  void give_up(size_t shard);
  // Blocks until filled; rethrows the error of a failed step. The shards may be read as long as the caller holds the
  // data. Program threads, and the step thread for what earlier steps made; without the GIL, unless `ready`. The queue
  // thread never waits here: the step thread, which fills data, waits for it.
  const Shards& wait() const;

 private:
  TensorType type_;
  ShardingRef sharding_ = nullptr;
  Shards shards_;
  std::exception_ptr error_;
  std::shared_ptr<Data> fallback_;
  bool done_ = false, abstract_ = false, given_up_ = false;
  bool common_ = false, kept_ = false;
  bool unread_ = false;
  std::optional<uint64_t> digest_;
  int64_t compared_in_ = -1;
  HeldBytes held_;
  mutable std::mutex mutex_;
  mutable std::condition_variable filled_;
};
using DataRef = std::shared_ptr<Data>;

}  // namespace spmdx
