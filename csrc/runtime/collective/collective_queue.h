// SPDX-License-Identifier: Apache-2.0
// CollectiveQueue: runs collectives on a thread of its own, one after the other, in the order in which they were
// started.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/collective/transfer.h"

namespace spmdx {

// One collective that is under way. Step thread, where nothing else is said.
class RunningCollective {
 public:
  // Sends may read what was computed so far. `at`: what this process says of itself while it waits; `node` of `graph`,
  // which lives until the exchange ends, is what it is for.
  RunningCollective(Backend& backend, std::vector<Transfer> transfers, Progress at, const Graph& graph, NodeId node)
      : backend_(backend),
        transfers_(std::move(transfers)),
        at_(std::move(at)),
        graph_(graph),
        node_(node),
        begun_(backend.record_event()) {}
  // Blocks until all messages have come; gives the new shards, by transfer. Throws what the exchange threw. Called
  // once. Takes RunningCollective.
  std::vector<Shards> wait();
  // Whether `wait` would not block. Takes RunningCollective.
  bool is_over();
  // Whether `run` has ended. Takes RunningCollective.
  bool is_exchanged();
  // Blocks until nothing is under way any more, whether it succeeded or failed. Takes RunningCollective.
  void join();
  // Exchanges the messages; of one that only brings a value to another place, begins to. Queue thread, with no lock.
  // Takes RunningCollective when it has ended, or begun.
  void run(Comm& comm);
  // The same on the step thread, which would wait for it: waking another thread, and being woken by it, takes longer
  // than few bytes do. REQUIRES: the queue is idle.
  void run_here(Comm& comm);

 private:
  bool is_from_place_to_place() const;

  Backend& backend_;
  std::vector<Transfer> transfers_;
  Progress at_;
  const Graph& graph_;
  const NodeId node_;
  Event begun_, come_;
  ExchangeRef under_way_;     // messages that nobody else waits for
  bool done_ = false;         // guarded by mutex_; the members above are the queue thread's until it is set
  std::exception_ptr error_;  // guarded by mutex_ until `done_`
  std::mutex mutex_;
  std::condition_variable ended_;
};
using RunningCollectiveRef = std::shared_ptr<RunningCollective>;

// Its thread runs while there is something to exchange, so that a program of one process has none.
class CollectiveQueue {
 public:
  explicit CollectiveQueue(Comm& comm) : comm_(comm) {}
  // Waits for what was started. No other thread uses the queue.
  ~CollectiveQueue();
  // Queues an exchange, and returns at once. Step thread. Takes the queue's lock.
  void start(RunningCollectiveRef running);
  // Whether the queue thread has nothing to do; then that is so until something is started. Step thread. Takes
  // RunningCollective.
  bool is_idle();
  // Any thread. Takes no lock.
  Comm& comm() { return comm_; }

 private:
  void work();

  Comm& comm_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RunningCollectiveRef> queue_;
  std::weak_ptr<RunningCollective> last_;  // that was started; the step thread's alone
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace spmdx
