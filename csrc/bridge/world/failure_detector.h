// SPDX-License-Identifier: Apache-2.0
// FailureDetector: ends the wait of a process for others that will not come, and says why.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/data/comm.h"

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
  bool on_stream = false;  // messages with data are works of a stream of an accelerator
};

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

// What the store has under `key`; empty where that is not there. Does not wait.
std::string text_at(c10d::Store& store, const std::string& key);

// Watches the other processes while this one waits. A failure breaks the world: works that are waited for are aborted,
// and everything fails with the reason from then on. One thread sends heartbeats and is the only one that talks to the
// store, the detector thread. The store may never answer, if the process that hosts it is stopped; a second thread, the
// watchdog, notices that. Threads and locks are said as docs/threads.md defines it; a function of which nothing is
// said: "Any thread. Takes the failure detector's lock." One that waits, as its comment then says: "Program threads and
// the step thread, without the GIL." Its own two threads never wait here, as they would wait for themselves.
class FailureDetector {
 public:
  explicit FailureDetector(World world);
  ~FailureDetector();
  // Any thread. Takes no lock: it never changes.
  const World& world() const { return world_; }

  // Posts messages with data and waits for them. Throws CommError with the reason where the world breaks. On a stream
  // their own wait() holds up the stream only, and posting may hold up this thread until `abort_stream` is called.
  // Queue thread; `post` is called with no lock.
  void carry(const std::function<Works()>& post, const Progress& at);
  // What ends the works of a stream, all at once. Called by whoever breaks the world, on its thread and with no lock.
  void set_abort_stream(std::function<void()> abort_stream);
  // Waits for works that were posted. If a connection was `lost` meanwhile, waits for the reason only.
  void wait(const Works& works, const Progress& at, std::string lost = {});
  // Waits until `ready` is true, which is asked again and again on the detector thread, with no lock; throws as the
  // above. What `ready` refers to must live on where this throws. `patience`: how long a slow process is not called
  // missing.
  using Question = std::function<bool(c10d::Store&)>;
  static constexpr auto kUnwatched = std::chrono::milliseconds::max();  // no time limit: the caller has one
  void wait_until(Question ready, const Progress& at, std::chrono::milliseconds patience = {});
  // Waits for all these keys; gives what the store has under them. The key `stale` is deleted then.
  std::vector<std::string> wait_for(const std::vector<std::string>& keys, const Progress& at,
                                    const std::string& stale = {}, std::chrono::milliseconds patience = {});
  // Writes a text for the others, under this key. Waits for the store, but not for long.
  void set(const std::string& key, const std::string& text);
  // Both: Any thread. Takes no lock.
  bool lives(int64_t peer) const;  // as far as can be seen from here
  bool runs(int64_t peer) const;   // it lives, and is not stopped
  // All three: Any thread. set_broken aborts works while it has the lock. Throws CommError if the world is broken.
  void check() const;
  std::string broken() const;
  void set_broken(const std::string& reason);
  // Waits so long for the reason of what has failed here, and throws it as CommError. Queue thread and others that may
  // wait.
  void await_reason(std::chrono::milliseconds patience);
  // Tells the others of trouble in this process. Waits, as `set`, as do `leave` and `call_off`.
  void report(const std::string& trouble);
  // Tells the others that this process leaves; then no process is watched any more. Joins the watchdog.
  void leave(int64_t steps, const std::string& why);
  // Tells the others that this process does these steps of the generation and no more, so that they do not wait for it.
  void call_off(int64_t steps, const std::string& why);
  // Begins a new generation, in which the world is not broken. Waits until all processes have called it, and gives what
  // each tells. May be called again after it was broken off, as by Ctrl-C; after a failure it fails again. Program
  // threads, one at a time, without the GIL.
  std::vector<std::string> regroup(const std::string& told, const Progress& at);
  void end_regrouping();                      // the new generation is complete
  void break_off(const std::string& reason);  // the new generation is not complete, and may be tried again
  int64_t generation() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Task {
    Question ready;
    bool done = false;
  };
  struct Wait {
    Works works;
    Progress at;
    Clock::time_point since;
    std::chrono::milliseconds patience{};
    std::shared_ptr<Task> task;  // or works
    bool for_all = false;        // all processes are needed: one that has ended cannot come, whatever steps it did
  };
  struct Heartbeat {
    std::string text;
    Clock::time_point changed;
  };

  std::list<Wait>::iterator begin(Wait wait);
  void await(Wait wait);
  void end(std::list<Wait>::iterator mine, const Works& works, std::string lost, bool on_stream);
  void run();
  void run_watchdog();
  void stop();
  std::string one_pass(const std::vector<Wait>& waits, bool unbroken);
  void tell(std::function<void(c10d::Store&)> message);
  static std::string key(const std::string& name, int64_t generation);
  std::chrono::milliseconds silence() const;

  // signs.cpp: the trouble that signs of other processes tell of; empty: none. All but the last run on the detector
  // thread, with no lock.
  void send_heartbeat();
  std::string trouble_of(const Wait& wait);
  std::string reported();
  std::string gone(int64_t peer, int64_t step);
  std::string silent(int64_t peer);
  std::string late(const Wait& wait);
  std::string text_at(const std::string& key) { return bridge::text_at(*world_.store, key); }
  void post(const std::string& trouble, int64_t generation);
  std::string lost_store(const std::string& error) const;
  std::string unresponsive_store() const;  // on the watchdog

  const World world_;
  // A leaf lock: no tensor is freed while it is held. That may need the GIL, and a thread with the GIL may wait for
  // this lock.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Wait> waits_;
  std::string broken_, lost_;  // lost: the store
  std::function<void()> abort_stream_;
  int64_t step_ = 0;
  std::string where_;  // of a wait that was checked
  // These five are the detector thread's own, and need no lock.
  Clock::time_point looked_at_, last_heartbeat_;
  std::map<int64_t, Heartbeat> heartbeats_;       // of peers elsewhere
  std::map<int64_t, Clock::time_point> stopped_;  // peers on this machine that are stopped, and since when
  int64_t heartbeats_sent_ = 0;
  int64_t generation_ = 0;                  // how often the processes have regrouped
  int64_t looked_in_ = 0;                   // the generation whose waits the thread looks after
  bool regrouping_ = false;                 // into this generation
  bool broken_off_ = false;                 // meanwhile
  std::optional<Clock::time_point> asked_;  // since when the thread waits for an answer of the store
  bool stopping_ = false, running_ = true;
  bool fresh_ = false;  // there is a new task
  std::thread thread_, watchdog_;
};

}  // namespace spmdx::bridge
