// SPDX-License-Identifier: Apache-2.0
// Transfer: one value on its way from one layout to another: what is sent, what is awaited, and what becomes of it.
#pragma once
#include "runtime/collective/route.h"
#include "runtime/data/comm.h"

namespace spmdx {

using Messages = std::vector<Message>;
using NativeCalls = std::vector<NativeCall>;

// Lives from the first message to the last. Between processes it takes a round of messages, and a second one for sums
// that are shared out; the messages of a round may travel with those of other transfers.
class Transfer {
 public:
  // `shards` are those of this process, in order of their index. `ours`: nobody reads them afterwards.
  Transfer(Backend& backend, const Route& route, DType dtype, Reduction reduction, Shards shards, bool ours = false);
  // Calls are made beside the messages of the first round.
  void first_round(Messages& sends, Messages& receives, NativeCalls& calls);
  // Whether it needs no second round, and no calls.
  bool is_one_round() const;
  // REQUIRES: the messages of the first round have come.
  void second_round(Messages& sends, Messages& receives);
  // The new shards. REQUIRES: all messages have come. A shard that comes whole from this process is shared.
  Shards finish();

 private:
  // Of one target: what came, in the order in which it was asked for.
  struct Arrival {
    Shards received;
    BufferRef mine;  // with partners: what this process gives, in one row
    Shards parts;    // with partners: the sums, by partner; of a native target, the whole
  };

  BufferRef shard(const BoxCopy& piece) const;
  BufferRef join(const Summand& summand, const Shape& shape) const;
  BufferRef give(const Contribution& contribution) const;
  void ask(const Target& target, Arrival& arrival, Messages& receives) const;
  BufferRef given_to(const Native& native);
  bool gives_ours(const Native& native) const;
  void call_natives(NativeCalls& calls);
  void hand_out(const Native& native, const BufferRef& taken);
  void hand_out_rows(const Native& native, const BufferRef& rows);
  void hand_out_sums(const Native& native, const BufferRef& sums);
  BufferRef joined_shards(const Target& target) const;
  BufferRef finish_term(const Target& target, const Term& term, const Arrival& arrival, size_t& next) const;
  BufferRef part_of_sum(const Target& target);
  BufferRef finish_target(const Target& target, const Arrival& arrival);
  BufferRef in_rows(const BufferRef& buffer, const Shape& shape) const;
  BufferRef finish_shared(const Target& target, const Arrival& arrival) const;

  Backend& backend_;
  const Route& route_;
  DType dtype_;
  Reduction reduction_;  // of the old layout, or of the new one where that is partial
  Shards shards_;
  bool ours_;
  std::vector<Arrival> arrivals_;
  Shards taken_;  // by native collective
  Shards sums_;   // by the number of the first target that is a part of it
};

// One move within this process.
Shards transfer_here(Backend& backend, DType dtype, const Relayout& relayout, Shards shards);

}  // namespace spmdx
