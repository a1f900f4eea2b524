// SPDX-License-Identifier: Apache-2.0
// Compilers: what changes of one of them changes of all.
#include "runtime/segments/compiler.h"

namespace spmdx {

uint64_t Compilers::version() const {
  uint64_t sum = 0;  // of numbers that grow
  for (const std::shared_ptr<Compiler>& each : all) sum += each ? each->version() : 0;
  return sum;
}

uint64_t Compilers::cuts() const {
  uint64_t sum = 0;
  for (const std::shared_ptr<Compiler>& each : all) sum += each ? each->cuts() : 0;
  return sum;
}

void Compilers::await() const {
  for (const std::shared_ptr<Compiler>& each : all)
    if (each) each->await();
}

}  // namespace spmdx
