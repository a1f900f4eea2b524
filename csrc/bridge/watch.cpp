// SPDX-License-Identifier: Apache-2.0
// Watch: beats, reports and signs of life, in the store and in /proc.
#include "bridge/watch.h"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "bridge/tracer.h"

namespace spmdx::bridge {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kGlance{100};    // between two looks
constexpr milliseconds kPatience{200};  // a wait this short is not looked at
constexpr seconds kBeat{1};
constexpr seconds kSilence{20};  // a process elsewhere, or a stopped one, may be silent for so long

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// "train.py:41: aten.mm", or what there is of it.
std::string place(const Progress& at) {
  const std::string line = source_text(at.source);
  return line.empty() || at.op.empty() ? line + at.op : line + ": " + at.op;
}

struct Status {
  char state = 0;  // 0: there is no such process
  uint64_t started = 0;
};

// Of a process on this machine: fields 3 and 22 of /proc/pid/stat, counted after the name, which may hold anything.
Status status_of(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return {};
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  Status status;
  fields >> status.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> status.started;
  return status;
}

}  // namespace

Watch::Watch(World world) : world_(std::move(world)), thread_([this] { run(); }) {}

Watch::~Watch() { stop(); }

void Watch::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::string Watch::key(const std::string& name) const { return std::to_string(generation_) + "/" + name; }

std::string Watch::broken() const {
  std::lock_guard lock(mutex_);
  return broken_;
}

void Watch::check() const {
  std::lock_guard lock(mutex_);
  if (!broken_.empty()) throw CommError(broken_);
}

void Watch::set_broken(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (broken_.empty()) broken_ = reason;
  for (Wait& wait : waits_)
    for (const auto& work : wait.works) work->abort();
}

std::list<Watch::Wait>::iterator Watch::begin(Wait wait) {
  std::lock_guard lock(mutex_);
  if (!broken_.empty()) throw CommError(broken_);
  step_ = wait.at.step;
  return waits_.insert(waits_.end(), std::move(wait));
}

void Watch::wait_until(const std::function<bool()>& ready, const Progress& at) {
  const auto mine = begin({{}, at, Clock::now()});
  bool is_ready = ready();
  for (milliseconds pause{1}; !is_ready && broken().empty(); pause = std::min(pause * 2, milliseconds(50))) {
    std::this_thread::sleep_for(pause);
    is_ready = ready();
  }
  std::lock_guard lock(mutex_);
  waits_.erase(mine);
  if (!is_ready) throw CommError(broken_);
}

void Watch::wait(const Works& works, const Progress& at, std::string lost) {
  const auto mine = begin({works, at, Clock::now()});
  for (auto work = works.begin(); work != works.end() && lost.empty(); ++work) {
    try {
      if (!(*work)->wait()) lost = "the wait was ended";
    } catch (const std::exception& error) {
      lost = error.what();
    }
  }
  std::unique_lock lock(mutex_);
  // A connection that broke has a reason, which the watch finds out sooner or later.
  if (!lost.empty()) changed_.wait_for(lock, kSilence + seconds(5), [this] { return !broken_.empty() || stopping_; });
  waits_.erase(mine);
  if (!lost.empty() && broken_.empty()) broken_ = "the connection to another process was lost: " + lost;
  if (!broken_.empty()) throw CommError(broken_);
}

void Watch::report(const std::string& trouble) {
  const int64_t number = world_.store->add(key("troubles"), 1);
  world_.store->set(key("trouble/" + std::to_string(number)), bytes_of(trouble));
}

void Watch::leave(int64_t steps, const std::string& why) {
  world_.store->set("left/" + std::to_string(world_.processes.here), bytes_of(std::to_string(steps) + " " + why));
}

int64_t Watch::recover() {
  {
    std::lock_guard lock(mutex_);
    broken_.clear();
    ++generation_;  // from now on reports go by another name
  }
  const std::string callers = key("recover");
  world_.store->add(callers, 1);
  wait_until([&] { return world_.store->add(callers, 0) >= world_.processes.count; }, {INT64_MAX, 0, "recover"});
  return generation_;
}

bool Watch::anybody(bool here) {
  const std::string yes = key("yes"), asked = key("asked");
  if (here) world_.store->add(yes, 1);
  world_.store->add(asked, 1);
  wait_until([&] { return world_.store->add(asked, 0) >= world_.processes.count; }, {INT64_MAX, 0, "recover"});
  return world_.store->add(yes, 0) > 0;
}

// ---- the thread ----------------------------------------------------------------------------------------

void Watch::run() {
  auto last_beat = Clock::now() - kBeat;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::vector<Wait> waits(waits_.begin(), waits_.end());
    const bool well = broken_.empty();
    lock.unlock();
    std::string trouble;
    try {
      if (Clock::now() - last_beat >= kBeat) {
        beat();
        last_beat = Clock::now();
      }
      for (const Wait& wait : waits)
        if (well && trouble.empty() && Clock::now() - wait.since > kPatience) trouble = trouble_of(wait);
    } catch (const std::exception& error) {
      trouble =
          "the store that joins the processes cannot be reached, so the process that hosts it (process 0 or the "
          "launcher) has ended: " +
          std::string(error.what()).substr(0, 200) + ". Start the program again.";
    }
    if (!trouble.empty() && well) {
      set_broken(trouble);
      changed_.notify_all();
    }
    lock.lock();
    changed_.wait_for(lock, kGlance, [this] { return stopping_; });
  }
}

void Watch::beat() {
  std::string text = std::to_string(++beats_sent_) + " step ";
  {
    std::lock_guard lock(mutex_);
    text += std::to_string(step_) + (where_.empty() || waits_.empty() ? "" : ", " + where_);
  }
  world_.store->set("beat/" + std::to_string(world_.processes.here), bytes_of(text));
}

// Why this wait is in vain; empty while there is hope. What others found out comes first: it is nearer to the cause.
std::string Watch::trouble_of(const Wait& wait) {
  if (wait.since != looked_at_) {
    const std::string where = place(wait.at);
    std::lock_guard lock(mutex_);
    looked_at_ = wait.since;
    where_ = where;
  }
  if (const std::string trouble = reported(); !trouble.empty()) return trouble;
  for (int64_t peer = 0; peer < world_.processes.count; ++peer) {
    if (peer == world_.processes.here) continue;
    std::string trouble = gone(peer, wait.at.step);
    if (trouble.empty()) trouble = silent(peer);
    if (trouble.empty()) continue;
    report(trouble);
    return trouble;
  }
  if (Clock::now() - wait.since < world_.timeout) return {};
  const std::string trouble = late(wait);
  report(trouble);
  return trouble;
}

std::string Watch::reported() {
  if (world_.store->add(key("troubles"), 0) == 0 || !world_.store->check({key("trouble/1")})) return {};
  const std::vector<uint8_t> text = world_.store->get(key("trouble/1"));
  return {text.begin(), text.end()};
}

bool Watch::lives(int64_t index) const {
  const Peer& peer = world_.peers.at(index);
  if (peer.pid == 0) return true;
  const Status status = status_of(peer.pid);
  return status.state != 0 && status.state != 'Z' && status.state != 'X' && status.started == peer.started;
}

std::string Watch::last_words(int64_t peer) {
  const std::string name = "left/" + std::to_string(peer);
  if (!world_.store->check({name})) return {};
  const std::vector<uint8_t> text = world_.store->get(name);
  return {text.begin(), text.end()};
}

// A process that has ended before it did `step`.
std::string Watch::gone(int64_t peer, int64_t step) {
  const Peer& other = world_.peers[peer];
  const bool dead = !lives(peer);
  const std::string words = last_words(peer);
  if (!words.empty()) {
    const size_t space = words.find(' ');
    const int64_t steps = std::stoll(words.substr(0, space));
    if (steps > step) return {};
    return other.name + " has ended after " + std::to_string(steps) + " steps: " + words.substr(space + 1) +
           ". Expected every process to do the same steps. Mend that process, then start the program again.";
  }
  if (!dead) return {};
  return other.name +
         " has died. Expected it to live as long as the others. See what killed it (memory, a signal), then "
         "start again from the last checkpoint.";
}

// A process that says nothing, here because it is stopped.
std::string Watch::silent(int64_t peer) {
  const Peer& other = world_.peers[peer];
  const auto now = Clock::now();
  const auto limit = std::min<Clock::duration>(kSilence, world_.timeout / 2);
  if (other.pid != 0) {
    if (status_of(other.pid).state != 'T') {
      stopped_.erase(peer);
      return {};
    }
    const auto since = stopped_.try_emplace(peer, now).first->second;
    if (now - since < limit) return {};
    return other.name + " is stopped (by a signal or a debugger). Expected it to go on. Continue or end it.";
  }
  const std::string name = "beat/" + std::to_string(peer);
  const std::vector<uint8_t> bytes = world_.store->check({name}) ? world_.store->get(name) : std::vector<uint8_t>{};
  const std::string text(bytes.begin(), bytes.end());
  Beat& known = beats_.try_emplace(peer, Beat{text, now}).first->second;
  if (known.text != text) known = {text, now};
  if (now - known.changed < limit) return {};
  return other.name + " has been silent for " + std::to_string(limit / seconds(1)) +
         " seconds. Expected a sign of life every second. See whether its machine and network are up.";
}

// Nothing is wrong but that it takes too long: who is where.
std::string Watch::late(const Wait& wait) {
  std::string text = "process " + std::to_string(world_.processes.here) + " has waited for " +
                     std::to_string(world_.timeout / seconds(1)) + " seconds, in step " + std::to_string(wait.at.step) +
                     ". The others:";
  for (int64_t peer = 0; peer < world_.processes.count; ++peer) {
    if (peer == world_.processes.here) continue;
    const std::string name = "beat/" + std::to_string(peer);
    const std::vector<uint8_t> bytes = world_.store->check({name}) ? world_.store->get(name) : std::vector<uint8_t>{};
    const std::string beat(bytes.begin(), bytes.end());
    text +=
        " " + world_.peers[peer].name + " is in " + (beat.empty() ? "no step" : beat.substr(beat.find(' ') + 1)) + ";";
  }
  text.back() = '.';
  return text + " Expected all of them to reach the same collective. Raise SPMDX_TIMEOUT if they only need longer.";
}

}  // namespace spmdx::bridge
