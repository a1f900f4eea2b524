// SPDX-License-Identifier: Apache-2.0
// CollectiveQueue: collectives behind the executor's back, one after the other in the order they were started.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/collective/transfer.h"

namespace spmdx {

// The values of one collective, under way.
class RunningCollective {
 public:
  // What was computed so far may be sent.
  RunningCollective(Backend& backend, std::vector<Transfer> transfers, Progress at)
      : backend_(backend), transfers_(std::move(transfers)), at_(std::move(at)), begun_(backend.record_event()) {}
  // Blocks until all has come. The new shards, by transfer. Throws what the exchange threw. Called once.
  std::vector<Shards> wait();
  // Blocks until nothing is under way any more, whatever came of it.
  void join();
  void run(Comm& comm);

 private:
  Backend& backend_;
  std::vector<Transfer> transfers_;
  Progress at_;
  Event begun_, come_;
  bool done_ = false;
  std::exception_ptr error_;
  std::mutex mutex_;
  std::condition_variable ended_;
};
using RunningCollectiveRef = std::shared_ptr<RunningCollective>;

// Its thread runs while there is something to exchange, so that a program of one process has none.
class CollectiveQueue {
 public:
  explicit CollectiveQueue(Comm& comm) : comm_(comm) {}
  ~CollectiveQueue();  // waits for what was started
  RunningCollectiveRef start(Backend& backend, std::vector<Transfer> transfers, Progress at);
  Comm& comm() { return comm_; }

 private:
  void work();

  Comm& comm_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RunningCollectiveRef> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace spmdx
