// SPDX-License-Identifier: Apache-2.0
// Watch: tells a process that waits for others when it waits in vain, and why.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm.h"

namespace c10d {
class Store;
class Work;
}  // namespace c10d

namespace spmdx::bridge {

// Another process. `pid` and `started` name it where it runs on this machine (0 elsewhere).
struct Peer {
  std::string name;  // "process 1 (pid 77 on host a)"
  int64_t pid = 0;
  uint64_t started = 0;  // clock ticks after boot
};

struct World {
  Processes processes;
  std::vector<Peer> peers;  // this one included
  c10::intrusive_ptr<c10d::Store> store;
  std::chrono::milliseconds timeout{600'000};
};

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

// A thread that beats for the others, and looks after them while this process waits. What it learns breaks the world:
// works that are waited for are aborted, and everything fails with the reason from then on.
class Watch {
 public:
  explicit Watch(World world);
  ~Watch();
  const World& world() const { return world_; }

  // Waits for works with other processes. Throws CommError with the reason where the world breaks. If something was
  // `lost` when they were posted, nothing is waited for but the reason.
  void wait(const Works& works, const Progress& at, std::string lost = {});
  // Looks again and again whether `ready`; throws likewise.
  void wait_until(const std::function<bool()>& ready, const Progress& at);
  bool lives(int64_t peer) const;  // as far as can be seen from here
  // Throws CommError if the world is broken.
  void check() const;
  std::string broken() const;
  void set_broken(const std::string& reason);
  // For the others: this process is in trouble that is its own.
  void report(const std::string& trouble);
  void leave(int64_t steps, const std::string& why);
  // When all have called it: forgets what broke the world; returns how often that has happened.
  int64_t recover();
  // Whether any process says yes, once in each generation; all have to ask.
  bool anybody(bool here);
  // The thread ends; nobody is watched any more.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Wait {
    Works works;
    Progress at;
    Clock::time_point since;
  };
  struct Beat {
    std::string text;
    Clock::time_point changed;
  };

  std::list<Wait>::iterator begin(Wait wait);
  void run();
  void beat();
  std::string key(const std::string& name) const;
  std::string trouble_of(const Wait& wait);
  std::string reported();
  std::string gone(int64_t peer, int64_t step);
  std::string silent(int64_t peer);
  std::string late(const Wait& wait);
  std::string last_words(int64_t peer);

  const World world_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Wait> waits_;
  std::string broken_;
  int64_t step_ = 0;
  std::string where_;  // of a wait that was looked at
  Clock::time_point looked_at_;
  std::map<int64_t, Beat> beats_;                 // of peers elsewhere
  std::map<int64_t, Clock::time_point> stopped_;  // peers here that do not run, since when
  int64_t beats_sent_ = 0, generation_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace spmdx::bridge
