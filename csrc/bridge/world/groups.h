// SPDX-License-Identifier: Apache-2.0
// Groups: the backends among processes, made when they are first asked for.
#pragma once
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bridge/world/failure_detector.h"
#include "bridge/world/transport.h"

namespace spmdx::bridge {

using MakeGroup = std::function<Group(const std::string& name, const std::vector<int64_t>& members)>;

class Groups {
 public:
  // `make` is called on a thread of its own, with no lock. The detector outlives it.
  Groups(FailureDetector& detector, MakeGroup make) : detector_(detector), make_(std::move(make)) {}
  // The group of this name, which all members (ascending) ask for. Waits for them; a wait that was broken off goes on
  // with the same group. One thread at a time.
  Group open(const std::string& name, const std::vector<int64_t>& members, const Progress& at);
  // The group among some processes that native collectives use: opened by the first call of this generation. Queue
  // thread, or the step thread in its place. Takes the lock.
  std::shared_ptr<Transport> among(const std::vector<int64_t>& members, const Progress& at);
  // Ends what is under way in groups on a stream. Any thread. Takes the lock.
  void abort();

 private:
  using Opening = std::pair<std::string, std::shared_future<Group>>;
  void meet(const std::string& name, const std::vector<int64_t>& members, const Progress& at);
  void free_idle_ones_before(int64_t generation);
  [[noreturn]] void fail(const std::vector<int64_t>& members, const std::string& reason);
  std::shared_future<Group> begin(const std::string& name, const std::vector<int64_t>& members) const;

  FailureDetector& detector_;
  const MakeGroup make_;
  Opening opening_;  // the last one; of the thread that opens
  std::mutex mutex_;
  // By generation and members; guarded by mutex_. Of a generation that failed those stay whose last collective has not
  // ended: it may wait for ever, and a group that is freed waits for it.
  std::map<std::pair<int64_t, std::vector<int64_t>>, std::shared_ptr<Transport>> among_;
};

}  // namespace spmdx::bridge
