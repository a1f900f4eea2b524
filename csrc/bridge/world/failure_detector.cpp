// SPDX-License-Identifier: Apache-2.0
// FailureDetector: waits, and the threads that end a wait that cannot succeed.
#include "bridge/world/failure_detector.h"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/waiting.h"

namespace spmdx::bridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kGlance{100};       // between two polls
constexpr milliseconds kLongestPause{50};  // between two questions
constexpr milliseconds kPatience{200};     // a wait is not checked before it is this long
constexpr seconds kBeat{1};
constexpr seconds kSilence{20};  // how long a process elsewhere, a stopped process or the store may be silent
constexpr seconds kFarewell{2};
constexpr std::chrono::microseconds kLongestNap{500};

// Until the work of a stream has ended. Throws what it threw.
void sleep_until_ended(c10d::Work& work) {
  for (std::chrono::microseconds poll_interval{10}; !work.isCompleted();
       poll_interval = std::min(poll_interval * 2, kLongestNap))
    std::this_thread::sleep_for(poll_interval);
  if (const std::exception_ptr error = work.exception()) std::rethrow_exception(error);
}

// Whether there is something under each key, and what.
FailureDetector::Question all_at(const std::vector<std::string>& keys,
                                 const std::shared_ptr<std::vector<std::string>>& values) {
  return [keys, values](c10d::Store& store) {
    if (!store.check(keys)) return false;
    values->clear();
    for (const std::string& key : keys) values->push_back(text_at(store, key));
    return true;
  };
}

}  // namespace

FailureDetector::FailureDetector(World world)
    : world_(std::move(world)), thread_([this] { run(); }), watchdog_([this] { run_watchdog(); }) {}

FailureDetector::~FailureDetector() { stop(); }

void FailureDetector::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kFarewell, [this] { return !running_; });
  const bool ended = !running_;
  lock.unlock();
  if (watchdog_.joinable()) watchdog_.join();
  if (!thread_.joinable()) return;
  ended ? thread_.join() : thread_.detach();  // the thread may wait for a store that never answers
}

milliseconds FailureDetector::silence() const { return std::min<milliseconds>(kSilence, world_.timeout / 2); }

std::string FailureDetector::key(const std::string& name, int64_t generation) {
  return std::to_string(generation) + "/" + name;
}

std::string FailureDetector::broken() const {
  std::lock_guard lock(mutex_);
  return broken_;
}

void FailureDetector::check() const {
  std::lock_guard lock(mutex_);
  if (!broken_.empty()) throw CommError(broken_);
}

void FailureDetector::set_broken(const std::string& reason) {
  std::unique_lock lock(mutex_);
  if (broken_.empty()) broken_ = reason;
  const std::function<void()> abort_stream = abort_stream_;
  for (Wait& wait : waits_)
    for (const auto& work : wait.works)
      if (!abort_stream) work->abort();
  changed_.notify_all();
  lock.unlock();
  if (abort_stream) abort_stream();
}

void FailureDetector::set_abort_stream(std::function<void()> abort_stream) {
  std::lock_guard lock(mutex_);
  abort_stream_ = std::move(abort_stream);
}

// ---- waits -----------------------------------------------------------------------------------------------

std::list<FailureDetector::Wait>::iterator FailureDetector::begin(Wait wait) {
  std::lock_guard lock(mutex_);
  if (!lost_.empty()) throw CommError(lost_);
  if (!broken_.empty()) throw CommError(broken_);
  step_ = wait.at.step;
  if (wait.task) {
    fresh_ = true;
    changed_.notify_all();
  }
  return waits_.insert(waits_.end(), std::move(wait));
}

// For a task. On a thread of the program, or on the step thread, which asks others what they run.
void FailureDetector::await(Wait wait) {
  const std::shared_ptr<Task> task = wait.task;
  const auto mine = begin(std::move(wait));
  std::unique_lock lock(mutex_);
  try {
    wait_until_ready(changed_, lock, [&] { return task->done || !broken_.empty() || stopping_; });
  } catch (...) {  // with the lock given up
    lock.lock();
    waits_.erase(mine);
    throw;
  }
  waits_.erase(mine);
  if (!task->done) throw CommError(broken_.empty() ? "the program is coming to its end" : broken_);
}

void FailureDetector::wait_until(Question ready, const Progress& at, milliseconds patience) {
  await({{}, at, Clock::now(), patience, std::make_shared<Task>(Task{std::move(ready)})});
}

std::vector<std::string> FailureDetector::wait_for(const std::vector<std::string>& keys, const Progress& at,
                                                   const std::string& stale, milliseconds patience) {
  const auto values = std::make_shared<std::vector<std::string>>();
  const auto all_there = [all = all_at(keys, values), stale](c10d::Store& store) {
    if (!all(store)) return false;
    if (!stale.empty()) store.deleteKey(stale);
    return true;
  };
  wait_until(all_there, at, patience);
  return *values;
}

void FailureDetector::tell(std::function<void(c10d::Store&)> message) {
  auto task = std::make_shared<Task>(Task{[message = std::move(message)](c10d::Store& store) {
    message(store);
    return true;
  }});
  std::unique_lock lock(mutex_);
  const auto mine = waits_.insert(waits_.end(), Wait{{}, {}, Clock::now(), kUnwatched, task});
  fresh_ = true;
  changed_.notify_all();
  // There is no long wait for a store that is lost: the caller has a worse error to report.
  changed_.wait_for(lock, kFarewell, [&] { return task->done || !running_ || !lost_.empty(); });
  waits_.erase(mine);
}

void FailureDetector::wait(const Works& works, const Progress& at, std::string lost) {
  end(begin({works, at, Clock::now(), {}, nullptr}), works, std::move(lost), false);
}

void FailureDetector::carry(const std::function<Works()>& post, const Progress& at) {
  const auto mine = begin({{}, at, Clock::now(), {}, nullptr});
  Works works;
  std::string lost;
  try {
    works = post();
  } catch (const std::exception& error) {  // a connection that is closed already
    lost = error.what();
  }
  {
    std::lock_guard lock(mutex_);
    mine->works = works;
    if (!broken_.empty() && !world_.on_stream)  // while they were posted
      for (const auto& work : works) work->abort();
  }
  end(mine, works, std::move(lost), world_.on_stream);
}

void FailureDetector::end(std::list<Wait>::iterator mine, const Works& works, std::string lost, bool on_stream) {
  for (auto work = works.begin(); work != works.end() && lost.empty(); ++work) {
    try {
      if (on_stream) sleep_until_ended(**work);
      if (!(*work)->wait()) lost = "the wait was ended";
    } catch (const std::exception& error) {
      lost = error.what();
    }
  }
  std::unique_lock lock(mutex_);
  // A connection breaks for a reason, which the failure detector finds out sooner or later.
  if (!lost.empty()) changed_.wait_for(lock, kSilence + seconds(5), [this] { return !broken_.empty() || stopping_; });
  waits_.erase(mine);
  if (!lost.empty() && broken_.empty()) broken_ = "the connection to another process was lost: " + lost;
  if (!broken_.empty()) throw CommError(broken_);
}

void FailureDetector::await_reason(milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [this] { return !broken_.empty() || stopping_; });
  if (!broken_.empty()) throw CommError(broken_);
}

void FailureDetector::report(const std::string& trouble) {
  tell([this, trouble, in = generation()](c10d::Store&) { post(trouble, in); });
}

void FailureDetector::leave(int64_t steps, const std::string& why) {
  set("left/" + std::to_string(world_.processes.here), std::to_string(steps) + " " + why);
  stop();
}

void FailureDetector::set(const std::string& name, const std::string& text) {
  tell([name, text](c10d::Store& store) { store.set(name, std::vector<uint8_t>(text.begin(), text.end())); });
}

void FailureDetector::call_off(int64_t steps, const std::string& why) {
  set(key("called off/" + std::to_string(world_.processes.here), generation()), std::to_string(steps) + " " + why);
}

std::vector<std::string> FailureDetector::regroup(const std::string& told, const Progress& at) {
  {
    std::lock_guard lock(mutex_);
    if (regrouping_ && !broken_off_ && !broken_.empty()) throw CommError(broken_);
    if (!regrouping_) ++generation_;  // from now on reports have other keys
    regrouping_ = true;
    broken_off_ = false;
    broken_.clear();
  }
  std::vector<std::string> keys;
  for (int64_t process = 0; process < world_.processes.count; ++process)
    keys.push_back(key("regroups/" + std::to_string(process), generation()));
  set(keys[world_.processes.here], told);
  const auto values = std::make_shared<std::vector<std::string>>();
  await({.works = {},
         .at = at,
         .since = Clock::now(),
         .patience = {},
         .task = std::make_shared<Task>(Task{all_at(keys, values)}),
         .for_all = true});
  return *values;
}

void FailureDetector::end_regrouping() {
  std::lock_guard lock(mutex_);
  regrouping_ = false;
}

void FailureDetector::break_off(const std::string& reason) {
  set_broken(reason);
  std::lock_guard lock(mutex_);
  broken_off_ = regrouping_;
}

int64_t FailureDetector::generation() const {
  std::lock_guard lock(mutex_);
  return generation_;
}

// ---- the threads -----------------------------------------------------------------------------------------

// One pass of the detector thread: sends a heartbeat if it is time, does the tasks that are asked for and, unless the
// world is broken already, looks for trouble. Returns the trouble that it finds.
std::string FailureDetector::one_pass(const std::vector<Wait>& waits, bool unbroken) {
  if (Clock::now() - last_heartbeat_ >= kBeat) {
    last_heartbeat_ = Clock::now();
    send_heartbeat();
  }
  for (const Wait& wait : waits) {
    if (!wait.task || wait.task->done || !wait.task->ready(*world_.store)) continue;
    std::lock_guard lock(mutex_);
    wait.task->done = true;
    changed_.notify_all();
  }
  if (!unbroken) return {};
  for (const Wait& wait : waits) {
    const bool done = wait.task && wait.task->done;
    if (done || wait.patience == kUnwatched || Clock::now() - wait.since <= kPatience) continue;
    if (const std::string trouble = trouble_of(wait); !trouble.empty()) return trouble;
  }
  return {};
}

void FailureDetector::run() {
  milliseconds pause{1};
  std::unique_lock lock(mutex_);
  while (!stopping_ && lost_.empty()) {
    std::vector<Wait> waits(waits_.begin(), waits_.end());
    const bool unbroken = broken_.empty();
    looked_in_ = generation_;
    asked_ = Clock::now();
    lock.unlock();
    std::string trouble, lost;
    try {
      trouble = one_pass(waits, unbroken);
    } catch (const std::exception& error) {
      trouble = lost = lost_store(error.what());
    }
    const bool still_valid = generation() == looked_in_ || !lost.empty();
    if (!trouble.empty() && still_valid) set_broken(trouble);
    waits.clear();  // frees what was sent
    lock.lock();
    asked_.reset();
    lost_ = lost;
    const bool asks = std::any_of(waits_.begin(), waits_.end(), [](const Wait& w) { return w.task && !w.task->done; });
    pause = std::exchange(fresh_, false) ? milliseconds(1) : std::min(pause * 2, asks ? kLongestPause : kGlance);
    changed_.wait_for(lock, pause, [this] { return stopping_ || fresh_; });
  }
  running_ = false;
  changed_.notify_all();
}

// Counts its own polls instead of time: while this process is stopped, no answer is due.
void FailureDetector::run_watchdog() {
  std::optional<Clock::time_point> seen;
  milliseconds mute{0};
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, kGlance, [this] { return stopping_; });
    mute = asked_ && asked_ == seen ? mute + kGlance : milliseconds(0);
    seen = asked_;
    if (mute < silence() || !broken_.empty()) continue;
    lock.unlock();
    set_broken(unresponsive_store());
    lock.lock();
  }
}

}  // namespace spmdx::bridge
