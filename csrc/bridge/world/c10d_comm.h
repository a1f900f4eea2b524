// SPDX-License-Identifier: Apache-2.0
// The processes of a program, joined by torch.distributed: messages through a c10d backend, agreement and failures
// through its store.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "bridge/world/failure_detector.h"
#include "bridge/world/groups.h"
#include "runtime/data/comm.h"
#include "runtime/step/engine.h"

namespace spmdx::bridge {

// Threads and locks are said as docs/threads.md defines it; a function of which nothing is said: "Program threads,
// without the GIL. Takes the failure detector's lock."

// The one Comm of this process; until `join`, of a program that is one process. Any thread. Takes no lock.
Comm& comm();

// From now on the program is many processes. `make_group` gives the backend of this name among some of them, all of
// which ask for it. REQUIRES: called once, before any step. `make_group` is called on a thread of its own, with no
// lock, and takes the GIL.
void join(World world, MakeGroup make_group);

// Tells the others that this process leaves, with the number of steps done, and stops watching them.
void leave(int64_t steps, const std::string& why);
// Ends whatever is under way between processes here: it fails for this reason. REQUIRES: joined.
void end_world(const std::string& why);

// Tells the others that this process announces no more steps before it recovers, so that they do not wait for it.
void call_off(const std::string& why);
// After a failure: groups under new names, when every process has said that it wants to go on; they agree again on the
// number of the next step, on what was compared, and on the state of the device's generator. Throws CommError where
// tensors may differ now. May be called again where it was broken off. REQUIRES: no step runs, and no other thread
// submits one. Takes Engine::submitting and the communicator's lock.
void recover(Engine& engine);
// How often the processes have recovered. Any thread.
int64_t generation();

// Both: how many collectives of the backend's own this process has called. Any thread. Takes no lock.
int64_t native_collectives();
void reset_native_collectives();

struct Awaited {
  std::string what;                      // for errors
  SourceId source = 0;                   // the user's line
  std::string stale = {};                // a key that is deleted when all are there
  std::chrono::milliseconds patience{};  // how long a process may be late, if longer than SPMDX_TIMEOUT
};
// What the store has under these keys, when all are there. Throws CommError where they will not come. REQUIRES: joined.
std::vector<std::string> await_values(const std::vector<std::string>& keys, const Awaited& awaited);
// Throws CommError where the processes, all of which call it, have different numbers. REQUIRES: joined, and always
// called by the same thread of the program, since calls are told apart by their order.
void compare_replicas(uint64_t digest);
// Both: Any thread. Takes no lock. REQUIRES: joined.
bool lives(int64_t process);  // as far as can be seen from here
bool runs(int64_t process);   // it lives, and is not stopped

// Why no process can be reached any more; empty while all is well. Any thread.
std::string broken();

// `callback` is called once, before the first step, draw of a random number or question about processes. REQUIRES: set
// at the import, before any other thread uses the device. The callback gets the GIL, and must not use device tensors.
void set_before_first_use(std::function<void()> callback);
// Program threads. Gives up the GIL. Takes the once flag of the first use; the recorder's lock may be held.
void note_use();

}  // namespace spmdx::bridge
