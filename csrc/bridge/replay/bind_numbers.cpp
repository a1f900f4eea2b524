// SPDX-License-Identifier: Apache-2.0
// Which numbers of a captured step are results of the arithmetic that its call did on the host.
#include <algorithm>
#include <bit>

#include "bridge/backend/buffer.h"
#include "bridge/replay/captured.h"

namespace spmdx::bridge {
namespace {

constexpr const char* kNotFollowed = "numbers that it computes on the host are used in a way that is not followed";

bool same_number(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

double number_in(const Data& number) { return *tensor_of(number.wait().at(0)).const_data_ptr<double>(); }

}  // namespace

bool Captured::has(size_t real, int64_t result) const {
  return same_number(value_of(reals_[real]), host_->values()[static_cast<size_t>(result)]);
}

bool Captured::always_has(size_t real, int64_t result, const Calls& before) const {
  return has(real, result) && std::ranges::all_of(before, [&](const auto& call) { return call->has(real, result); });
}

bool Captured::stays(int64_t result, const Calls& before) const {
  const auto at = static_cast<size_t>(result);
  return std::ranges::all_of(
      before, [&](const auto& call) { return same_number(call->host_->values()[at], host_->values()[at]); });
}

std::string Captured::bind_use(const HostNumbers::Use& use, const Calls& before) {
  std::vector<size_t> found;
  for (size_t i = 0; i < reals_.size(); ++i) {
    const auto fits = [&](int64_t result) { return always_has(i, result, before); };
    if (reals_[i].is_in(use) && std::ranges::any_of(use.results, fits)) found.push_back(i);
  }
  return use.in_order ? bind_in_order(use, found, before) : bind_by_value(use, found, before);
}

// Each of them as often, in the order of the tensors: their values alone may be equal.
std::string Captured::bind_in_order(const HostNumbers::Use& use, const std::vector<size_t>& found,
                                    const Calls& before) {
  const size_t times = found.size() / use.results.size();
  if (times == 0 || found.size() % use.results.size() != 0) return kNotFollowed;
  for (size_t j = 0; j < found.size(); ++j) {
    const int64_t result = use.results[j / times];
    if (!always_has(found[j], result, before) || (times > 1 && stays(result, before))) return kNotFollowed;
    reals_[found[j]].result = result;
  }
  return "";
}

// Nobody knows in which order an op uses its numbers: only one of them may fit.
std::string Captured::bind_by_value(const HostNumbers::Use& use, const std::vector<size_t>& found,
                                    const Calls& before) {
  std::vector<size_t> times(use.results.size());
  for (const size_t real : found) {
    for (size_t r = 0; r < use.results.size(); ++r) {
      if (!always_has(real, use.results[r], before)) continue;
      const bool is_other = reals_[real].result >= 0 && reals_[real].result != use.results[r];
      if (is_other || (++times[r] > 1 && stays(use.results[r], before))) return kNotFollowed;
      reals_[real].result = use.results[r];
    }
  }
  return std::ranges::find(times, 0U) == times.end() ? "" : kNotFollowed;
}

std::string Captured::bind_rest(size_t i, const Calls& before) {
  Real& real = reals_[i];
  const auto is_same = [&](const auto& call) { return same_number(call->value_of(call->reals_[i]), value_of(real)); };
  const bool is_constant = std::ranges::all_of(before, is_same);
  if (is_constant && !real.is_backward) return "";
  std::vector<int64_t> fitting;
  for (const HostNumbers::Use& use : host_->uses()) {
    if (!use.gradients) continue;
    for (const int64_t result : use.results)
      if (always_has(i, result, before) && std::ranges::find(fitting, result) == fitting.end())
        fitting.push_back(result);
  }
  if (fitting.empty() && is_constant) return "";
  if (fitting.size() != 1 || is_constant) return kNotFollowed;
  real.result = fitting[0];
  return "";
}

std::string Captured::bind_numbers(const Calls& before) {
  for (const HostNumbers::Use& use : host_->uses())
    if (std::string why = bind_use(use, before); !why.empty()) return why;
  for (size_t i = 0; i < reals_.size(); ++i) {
    if (reals_[i].result >= 0) continue;
    if (std::string why = bind_rest(i, before); !why.empty()) return why;
  }
  return "";
}

double Captured::value_of(const Real& real) const {
  return real.is_param ? params_[real.index].real : number_in(*inputs_[real.index].number);
}

}  // namespace spmdx::bridge
