// SPDX-License-Identifier: Apache-2.0
// The texts of own_stream.h and cycles.h.
#include "emit/hls/project/project.h"

namespace spmdx::emit::hls {

const char* const kOwnStream = R"(// SPDX-License-Identifier: Apache-2.0
// A stand-in for the vendor's hls_stream.h, so that g++ compiles the design: a queue that has room for all, whose
// elements know the cycle from which on they can be read (cycles.h).
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

)"
                               "#include \"cycles.h\"\n"
                               R"(
namespace hls {

template <class T>
class stream {
 public:
  explicit stream(const char* name = "") : name_(name) {}
  stream(const stream&) = delete;
  bool empty() const { return next_ == elements_.size(); }
  void write(const T& value) { elements_.push_back({value, cycles::written()}); }
  T read() {
    if (empty()) throw std::runtime_error(std::string("stream ") + name_ + " is read, and is empty");
    cycles::wait_until(elements_[next_].at);
    return elements_[next_++].value;
  }

 private:
  struct Element {
    T value;
    long at;
  };
  const char* name_;
  std::vector<Element> elements_;
  size_t next_ = 0;
};

}  // namespace hls
)";

const char* const kCycles = R"(// SPDX-License-Identifier: Apache-2.0
// Cycles of a run on a processor. Stages run one after the other here, and at once in a circuit, so each has a clock of
// its own, which begins at 0: an iteration takes the interval of its loop, what it writes is there after the depth of
// the loop, and it waits for what it reads. A full stream makes nobody wait here.
#pragma once
#ifdef __SYNTHESIS__
#define STAGE(number)
#define LOOP(interval, depth)
#define STEP
#define DRAIN
#define LEAVE
#else
#include <vector>

namespace cycles {

inline long now = 0, interval = 1, depth = 0, latency = 0;
inline size_t stage = 0;
inline std::vector<long> busy;  // by stage, without what it waits

inline void begin(size_t number) {
  if (busy.size() <= number) busy.resize(number + 1, 0);
  stage = number;
  now = busy[number] = 0;
}
inline long written() { return now + depth; }
inline void wait_until(long at) {
  if (now < at) now = at;
}
inline void pass(long count) {
  now += count;
  busy[stage] += count;
}
inline void leave() {
  if (latency < now) latency = now;
}

}  // namespace cycles
#define STAGE(number) cycles::begin(number)
#define LOOP(of_interval, of_depth) cycles::interval = of_interval, cycles::depth = of_depth
#define STEP cycles::pass(cycles::interval)
#define DRAIN cycles::pass(cycles::depth)
#define LEAVE cycles::leave()
#endif
)";

}  // namespace spmdx::emit::hls
