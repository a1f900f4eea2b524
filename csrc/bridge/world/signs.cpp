// SPDX-License-Identifier: Apache-2.0
// FailureDetector: heartbeats, reports and signs of life, in the store and in /proc.
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <fstream>
#include <sstream>

#include "bridge/python/source.h"
#include "bridge/world/failure_detector.h"

namespace spmdx::bridge {
namespace {

using std::chrono::seconds;

constexpr const char* kMend =
    "Expected it to live as long as the others. See what killed it (memory, a signal), then "
    "start again from the last checkpoint.";

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// "train.py:41: aten.mm", or the part of it that is known.
std::string position_of(const Progress& at) {
  const std::string line = source_text(at.source);
  return line.empty() || at.op.empty() ? line + at.op : line + ": " + at.op;
}

std::string stopped(const Peer& peer) {
  return peer.name + " is stopped (by a signal or a debugger). Expected it to go on. Continue or end it.";
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

bool is_stopped(const Peer& peer) { return peer.pid != 0 && status_of(peer.pid).state == 'T'; }

// What a process writes when it leaves a generation, or the program.
struct LastWords {
  int64_t steps = 0;  // that it has done
  std::string why;
};

std::optional<LastWords> last_words(const std::string& text) {
  if (text.empty()) return {};
  const size_t space = text.find(' ');
  return LastWords{std::stoll(text.substr(0, space)), text.substr(space + 1)};
}

}  // namespace

std::string text_at(c10d::Store& store, const std::string& key) {
  if (!store.check({key})) return {};
  const std::vector<uint8_t> text = store.get(key);
  return {text.begin(), text.end()};
}

void FailureDetector::send_heartbeat() {
  std::string text = std::to_string(++heartbeats_sent_) + " step ";
  {
    std::lock_guard lock(mutex_);
    text += std::to_string(step_) + (where_.empty() || waits_.empty() ? "" : ", " + where_);
  }
  world_.store->set("heartbeat/" + std::to_string(world_.processes.here), bytes_of(text));
}

// Why this wait cannot succeed; empty while it may. Reports of others come first: they are nearer to the cause.
std::string FailureDetector::trouble_of(const Wait& wait) {
  if (wait.since != looked_at_) {
    {
      std::lock_guard lock(mutex_);
      asked_.reset();  // what follows waits for the interpreter, not for the store
    }
    const std::string where = position_of(wait.at);
    std::lock_guard lock(mutex_);
    asked_ = Clock::now();
    looked_at_ = wait.since;
    where_ = where;
  }
  if (const std::string trouble = reported(); !trouble.empty()) return trouble;
  for (int64_t peer = 0; peer < world_.processes.count; ++peer) {
    if (peer == world_.processes.here) continue;
    std::string trouble = gone(peer, wait.for_all ? INT64_MAX : wait.at.step);
    if (trouble.empty()) trouble = silent(peer);
    if (trouble.empty()) continue;
    post(trouble, looked_in_);
    return trouble;
  }
  if (Clock::now() - wait.since < std::max(world_.timeout, wait.patience)) return {};
  const std::string trouble = late(wait);
  post(trouble, looked_in_);
  return trouble;
}

void FailureDetector::post(const std::string& trouble, int64_t generation) {
  const int64_t number = world_.store->add(key("troubles", generation), 1);
  world_.store->set(key("trouble/" + std::to_string(number), generation), bytes_of(trouble));
}

std::string FailureDetector::reported() { return text_at(key("trouble/1", looked_in_)); }

bool FailureDetector::lives(int64_t index) const {
  const Peer& peer = world_.peers.at(index);
  if (peer.pid == 0) return true;
  const Status status = status_of(peer.pid);
  return status.state != 0 && status.state != 'Z' && status.state != 'X' && status.started == peer.started;
}

bool FailureDetector::runs(int64_t index) const { return lives(index) && !is_stopped(world_.peers.at(index)); }

// A process that has ended, or given up, before it did `step`.
std::string FailureDetector::gone(int64_t peer, int64_t step) {
  const std::string index = std::to_string(peer), &name = world_.peers[peer].name;
  const bool dead = !lives(peer);
  if (const auto left = last_words(text_at("left/" + index))) {
    if (left->steps > step) return {};
    return name + " has ended after " + std::to_string(left->steps) + " steps: " + left->why +
           ". Expected every process to do the same steps. Mend that process, then start the program again.";
  }
  if (dead) return name + " has died. " + kMend;
  const auto off = last_words(text_at(key("called off/" + index, looked_in_)));
  if (!off || off->steps > step) return {};
  return name + " has called recover() after " + std::to_string(off->steps) + " steps" +
         (off->why.empty() ? "" : ": " + off->why) +
         ". Expected every process to do the same steps. Catch the error in every process to go on: "
         "spmdx.runtime.recover().";
}

// The process that hosted the store, and has ended.
std::string FailureDetector::lost_store(const std::string& error) const {
  for (int64_t peer = 0; peer < world_.processes.count; ++peer)
    if (!lives(peer)) return world_.peers[peer].name + " has died, and the store with it. " + kMend;
  return "the store that joins the processes cannot be reached, so the process that hosts it (process 0 or the "
         "launcher) has ended: " +
         error.substr(0, std::min<size_t>(error.find('\n'), 200)) + ". Start the program again.";
}

// The process that hosts the store, and is stopped.
std::string FailureDetector::unresponsive_store() const {
  const std::string text =
      "the store that joins the processes has not answered for " + std::to_string(silence() / seconds(1)) + " seconds";
  for (int64_t peer = 0; peer < world_.processes.count; ++peer) {
    const Peer& other = world_.peers[peer];
    if (is_stopped(other)) return stopped(other) + " Meanwhile " + text + ".";
  }
  return text +
         ". Expected the process that hosts it (process 0 or the launcher) to answer at once. See whether it "
         "is stopped, and whether its machine and network are up.";
}

// A process without heartbeats; on this machine, one that is stopped.
std::string FailureDetector::silent(int64_t peer) {
  const Peer& other = world_.peers[peer];
  const auto now = Clock::now();
  const auto limit = silence();
  if (other.pid != 0) {
    if (!is_stopped(other)) {
      stopped_.erase(peer);
      return {};
    }
    const auto since = stopped_.try_emplace(peer, now).first->second;
    if (now - since < limit) return {};
    return stopped(other);
  }
  const std::string text = text_at("heartbeat/" + std::to_string(peer));
  Heartbeat& known = heartbeats_.try_emplace(peer, Heartbeat{text, now}).first->second;
  if (known.text != text) known = {text, now};
  if (now - known.changed < limit) return {};
  return other.name + " has been silent for " + std::to_string(limit / seconds(1)) +
         " seconds. Expected a sign of life every second. See whether its machine and network are up.";
}

// Nothing is wrong but the time that it takes: tells where each process is.
std::string FailureDetector::late(const Wait& wait) {
  std::string text = "process " + std::to_string(world_.processes.here) + " has waited for " +
                     std::to_string(world_.timeout / seconds(1)) + " seconds, in step " + std::to_string(wait.at.step) +
                     ". The others:";
  for (int64_t peer = 0; peer < world_.processes.count; ++peer) {
    if (peer == world_.processes.here) continue;
    const std::string heartbeat = text_at("heartbeat/" + std::to_string(peer));
    text += " " + world_.peers[peer].name + " is in " +
            (heartbeat.empty() ? "no step" : heartbeat.substr(heartbeat.find(' ') + 1)) + ";";
  }
  text.back() = '.';
  return text + " Expected all of them to " + (wait.for_all ? "call recover()" : "reach the same collective") +
         ". Raise SPMDX_TIMEOUT if they only need longer.";
}

}  // namespace spmdx::bridge
