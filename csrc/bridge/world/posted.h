// SPDX-License-Identifier: Apache-2.0
// Posted: messages that are under way, which only who reads them waits for.
#pragma once
#include <memory>
#include <string>

#include "bridge/world/failure_detector.h"
#include "bridge/world/transport.h"

namespace spmdx::bridge {

class Posted final : public Exchange {
 public:
  // The detector outlives it.
  Posted(FailureDetector& detector, std::shared_ptr<Transport> transport)
      : detector_(detector), transport_(std::move(transport)) {}
  // Once. Queue thread, or the step thread in its place.
  void post(std::span<const Message> sends, std::span<const Message> receives);
  // Both: step thread.
  void wait(const Progress& at) override;
  bool is_over() const override;

 private:
  FailureDetector& detector_;
  const std::shared_ptr<Transport> transport_;
  Carried carried_;
  Works works_;
  std::string lost_;  // why it could not be posted
};

// Throws CommError if the world is broken. Queue thread, or the step thread in its place.
ExchangeRef post(FailureDetector& detector, std::shared_ptr<Transport> transport, std::span<const Message> sends,
                 std::span<const Message> receives);

}  // namespace spmdx::bridge
