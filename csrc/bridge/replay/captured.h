// SPDX-License-Identifier: Apache-2.0
// Captured: a call of a function as one step, which is sent again with other arguments, and no Python runs.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "bridge/recorder/capture.h"
#include "bridge/replay/host_numbers.h"
#include "bridge/replay/place.h"
#include "bridge/replay/setting.h"
#include "bridge/tensor/generator.h"

namespace spmdx::bridge {

// Tensors of a call, by how it comes to them.
struct CallTensors {
  std::vector<at::Tensor> arguments;
  std::vector<at::Tensor> watched;  // what the function reaches otherwise: parameters, states
};

// What is known when a call begins.
struct CallBegun {
  CallTensors tensors;
  uint64_t next_serial = 0;  // of roots
  Draw draw;
  Setting setting;
  std::vector<RootRef> gradients;  // of watched tensors; null: there is none
  // Of all tensors, arguments first:
  std::vector<RootRef> roots;
  std::vector<Shown> shown;
  std::vector<RootState> states;
  std::vector<uint64_t> versions;
};

class Captured {
 public:
  using Calls = std::vector<std::shared_ptr<Captured>>;
  // The arithmetic that the call did on the host.
  void set_numbers(std::shared_ptr<HostNumbers> numbers) { host_ = std::move(numbers); }
  // How another call of the function was sent otherwise than this one, but for numbers; empty: it was not.
  std::string differs(const Captured& other) const;
  // Finds which numbers of the step change from call to call, and where the arithmetic has them: what fits this call
  // and those before it. Why some cannot be found; empty: all were. REQUIRES: it does not differ from these.
  std::string bind_numbers(const Calls& before);
  // Why a call with these arguments has to be recorded; empty: it may be sent. Throws as flush does. Program threads.
  // Takes the recorder's lock. Gives up the GIL.
  std::string misfit(const std::vector<at::Tensor>& arguments);
  // Sends the step again, with what its arithmetic gave last, and returns what the call returns. REQUIRES: it fits. As
  // misfit.
  std::vector<at::Tensor> send(const std::vector<at::Tensor>& arguments);

 private:
  friend class Analysis;
  struct Input {
    std::optional<Place> place;  // none: a number of the host
    DataRef number;
    ShardingRef sharding = nullptr;
    std::vector<Place> same;  // further roots that hold the same data
  };
  struct Output {
    Place place;
    RootState made;     // of a root that the call makes
    int32_t leaf = -1;  // the watched tensor whose gradient it is
  };
  // A number of the step that comes from the generator.
  struct Drawn {
    uint32_t param = 0;
    bool is_seed = false;
    uint64_t after = 0;  // draws before it in the call
  };
  struct Watched {
    at::Tensor tensor;
    WeakRootRef root;
    Shown shown;
    std::optional<RootState> gradient = std::nullopt;  // that it has when the call begins
    enum class Leaves : uint8_t { as_is, none, made } leaves = Leaves::as_is;
    uint32_t made = 0;  // the output that is its gradient
    Shown shown_gradient = {};
    uint64_t versions = 0;  // by how many the call moves its version
  };
  struct Argument {
    Shown shown;
    RootState state;
    int32_t watched = -1;  // the watched tensor whose root it is; -1: of none
    uint32_t alias = 0;    // the first argument with this root
    uint64_t versions = 0;
  };
  struct Returned {
    Place place;
    Shown shown;
  };

  // A real number of the step: a parameter, or a number that is an input.
  struct Real {
    bool is_param = true;
    uint32_t index = 0;
    ValueId value = kNone;     // of an input
    bool is_backward = false;  // a backward pass has recorded it
    int64_t result = -1;       // of the arithmetic; -1: it does not change
    bool is_in(const HostNumbers::Use& use) const {
      return is_param ? index >= use.params_begin && index < use.params_end
                      : value >= use.values_begin && value < use.values_end;
    }
  };

  // Gives the roots of gradients that there are, too.
  std::string misfit_of_watched(std::vector<const Root*>& gradients) const;
  std::string misfit_of_arguments(const std::vector<at::Tensor>& arguments, const std::vector<RootRef>& kept,
                                  const std::vector<const Root*>& gradients) const;
  std::string misfit_of_inputs(const std::vector<at::Tensor>& arguments, const std::vector<RootRef>& kept) const;
  std::vector<RootRef> kept_roots() const;
  // Calls of PyTorch were given results of the arithmetic: finds which of their numbers these are.
  std::string bind_use(const HostNumbers::Use& use, const Calls& before);
  std::string bind_in_order(const HostNumbers::Use& use, const std::vector<size_t>& found, const Calls& before);
  std::string bind_by_value(const HostNumbers::Use& use, const std::vector<size_t>& found, const Calls& before);
  // Whether a number of the step is this result of the arithmetic: in this call, in all of them; whether the result
  // was the same in all.
  bool has(size_t real, int64_t result) const;
  bool always_has(size_t real, int64_t result, const Calls& before) const;
  bool stays(int64_t result, const Calls& before) const;
  // A number that no call was given: it changes as one does that a backward pass uses again, or not at all.
  std::string bind_rest(size_t real, const Calls& before);
  double value_of(const Real& real) const;
  std::vector<DataRef> inputs_for(const std::vector<at::Tensor>& arguments, const std::vector<RootRef>& kept) const;
  std::vector<RootRef> put_outputs(const std::vector<at::Tensor>& arguments, const std::vector<RootRef>& kept,
                                   std::vector<DataRef>& outputs) const;
  void finish(const std::vector<at::Tensor>& arguments, const std::vector<RootRef>& made) const;
  Root& root_at(const Place& place, const std::vector<at::Tensor>& arguments, const std::vector<RootRef>& kept) const;
  std::span<const Param> starts() const;
  std::vector<Param> params_for(const Draw& draw) const;

  Setting setting_;
  PlanRef plan_;
  std::vector<Param> params_;
  std::vector<Drawn> drawn_;
  std::vector<Real> reals_;
  std::shared_ptr<HostNumbers> host_;
  uint64_t draws_ = 0;
  std::vector<Argument> arguments_;
  std::vector<Watched> watched_;
  std::vector<WeakRootRef> kept_;
  std::vector<RootState> kept_states_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<Returned> returned_;
};

// How many parameters and values are recorded. Program threads. Takes the recorder's lock.
std::pair<uint32_t, ValueId> recorded_so_far();
// Which of these tensors have a gradient, as a text of digits. Program threads.
std::string have_gradients(const std::vector<at::Tensor>& tensors);
// Ends the graph and notes from now on what is recorded. Returns false where another call is noted already. Throws as
// flush does. Both: Program threads. Takes the recorder's lock. Gives up the GIL.
bool begin_capture(CallTensors tensors);
void abandon_capture();
// Ends the graph, and the notes. `returned`: tensors of the device that the call returns. The text says why the call
// cannot be replayed. Throws as flush does.
std::variant<std::shared_ptr<Captured>, std::string> end_capture(const std::vector<at::Tensor>& returned);

// Steps that were sent again since the counters were reset. Any thread, both.
int64_t replayed_steps();
void reset_replayed_steps();

}  // namespace spmdx::bridge
