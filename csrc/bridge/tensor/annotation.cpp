// SPDX-License-Identifier: Apache-2.0
// The warning that is given when an annotation is lost.
#include "bridge/tensor/annotation.h"

#include "bridge/python/source.h"
#include "bridge/python/warnings.h"

namespace spmdx::bridge {

void warn_of_lost_annotation(const std::string& why) {
  const std::string line = source_text(current_source());
  warn((line.empty() ? "" : line + ": ") + "the annotation " + why);
}

}  // namespace spmdx::bridge
