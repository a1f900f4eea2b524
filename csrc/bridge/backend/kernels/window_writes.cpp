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

at::Tensor inside(const Window& window, const at::Tensor& indices) {
  return outside_window(indices, window.start, window.extent).logical_not();
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
  const Number alpha = base == "aten.index_add" ? number(inner, 4) : Number{};
  return [=](at::Tensor& target, std::span<const BufferRef> inputs, std::span<const Param> params) {
    const at::Tensor indices = checked_indices(window, tensor_of(inputs[window.index]));
    const at::Tensor given = tensor_of(inputs[source]);
    const at::Tensor rows =
        puts ? rows_of_values(window, given, target, indices) : rows_of_source(window, given, target);
    const at::Tensor chosen = inside(window, indices).flatten().nonzero().squeeze(1);
    const at::Tensor places = indices.flatten().index_select(0, chosen).to(at::kLong).sub(window.start);
    const at::Tensor mine = rows.index_select(window.dim, chosen);
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

// Where in a dense tensor of these sizes the elements lie that are chosen by `mask`, which has the shape of `indices`.
at::Tensor places_of(const Window& window, const at::Tensor& mask, const at::Tensor& indices, c10::IntArrayRef sizes) {
  const at::Tensor at = mask.nonzero();
  at::Tensor places = at::zeros({at.size(0)}, at.options());
  int64_t stride = 1;
  for (int64_t d = mask.dim() - 1; d >= 0; stride *= sizes[static_cast<size_t>(d)], --d)
    places.add_(d == window.dim ? indices.masked_select(mask).sub(window.start) : at.select(1, d), stride);
  return places;
}

// Elements of the source that belong to the indices.
at::Tensor as_indices(at::Tensor source, const at::Tensor& indices) {
  source = at::atleast_1d(source);
  for (int64_t d = 0; d < indices.dim(); ++d) source = source.narrow(d, 0, indices.size(d));
  return source;
}

Write write_elements(const Window& window, const Call& inner) {
  const auto* source = std::get_if<TensorArg>(&argument(inner, 3));
  if (source && inner.inputs.at(source->input).dtype != inner.inputs.at(0).dtype) return nullptr;
  const bool adds = rules::adds_rows(inner);
  const Number value = source ? Number{} : number(inner, 3);
  return [=, from = source ? source->input : kNone](at::Tensor& target, std::span<const BufferRef> inputs,
                                                    std::span<const Param> params) {
    const at::Tensor indices = at::atleast_1d(checked_indices(window, tensor_of(inputs[window.index])));
    const at::Tensor mask = inside(window, indices), dense = target.contiguous(), flat = dense.view(-1);
    const at::Tensor places = places_of(window, mask, indices, dense.sizes());
    if (from == kNone) {
      flat.scatter_(0, places, value.integer ? at::Scalar(value.whole(params)) : at::Scalar(value.real(params)));
    } else {
      const at::Tensor mine = as_indices(tensor_of(inputs[from]), indices).masked_select(mask);
      adds ? flat.scatter_add_(0, places, mine) : flat.scatter_(0, places, mine);
    }
    if (!dense.is_same(target)) target.copy_(dense);
  };
}

bool is_number_argument(const Arg& arg) {
  return std::holds_alternative<int64_t>(arg) || std::holds_alternative<double>(arg) ||
         std::holds_alternative<bool>(arg) || std::holds_alternative<RealParam>(arg) ||
         std::holds_alternative<IntParam>(arg);
}

}  // namespace

at::Tensor checked_indices(const Window& window, const at::Tensor& given) {
  const std::string_view base = base_name(window.op);
  const bool from_end = base == "aten.index" || is_index_put(base);
  check_indices(given, from_end ? -window.total : 0, window.total, window.op.c_str() + 5);
  return from_end ? at::where(given.lt(0), at::add(given, window.total), given) : given;
}

Write write_in_window(const Window& window, const Call& inner) {
  if (!rules::writes_in_place(inner)) return nullptr;
  const std::string_view base = base_name(inner.op);
  if (is_index_put(base) || base == "aten.index_copy" || base == "aten.index_add") return write_rows(window, inner);
  const bool of_a_number = inner.op == "aten.scatter.value" && !is_number_argument(argument(inner, 3));
  return of_a_number ? nullptr : write_elements(window, inner);
}

}  // namespace spmdx::bridge
