// SPDX-License-Identifier: Apache-2.0
// PrecedentFiles: a mark, a checksum, and the words.
#include "runtime/step/precedent_files.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <vector>

#include "passes/precedent/words.h"

namespace spmdx {
namespace {

constexpr uint64_t kMark = 0x31'54'4e'44'45'43'45'52;  // "RECEDNT1" in the order of this machine's bytes

uint64_t checksum_of(std::span<const uint64_t> words) {
  uint64_t h = words.size();
  for (const uint64_t word : words) h = hash_combine(h, word);
  return h;
}

std::optional<std::vector<uint64_t>> read_words(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  const auto bytes = static_cast<size_t>(std::max<std::streamoff>(0, file.tellg()));
  if (bytes < 2 * sizeof(uint64_t) || bytes % sizeof(uint64_t)) return std::nullopt;
  std::vector<uint64_t> words(bytes / sizeof(uint64_t));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(words.data()), static_cast<std::streamsize>(bytes));
  if (!file) return std::nullopt;
  return words;
}

}  // namespace

PrecedentFiles::PrecedentFiles(std::filesystem::path folder, const std::string& version)
    : folder_(std::move(folder)), version_(std::hash<std::string>{}(version)) {}

std::filesystem::path PrecedentFiles::path_of(const Graph& traced, const CompileOptions& options) const {
  char name[64];
  const uint64_t how = hash_combine(version_, hash(options));
  std::snprintf(name, sizeof name, "%016llx-%016llx", static_cast<unsigned long long>(structural_hash(traced)),
                static_cast<unsigned long long>(how));
  return folder_ / name;
}

PrecedentRef PrecedentFiles::find(const Graph& traced, const CompileOptions& options) const {
  const auto words = read_words(path_of(traced, options));
  if (!words || (*words)[0] != kMark) return nullptr;
  const std::span<const uint64_t> content = std::span(*words).subspan(2);
  if ((*words)[1] != checksum_of(content)) return nullptr;
  auto precedent = precedent_of(content);
  return precedent ? std::make_shared<const Precedent>(std::move(*precedent)) : nullptr;
}

void PrecedentFiles::insert(const Graph& traced, const CompileOptions& options, const Precedent& precedent) const {
  const std::vector<uint64_t> content = words_of(precedent);
  const uint64_t head[] = {kMark, checksum_of(content)};
  const std::filesystem::path path = path_of(traced, options);
  const std::filesystem::path draft = path.string() + "." + std::to_string(getpid());
  std::ofstream file(draft, std::ios::binary);
  file.write(reinterpret_cast<const char*>(head), sizeof head);
  file.write(reinterpret_cast<const char*>(content.data()),
             static_cast<std::streamsize>(content.size() * sizeof(uint64_t)));
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(draft, path, error);
  if (!file || error) std::filesystem::remove(draft, error);
}

}  // namespace spmdx
