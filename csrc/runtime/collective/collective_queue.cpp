// SPDX-License-Identifier: Apache-2.0
// CollectiveQueue: one thread, one queue.
#include "runtime/collective/collective_queue.h"

#include <algorithm>
#include <utility>

#include "graph/places.h"
#include "runtime/data/observer.h"

namespace spmdx {

void RunningCollective::run(Comm& comm) {
  std::exception_ptr error;
  try {
    const CarriedRange range(graph_, node_);
    backend_.use_stream(Stream::messages);
    backend_.wait_event(begun_);
    Messages sends, receives;
    NativeCalls calls;
    for (Transfer& transfer : transfers_) transfer.first_round(sends, receives, calls);
    if (is_from_place_to_place()) {  // others of the queue need not wait until the other stage is ready
      under_way_ = comm.begin(sends, receives, at_);
    } else {
      if (!calls.empty()) comm.call(calls, at_);
      if (calls.empty() || !sends.empty() || !receives.empty()) comm.exchange(sends, receives, at_);
      sends.clear();
      receives.clear();
      for (Transfer& transfer : transfers_) transfer.second_round(sends, receives);
      if (!sends.empty() || !receives.empty()) comm.exchange(sends, receives, at_);
    }
    come_ = backend_.record_event();
  } catch (...) {
    error = std::current_exception();
  }
  std::lock_guard lock(mutex_);
  error_ = error;
  done_ = true;
  ended_.notify_all();
}

void RunningCollective::run_here(Comm& comm) {
  run(comm);
  backend_.use_stream(Stream::compute);
}

bool RunningCollective::is_from_place_to_place() const {
  return changes_place(graph_, graph_.nodes[node_]) &&
         std::all_of(transfers_.begin(), transfers_.end(), [](const Transfer& one) { return one.is_one_round(); });
}

void RunningCollective::join() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return done_; });
}

bool RunningCollective::is_over() {
  std::lock_guard lock(mutex_);
  return done_ && (!under_way_ || under_way_->is_over());
}

bool RunningCollective::is_exchanged() {
  std::lock_guard lock(mutex_);
  return done_;
}

std::vector<Shards> RunningCollective::wait() {
  join();
  if (error_) std::rethrow_exception(error_);
  if (under_way_) under_way_->wait(at_);
  backend_.wait_event(come_);
  std::vector<Shards> results;
  for (Transfer& transfer : transfers_) results.push_back(transfer.finish());
  transfers_.clear();
  return results;
}

CollectiveQueue::~CollectiveQueue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CollectiveQueue::start(RunningCollectiveRef running) {
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  last_ = running;
  queue_.push_back(std::move(running));
  changed_.notify_all();
}

bool CollectiveQueue::is_idle() {
  const RunningCollectiveRef last = last_.lock();
  return !last || last->is_exchanged();
}

void CollectiveQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    RunningCollectiveRef running = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    {
      const HelperRange range;
      running->run(comm_);
    }
    running.reset();  // frees what was sent
    lock.lock();
  }
}

}  // namespace spmdx
