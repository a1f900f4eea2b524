// SPDX-License-Identifier: Apache-2.0
// Comm: what the runtime needs to send messages between processes. The bridge implements it.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/backend.h"
#include "sharding/processes.h"

namespace spmdx {

// A buffer on its way from or to another process.
struct Message {
  int64_t peer = 0;
  BufferRef buffer;
};

enum class NativeKind : uint8_t { all_gather, reduce_scatter, all_reduce };

// A collective of the backend's own among some processes, which all call it, and give rows of equal length.
struct NativeCall {
  NativeKind kind = NativeKind::all_gather;
  const std::vector<int64_t>* group = nullptr;  // ascending; this process is one of them
  // Of reduce_scatter, a part for each member, in their order. Of a sum, nobody else's memory: it is overwritten.
  BufferRef given;
  BufferRef taken;  // of all_gather, a row of each member, in their order; of all_reduce, `given` itself
};

// What this process does at the moment, for processes that wait for it.
struct Progress {
  int64_t step = 0;  // counted from 0
  SourceId source = 0;
  std::string op;  // empty: about to begin the step
};

// Messages that are under way.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Blocks until all has come and gone. Once. Throws CommError naming who is missing. Step thread.
  virtual void wait(const Progress& at) = 0;
  // Whether `wait` would not block. Step thread.
  virtual bool is_over() const = 0;
};
using ExchangeRef = std::unique_ptr<Exchange>;

// This class itself serves a program of one process, which has no others to agree with. Threads and locks are said as
// docs/threads.md defines it; none of these functions is called with a leaf lock.
class Comm {
 public:
  virtual ~Comm() = default;
  // Any thread. Takes no lock: it is settled before the first step.
  virtual Processes processes() const { return {}; }
  // Whether messages are works of an accelerator's stream, behind which a thread may give it more. Any thread. Takes no
  // lock: likewise.
  virtual bool is_on_stream() const { return false; }
  // Sends and receives in one go; returns when all has come. Messages between two processes keep their order. Called
  // by one thread at a time, in the same order everywhere. Throws CommError naming who is missing. Queue thread, or the
  // step thread while that has nothing to do.
  virtual void exchange(std::span<const Message> sends, std::span<const Message> receives, const Progress& at);
  // The same, but returns as soon as the messages are posted; null: they have come. Between two processes they keep
  // their order among those of `exchange`.
  virtual ExchangeRef begin(std::span<const Message> sends, std::span<const Message> receives, const Progress& at);
  // Calls the backend's own collectives; returns when all have ended. Called in the same order by all members of a
  // group. Threads and errors as of `exchange`.
  virtual void call(std::span<const NativeCall> calls, const Progress& at);
  // The next step of this process has this fingerprint. Returns at once. Program threads. Holds Engine::submitting.
  virtual void announce(uint64_t fingerprint);
  // Waits until every process has announced its step of this number (from 0). Throws CommError where one differs;
  // `describe` then tells the others what is run here. Step thread, with none of the engine's locks.
  virtual void agree(const Progress& at, const std::function<std::string()>& describe);
  // Tells the others that the step failed here, so that they need not wait. `overwrote`: it had begun to overwrite its
  // inputs. Step thread, with none of the engine's locks.
  virtual void failed(const Progress& at, std::exception_ptr error, bool overwrote);
};

}  // namespace spmdx
