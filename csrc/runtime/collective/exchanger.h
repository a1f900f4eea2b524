// SPDX-License-Identifier: Apache-2.0
// Exchanger: collectives behind the executor's back, one after the other in the order they were started.
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
class Round {
 public:
  // What was computed so far may be sent.
  Round(Backend& backend, std::vector<Transfer> transfers, Progress at)
      : backend_(backend), transfers_(std::move(transfers)), at_(std::move(at)), begun_(backend.mark()) {}
  // Blocks until all has come. The new shards, by transfer. Throws what the exchange threw. Called once.
  std::vector<Shards> wait();
  // Blocks until nothing is under way any more, whatever came of it.
  void join();
  void run(Comm& comm);

 private:
  Backend& backend_;
  std::vector<Transfer> transfers_;
  Progress at_;
  Mark begun_, come_;
  bool done_ = false;
  std::exception_ptr error_;
  std::mutex mutex_;
  std::condition_variable ended_;
};
using RoundRef = std::shared_ptr<Round>;

// Its thread runs while there is something to exchange, so that a program of one process has none.
class Exchanger {
 public:
  explicit Exchanger(Comm& comm) : comm_(comm) {}
  ~Exchanger();  // waits for what was started
  RoundRef start(Backend& backend, std::vector<Transfer> transfers, Progress at);
  Comm& comm() { return comm_; }

 private:
  void work();

  Comm& comm_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RoundRef> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace spmdx
