// SPDX-License-Identifier: Apache-2.0
// Writes of rows (index_copy, index_add, index_put) and of single elements (scatter, scatter_add) into a window: the
// indices that point into it are picked, and ATen's kernel does these.
#include "bridge/backend/kernels/window_writes.h"

#include <ATen/Functions.h>

#include "bridge/backend/buffer.h"
#include "bridge/backend/kernels/indices.h"
#include "bridge/backend/number.h"
#include "graph/args.h"
#include "rules/rows/indexing.h"
#include "rules/rows/windows.h"

namespace spmdx::bridge {
namespace {

bool is_index_put(std::string_view base) { return base == "aten.index_put" || base == "aten._index_put_impl"; }

bool counts_from_end(const Window& window) {
  const std::string_view base = base_name(window.op);
  return base == "aten.index" || is_index_put(base);
}

// The indices that point into the window.
struct Picked {
  std::vector<int64_t> at;    // which of the indices these are, row by row
  std::vector<int64_t> rows;  // where they point to, counted from the start of the window
};

at::Tensor as_tensor(const std::vector<int64_t>& numbers) { return at::tensor(numbers, at::kLong); }

// Throws for wrong indices. Of the few that a write has, most devices have none: a call of a kernel costs more than
// this.
Picked pick(const Window& window, const at::Tensor& indices) {
  const at::Tensor flat = indices.to(at::kLong).contiguous();
  const auto* all = flat.const_data_ptr<int64_t>();
  const bool from_end = counts_from_end(window);
  Picked picked;
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const int64_t row = all[i] < 0 && from_end ? all[i] + window.total : all[i];
    if (row < 0 || row >= window.total) checked_indices(window, indices);
    if (row < window.start || row >= window.start + window.extent) continue;
    picked.at.push_back(i);
    picked.rows.push_back(row - window.start);
  }
  return picked;
}

// Number holds no complex ones.
bool is_number_argument(const Arg& arg) {
  return std::holds_alternative<int64_t>(arg) || std::holds_alternative<double>(arg) ||
         std::holds_alternative<bool>(arg) || std::holds_alternative<RealParam>(arg) ||
         std::holds_alternative<IntParam>(arg);
}

// The rows of an index_put's values that belong to one index each, along window.dim.
at::Tensor rows_of_values(const Window& window, const at::Tensor& values, const at::Tensor& target,
                          const at::Tensor& indices) {
  std::vector<int64_t> sizes = target.sizes().vec();
  const auto at = sizes.erase(sizes.begin() + window.dim);
  sizes.insert(at, indices.sizes().begin(), indices.sizes().end());
  const at::Tensor rows = values.expand(sizes);
  return indices.dim() == 0 ? rows.unsqueeze(window.dim) : rows.flatten(window.dim, window.dim + indices.dim() - 1);
}

// The source of index_add and index_copy, which is one row without the dim where the index is one number.
at::Tensor rows_of_source(const Window& window, const at::Tensor& source, const at::Tensor& target) {
  if (source.dim() == target.dim()) return source;
  std::vector<int64_t> sizes = target.sizes().vec();
  sizes[static_cast<size_t>(window.dim)] = 1;
  return source.reshape(sizes);
}

Write write_rows(const Window& window, const Call& inner) {
  const std::string_view base = base_name(window.op);
  const bool puts = is_index_put(base), adds = rules::adds_rows(inner);
  const auto source = own_argument<TensorArg>(inner, puts ? 2 : 3).input;
  if (inner.inputs.at(source).dtype != inner.inputs.at(0).dtype) return nullptr;
  const bool has_alpha = base == "aten.index_add";
  if (has_alpha && !is_number_argument(argument(inner, 4))) return nullptr;
  const Number alpha = has_alpha ? number(inner, 4) : Number{};
  return [=](at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param> params) {
    const at::Tensor &indices = tensor_of(inputs[window.index]), &given = tensor_of(inputs[source]);
    const Picked picked = pick(window, indices);
    if (picked.at.empty()) return;
    const at::Tensor rows =
        puts ? rows_of_values(window, given, target, indices) : rows_of_source(window, given, target);
    const at::Tensor places = as_tensor(picked.rows), mine = rows.index_select(window.dim, as_tensor(picked.at));
    if (puts) {  // it has kernels for more dtypes
      c10::List<std::optional<at::Tensor>> list;
      list.resize(static_cast<size_t>(window.dim), std::nullopt);
      list.push_back(places);
      target.index_put_(list, mine, adds);
    } else if (adds) {
      target.index_add_(window.dim, places, mine,
                        alpha.integer ? at::Scalar(alpha.whole(params)) : at::Scalar(alpha.real(params)));
    } else {
      target.index_copy_(window.dim, places, mine);
    }
  };
}

// Where in a dense tensor of sizes `target` the elements lie that are picked of indices of sizes `sizes`.
at::Tensor places_of(const Window& window, const Picked& picked, c10::IntArrayRef sizes, c10::IntArrayRef target) {
  std::vector<int64_t> places(picked.at.size(), 0);
  for (size_t i = 0; i < places.size(); ++i) {
    int64_t rest = picked.at[i], stride = 1;
    for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d], stride *= target[d])
      places[i] += stride * (static_cast<int64_t>(d) == window.dim ? picked.rows[i] : rest % sizes[d]);
  }
  return as_tensor(places);
}

// Elements of the source that belong to the indices.
at::Tensor as_indices(at::Tensor source, const at::Tensor& indices) {
  source = at::atleast_1d(source);
  for (int64_t d = 0; d < indices.dim(); ++d) source = source.narrow(d, 0, indices.size(d));
  return source;
}

Write write_elements(const Window& window, const Call& inner) {
  const auto* source = std::get_if<TensorArg>(&argument(inner, 3));
  if (source ? inner.inputs.at(source->input).dtype != inner.inputs.at(0).dtype
             : !is_number_argument(argument(inner, 3)))
    return nullptr;
  const bool adds = rules::adds_rows(inner);
  const Number value = source ? Number{} : number(inner, 3);
  return [=, from = source ? source->input : kNone](at::Tensor& target, std::span<const BufferRef> inputs,
                                                    std::span<const Param> params) {
    const at::Tensor indices = at::atleast_1d(tensor_of(inputs[window.index]));
    const Picked picked = pick(window, indices);
    if (picked.at.empty()) return;
    const at::Tensor dense = target.contiguous(), flat = dense.view(-1);
    const at::Tensor places = places_of(window, picked, indices.sizes(), dense.sizes());
    if (from == kNone) {
      flat.scatter_(0, places, value.integer ? at::Scalar(value.whole(params)) : at::Scalar(value.real(params)));
    } else {
      const at::Tensor mine =
          as_indices(tensor_of(inputs[from]), indices).flatten().index_select(0, as_tensor(picked.at));
      adds ? flat.scatter_add_(0, places, mine) : flat.scatter_(0, places, mine);
    }
    if (!dense.is_same(target)) target.copy_(dense);
  };
}

}  // namespace

at::Tensor checked_indices(const Window& window, const at::Tensor& given) {
  const bool from_end = counts_from_end(window);
  check_indices(given, from_end ? -window.total : 0, window.total, window.op.c_str() + 5);
  return from_end ? at::where(given.lt(0), at::add(given, window.total), given) : given;
}

Write write_in_window(const Window& window, const Call& inner) {
  if (!rules::writes_in_place(inner)) return nullptr;
  const std::string_view base = base_name(inner.op);
  if (is_index_put(base) || base == "aten.index_copy" || base == "aten.index_add") return write_rows(window, inner);
  return write_elements(window, inner);
}

}  // namespace spmdx::bridge
