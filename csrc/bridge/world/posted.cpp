// SPDX-License-Identifier: Apache-2.0
// Posted: works of the group, and what they need until they end.
#include "bridge/world/posted.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>

#include "bridge/backend/shard_device.h"

namespace spmdx::bridge {

void Posted::post(std::span<const Message> sends, std::span<const Message> receives) {
  try {
    works_ = transport_->post(sends, receives, carried_);
  } catch (const std::exception& error) {  // a connection that is closed already: `wait` tells why
    lost_ = error.what();
  }
}

void Posted::wait(const Progress& at) {
  KernelGuard guard;
  detector_.wait(works_, at, lost_);
  carried_.land();
}

bool Posted::is_over() const {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
}

ExchangeRef post(FailureDetector& detector, std::shared_ptr<Transport> transport, std::span<const Message> sends,
                 std::span<const Message> receives) {
  KernelGuard guard;
  detector.check();
  auto posted = std::make_unique<Posted>(detector, std::move(transport));
  posted->post(sends, receives);
  return posted;
}

}  // namespace spmdx::bridge
