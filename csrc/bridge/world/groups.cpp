// SPDX-License-Identifier: Apache-2.0
// Groups: making one waits for all its members, on a thread that is left behind if they do not come.
#include "bridge/world/groups.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <thread>

#include "base/error.h"

namespace spmdx::bridge {
namespace {

constexpr std::chrono::seconds kFoundSoon{2};  // a process of this machine that has died is found in less

}  // namespace

std::shared_future<Group> Groups::begin(const std::string& name, const std::vector<int64_t>& members) const {
  auto made = std::make_shared<std::promise<Group>>();
  std::thread([make = make_, name, members, made] {
    try {
      made->set_value(make(name, members));
    } catch (...) {
      made->set_exception(std::current_exception());
    }
  }).detach();
  return made->get_future().share();
}

Group Groups::open(const std::string& name, const std::vector<int64_t>& members, const Progress& at) {
  if (opening_.first != name) opening_ = {name, begin(name, members)};
  const std::shared_future<Group> group = opening_.second;
  const auto is_made = [group](c10d::Store&) {
    return group.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  detector_.wait_until(is_made, at);
  try {
    return group.get();
  } catch (const std::exception& error) {
    fail(members, error.what());
  }
}

// Where another process has gone, that is the reason; else the others do not know of one.
void Groups::fail(const std::vector<int64_t>& members, const std::string& reason) {
  detector_.await_reason(kFoundSoon);
  std::string others;
  for (const int64_t member : members)
    if (member != detector_.world().processes.here) others += (others.empty() ? "" : ", ") + std::to_string(member);
  const std::string trouble = detector_.world().peers[detector_.world().processes.here].name +
                              " could not be joined with process " + others + ": " +
                              reason.substr(0, reason.find('\n')) +
                              ". Expected connections between them. Mend that, and catch the error in every process "
                              "to go on: spmdx.runtime.recover().";
  detector_.report(trouble);
  detector_.set_broken(trouble);
  throw CommError(trouble);
}

void Groups::free_idle_ones_before(int64_t generation) {
  std::vector<std::shared_ptr<Transport>> idle;  // they die after the lock is given up: the first to be made
  std::lock_guard lock(mutex_);
  std::erase_if(among_, [&](const auto& one) {
    const bool freed = one.first.first < generation && one.second->is_idle();
    if (freed) idle.push_back(one.second);
    return freed;
  });
}

// Making a group cannot be broken off, so it is begun when all its members have come.
void Groups::meet(const std::string& name, const std::vector<int64_t>& members, const Progress& at) {
  std::vector<std::string> keys;
  for (const int64_t member : members) keys.push_back("comes/" + name + "/" + std::to_string(member));
  detector_.set("comes/" + name + "/" + std::to_string(detector_.world().processes.here), "1");
  detector_.wait_for(keys, at);
}

std::shared_ptr<Transport> Groups::among(const std::vector<int64_t>& members, const Progress& at) {
  const std::pair key{detector_.generation(), members};
  {
    std::lock_guard lock(mutex_);
    if (const auto known = among_.find(key); known != among_.end()) return known->second;
  }
  std::string name = "data/" + std::to_string(key.first) + "/among";
  for (const int64_t member : members) name += "-" + std::to_string(member);
  free_idle_ones_before(key.first);
  meet(name, members, at);
  auto transport = std::make_shared<Transport>(open(name, members, at), detector_.world().on_stream);
  std::lock_guard lock(mutex_);
  return among_.emplace(key, std::move(transport)).first->second;
}

void Groups::abort() {
  std::vector<std::shared_ptr<Transport>> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, transport] : among_)
      if (key.first == detector_.generation()) all.push_back(transport);
  }
  for (const auto& transport : all) transport->abort();
}

}  // namespace spmdx::bridge
