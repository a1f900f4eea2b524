// SPDX-License-Identifier: Apache-2.0
// Rules from Python: registers the rules of users' own ops.
#include <ATen/core/dispatch/Dispatcher.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "base/error.h"
#include "bind/bind.h"
#include "bridge/backend/aten_names.h"
#include "bridge/record/call/schema.h"
#include "bridge/record/register.h"
#include "bridge/recorder/engine.h"
#include "rules/lookup.h"
#include "rules/registered.h"
#include "rules/rule/rule.h"

namespace spmdx {
namespace {

namespace py = pybind11;

// How many of a schema's arguments or returns are tensors; −1 if one is a list of tensors, whose length is not known.
int count_tensors(const std::vector<c10::Argument>& arguments) {
  const auto is_list = [](const c10::Argument& argument) {
    return bridge::mentions_tensor(argument) && argument.type()->kind() == c10::TypeKind::ListType;
  };
  if (std::any_of(arguments.begin(), arguments.end(), is_list)) return -1;
  return static_cast<int>(std::count_if(arguments.begin(), arguments.end(), bridge::mentions_tensor));
}

// All overloads of "ns::op", or only the one that "ns::op.overload" names.
std::vector<c10::OperatorHandle> overloads(const std::string& name) {
  const size_t dot = name.find('.');
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::OperatorHandle> found;
  for (const c10::OperatorName& other : dispatcher.getAllOpNames()) {
    if (other.name != name.substr(0, dot) || (dot != name.npos && other.overload_name != name.substr(dot + 1)))
      continue;
    if (const auto op = dispatcher.findSchema(other)) found.push_back(*op);
  }
  if (found.empty())
    throw ShardingError(
        "no op is called '" + name +
        "'. Expected the name of an op that is defined, as 'mylib::scale'. Define it with torch.library "
        "first.");
  return found;
}

void require_recorded(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
    throw ShardingError(bridge::op_name(op.operator_name()) +
                        " is made of other ops, which have rules of their own. Expected an op with a kernel and, if it "
                        "is to be differentiated, an autograd formula. Register no rule for it.");
}

void register_user_rule(const std::string& name, const std::string& letters, const std::string& linear,
                        uint64_t linear_inputs, const std::string& reduction, double flops) {
  const std::vector<c10::OperatorHandle> ops = overloads(name);
  const auto reduced = parse_reduction(reduction);
  if (!reduced || *reduced == Reduction::none)
    throw ShardingError("'" + reduction + "' is no reduction. Expected sum, max, min, prod, any or all.");
  const Linearity linearity = parse_linearity(linear);
  for (const c10::OperatorHandle& op : ops) require_recorded(op);
  {
    py::gil_scoped_release no_gil;
    bridge::engine().wait();
  }
  const c10::FunctionSchema& schema = ops[0].schema();
  register_rule({bridge::op_name({name, ""}), letters, linearity, linear_inputs, *reduced, flops},
                count_tensors(schema.arguments()), count_tensors(schema.returns()));
  for (const c10::OperatorHandle& op : ops) bridge::record_whole(op);
  py::gil_scoped_release no_gil;
  bridge::engine().clear_cache();
}

}  // namespace

void bind_rules(py::module_& m) {
  m.def("rules", all_rules);
  m.def("register_rule", register_user_rule, py::arg("name"), py::arg("letters"), py::arg("linear"),
        py::arg("linear_inputs"), py::arg("reduction"), py::arg("flops"));
}

}  // namespace spmdx
