// SPDX-License-Identifier: Apache-2.0
// Shardings from Python: handles of meshes and shardings, annotations, and shards of tensors.
#include <ATen/ops/zeros.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <numeric>
#include <optional>

#include "bind/bind.h"
#include "bind/handles.h"
#include "bridge/backend/aten_backend.h"
#include "bridge/backend/aten_names.h"
#include "bridge/backend/buffer.h"
#include "bridge/backend/shard_device.h"
#include "bridge/backend/strides.h"
#include "bridge/python/source.h"
#include "bridge/recorder/recorder.h"
#include "bridge/recorder/schedules.h"
#include "bridge/tensor/abstract.h"
#include "bridge/tensor/annotation.h"
#include "bridge/tensor/meta.h"
#include "bridge/tensor/tensor.h"
#include "bridge/world/c10d_comm.h"
#include "sharding/shards.h"
#include "sharding/spec.h"

namespace spmdx {
namespace {

namespace py = pybind11;
using namespace bind;
using Entries = std::vector<std::vector<SpecAxis>>;

TensorType type_of(const at::Tensor& tensor) {
  return TensorType{bridge::to_dtype(tensor.scalar_type()), tensor.sizes().vec(), false};
}

// Those among `positions` that are where the values are.
std::vector<int64_t> there(const Sharding& sharding, std::vector<int64_t> positions) {
  std::erase_if(positions, [&](int64_t position) { return !lies_at(*sharding.mesh, sharding.place, position); });
  return positions;
}

std::vector<int64_t> positions(const Sharding& sharding) {
  std::vector<int64_t> all(sharding.mesh->size());
  std::iota(all.begin(), all.end(), 0);
  return there(sharding, std::move(all));
}

std::vector<std::vector<std::pair<int64_t, int64_t>>> boxes(const Sharding& sharding, const Shape& shape) {
  std::vector<std::vector<std::pair<int64_t, int64_t>>> result;
  for (const int64_t position : positions(sharding)) {
    auto& box = result.emplace_back();
    for (const Range& range : local_box(sharding, shape, position))
      box.emplace_back(range.start, range.start + range.extent);
  }
  return result;
}

std::vector<int64_t> replica_ids(const Sharding& sharding) {
  std::vector<int64_t> result, seen(num_distinct(*sharding.mesh, sharding.used()), 0);
  for (const int64_t position : positions(sharding)) {
    result.push_back(seen[distinct_index(*sharding.mesh, sharding.used(), position)]++);
  }
  return result;
}

// The positions of a mesh whose devices are in this process.
std::vector<int64_t> addressable(const Mesh& mesh) {
  const Processes processes = bridge::comm().processes();
  return positions_of(processes, processes.here, mesh);
}

// Those of a sharding.
std::vector<int64_t> addressable(const Sharding& sharding) { return there(sharding, addressable(*sharding.mesh)); }

// One tensor for each device of this process, in order of position, and their sharding; devices with the same shard
// share a tensor. Data without a sharding are one tensor. Waits until the data are computed.
std::pair<std::vector<at::Tensor>, std::optional<ShardingHandle>> local_data(const at::Tensor& tensor, bool on_host) {
  DataRef data = computed_data(tensor);
  if (!data->ready()) {
    py::gil_scoped_release no_gil;
    data->wait();
  }
  const Shards& shards = data->wait();
  const ShardingRef sharding = data->sharding();
  const auto shown = [&](const BufferRef& shard) {
    if (on_host) return bridge::to_host(bridge::tensor_of(shard));
    bridge::take_host(shard);  // the caller may write to the shard, so the copy on the host would be out of date
    bridge::lead_program();
    return bridge::tensor_of(shard);
  };
  if (!sharding) return {{shown(shards.at(0))}, std::nullopt};
  Holdings holdings(bridge::comm().processes());
  std::vector<at::Tensor> distinct(shards.size()), result;
  for (const int64_t position : addressable(*sharding)) {
    const size_t index = holdings.index_at(*sharding, position);
    if (!distinct.at(index).defined()) distinct[index] = shown(shards[index]);
    result.push_back(distinct[index]);
  }
  return {std::move(result), ShardingHandle{sharding, nullptr}};
}

// A buffer over the tensor's memory, if it is contiguous and owned by tensors, which count its users; nobody may write
// to it from now on. Else a buffer over a copy.
BufferRef borrowed(const at::Tensor& tensor) {
  const at::Tensor same = tensor.detach().resolve_conj().resolve_neg().contiguous();
  return same.is_alias_of(tensor) && !same.storage().resizable() ? bridge::uploaded(same) : bridge::lent(same);
}

// Data whose distinct shards `make` returns. It is called with the index of a device among those of this process, and
// with the position of that device in the mesh.
DataRef data_of_shards(const TensorType& type, ShardingRef sharding,
                       const std::function<BufferRef(size_t, int64_t)>& make) {
  if (bridge::planning_only()) return bridge::abstract_data(type, sharding);
  Holdings holdings(bridge::comm().processes());
  Shards shards(holdings.of(*sharding).size());
  const std::vector<int64_t> positions = addressable(*sharding);
  for (size_t i = 0; i < positions.size(); ++i) {
    BufferRef& shard = shards.at(holdings.index_at(*sharding, positions[i]));
    if (!shard) shard = make(i, positions[i]);
  }
  return std::make_shared<Data>(type, sharding, std::move(shards));
}

// Data made of `locals`, one tensor per device of this process; of devices with the same shard the first one's is
// taken. REQUIRES: the shapes are those of the boxes, and the sharding is not partial.
DataRef data_from(const TensorType& type, ShardingRef sharding, const std::vector<at::Tensor>& locals,
                  bool lend = false) {
  return data_of_shards(type, sharding, [&](size_t i, int64_t) {
    const at::Tensor& local = locals.at(i);
    return lend ? borrowed(local) : bridge::uploaded(local, at::MemoryFormat::Contiguous);
  });
}

// Zeros in new memory, made on the device of the shards. They are not uploaded, because processes compare what they
// upload.
DataRef blank_data(const TensorType& type, ShardingRef sharding) {
  const auto zeros = [&](const Shape& shape) {
    bridge::fix_shard_device();
    bridge::KernelGuard guard;
    return bridge::buffer_of(at::zeros(shape, bridge::on_shard_device(bridge::to_scalar_type(type.dtype))));
  };
  if (sharding) {
    return data_of_shards(type, sharding, [&](size_t, int64_t position) {
      Shape shape;
      for (const Range& range : local_box(*sharding, type.shape, position)) shape.push_back(range.extent);
      return zeros(shape);
    });
  }
  if (bridge::planning_only()) return bridge::abstract_data(type, nullptr);
  auto data = std::make_shared<Data>(type);
  data->fill({zeros(type.shape)});
  return data;
}

void load_local(const at::Tensor& tensor, const ShardingHandle& handle, const std::vector<at::Tensor>& locals) {
  auto& lazy = require_lazy(tensor, "load_local_shards_");
  auto& recorder = bridge::Recorder::instance();
  const bridge::Recorder::Lock lock;  // so that no other thread ends the graph between the input and the write
  recorder.write(lazy, recorder.input(data_from(type_of(tensor), handle.sharding, locals)));
}

at::Tensor tensor_with(DataRef data, at::ScalarType dtype, const Shape& shape) {
  bridge::Meta meta;
  meta.dtype = dtype;
  meta.sizes = shape;
  meta.strides = bridge::contiguous_strides(shape);
  bridge::LazyValue value;
  value.data = std::move(data);
  return bridge::make_tensor(std::move(value), bridge::share(std::move(meta)));
}

at::Tensor from_local(const std::vector<at::Tensor>& locals, const ShardingHandle& handle, const Shape& shape,
                      at::ScalarType dtype, bool lend, std::optional<uint64_t> digest) {
  const TensorType type{bridge::to_dtype(dtype), shape, false};
  DataRef data = data_from(type, handle.sharding, locals, lend);
  if (digest) data->set_digest(*digest);
  return tensor_with(std::move(data), dtype, shape);
}

at::Tensor blank(const Shape& shape, at::ScalarType dtype, const std::optional<ShardingHandle>& handle) {
  const TensorType type{bridge::to_dtype(dtype), shape, false};
  return tensor_with(blank_data(type, handle ? handle->sharding : nullptr), dtype, shape);
}

py::object annotation(const at::Tensor& tensor) {
  const bridge::Recorder::Lock lock;  // the end of plan_only, on any thread, writes annotations
  bridge::LazyTensor* lazy = bridge::as_lazy(tensor);
  if (!lazy || !lazy->annotation()) return py::none();
  const bridge::Annotation& said = *lazy->annotation();
  return py::cast(ShardingHandle{said.sharding, said.written, said.schedule});
}

// Gives the annotation of `from` to `to`, if both are tensors of the device. Returns whether `to` is annotated then.
bool keep_annotation(const at::Tensor& from, const at::Tensor& to) {
  const bridge::Recorder::Lock lock;
  bridge::LazyTensor *source = bridge::as_lazy(from), *target = bridge::as_lazy(to);
  if (!target) return false;
  if (source && source->annotation()) bridge::Recorder::instance().keep_annotation(*target, *source->annotation());
  return target->annotation() != nullptr;
}

void annotate(const at::Tensor& tensor, std::optional<ShardingHandle> handle, bool state, bool loaded) {
  require_lazy(tensor, "mark_sharding");
  bridge::Annotation said;
  if (handle) said = {handle->sharding, bridge::current_source(), state, handle->written, handle->schedule, loaded};
  bridge::Recorder::instance().annotate(tensor, said);
}

py::object sharding_or_none(const at::Tensor& tensor) {
  ShardingRef sharding = sharding_of(tensor);
  return sharding ? py::cast(ShardingHandle{sharding, nullptr}) : py::none();
}

// A sharding does not keep axes of size 1, because they cut nothing; so a spec on a mesh with such axes is kept as it
// was written. Null for other meshes, where the sharding tells the whole spec.
std::shared_ptr<const PartitionSpec> as_written(PartitionSpec spec, const Mesh& mesh) {
  const auto& axes = mesh.axes();
  if (std::none_of(axes.begin(), axes.end(), [](const Axis& axis) { return axis.size == 1; })) return nullptr;
  for (auto& entry : spec.entries)
    for (SpecAxis& axis : entry)
      if (const auto* index = std::get_if<int64_t>(&axis)) axis = axes.at(*index).name;
  return std::make_shared<const PartitionSpec>(std::move(spec));
}

void bind_mesh(py::module_& m) {
  py::class_<MeshHandle>(m, "MeshHandle")
      .def(py::init([](std::vector<int64_t> ids, std::vector<int64_t> shape, std::vector<std::string> names,
                       const std::vector<int64_t>& outer) {
             return MeshHandle{Mesh::make(std::move(ids), std::move(shape), std::move(names), outer)};
           }),
           py::arg("device_ids"), py::arg("mesh_shape"), py::arg("axis_names"),
           py::arg("outer_shape") = std::vector<int64_t>{})
      .def_property_readonly("device_ids", [](const MeshHandle& h) { return h.mesh->device_ids(); })
      .def_property_readonly("addressable_positions", [](const MeshHandle& h) { return addressable(*h.mesh); })
      .def_property_readonly("axes",
                             [](const MeshHandle& h) {
                               std::vector<std::pair<std::string, int64_t>> axes;
                               for (const Axis& axis : h.mesh->axes()) axes.emplace_back(axis.name, axis.size);
                               return axes;
                             })
      .def_property_readonly("outer_shape",
                             [](const MeshHandle& h) {
                               std::vector<int64_t> outer;
                               for (const Axis& axis : h.mesh->axes()) outer.push_back(axis.outer);
                               return outer;
                             })
      .def("__eq__", [](const MeshHandle& a, const MeshHandle& b) { return *a.mesh == *b.mesh; })
      .def("__hash__", [](const MeshHandle& h) { return static_cast<int64_t>(h.mesh->hash() >> 1); })
      .def("__str__", [](const MeshHandle& h) { return h.mesh->str(); });
}

void bind_handle(py::module_& m) {
  py::class_<ShardingHandle>(m, "ShardingHandle")
      .def_property_readonly("mesh", [](const ShardingHandle& h) { return MeshHandle{h.sharding->mesh}; })
      .def_property_readonly(
          "entries",
          [](const ShardingHandle& h) { return h.written ? h.written->entries : to_spec(*h.sharding).entries; })
      .def_property_readonly(
          "partial",
          [](const ShardingHandle& h) { return axis_names(*h.sharding->mesh, sub_axis_list(h.sharding->partial)); })
      .def_property_readonly("reduction",
                             [](const ShardingHandle& h) { return std::string(name(h.sharding->reduction)); })
      .def_property_readonly("replicated", [](const ShardingHandle& h) { return h.sharding->replicated(); })
      .def_property_readonly("place",
                             [](const ShardingHandle& h) -> std::optional<std::pair<std::string, int64_t>> {
                               const Place& place = h.sharding->place;
                               if (place.whole()) return std::nullopt;
                               return std::pair{h.sharding->mesh->axes()[place.axis].name, place.stage};
                             })
      .def_property_readonly("host", [](const ShardingHandle& h) { return h.sharding->place.host; })
      .def_property_readonly("positions", [](const ShardingHandle& h) { return positions(*h.sharding); })
      .def("on", [](const ShardingHandle& h, const std::string& axis,
                    int64_t stage) { return ShardingHandle{at_stage(h.sharding, axis, stage), h.written, h.schedule}; })
      .def("on_host",
           [](const ShardingHandle& h) {
             return ShardingHandle{on(h.sharding, h.sharding->place.on_host()), h.written, h.schedule};
           })
      .def_property_readonly("schedule", [](const ShardingHandle& h) { return h.schedule ? *h.schedule : ""; })
      .def("scheduled",
           [](const ShardingHandle& h, const std::string& schedule) {
             const bridge::Recorder::Lock lock;
             return ShardingHandle{h.sharding, h.written, bridge::schedule_named(schedule)};
           })
      .def("boxes", [](const ShardingHandle& h, const Shape& shape) { return boxes(*h.sharding, shape); })
      .def("replica_ids", [](const ShardingHandle& h) { return replica_ids(*h.sharding); })
      .def("__eq__", [](const ShardingHandle& a, const ShardingHandle& b) { return a.sharding == b.sharding; })
      .def("__hash__", [](const ShardingHandle& h) { return std::hash<const void*>{}(h.sharding.get()); });
}

}  // namespace

void bind_sharding(py::module_& m) {
  bind_mesh(m);
  bind_handle(m);
  m.def("to_sharding", [](Entries entries, const MeshHandle& mesh, const Shape& shape, const std::string& tensor) {
    PartitionSpec spec{std::move(entries)};
    ShardingRef sharding = to_sharding(spec, mesh.mesh, shape, tensor);
    return ShardingHandle{sharding, as_written(std::move(spec), *mesh.mesh)};
  });
  m.def("annotate", annotate, py::arg("tensor"), py::arg("handle"), py::arg("state"), py::arg("loaded") = false);
  m.def("annotation", annotation);
  m.def("keep_annotation", keep_annotation, py::arg("source"), py::arg("target"));
  m.def("sharding_of", sharding_or_none);
  m.def("local_data", local_data, py::arg("tensor"), py::arg("on_host") = true);
  m.def("blank", blank, py::arg("shape"), py::arg("dtype"), py::arg("sharding"));
  m.def("load_local", load_local);
  m.def("from_local", from_local, py::arg("locals"), py::arg("sharding"), py::arg("shape"), py::arg("dtype"),
        py::arg("lend") = false, py::arg("digest") = py::none());
  m.def("digest", [](const at::Tensor& host) {
    py::gil_scoped_release no_gil;
    return bridge::aten_backend().digest(bridge::lent(host));
  });
}

}  // namespace spmdx
