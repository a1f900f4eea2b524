// SPDX-License-Identifier: Apache-2.0
// The text of testbench.cpp, but for its main function.
#include "emit/hls/project/project.h"

namespace spmdx::emit::hls {

const char* const kTestbench = R"(// SPDX-License-Identifier: Apache-2.0
// Runs the design on data/in*.bin, writes data/result*.bin, and compares these with data/expected*.bin: floats and
// integers of 32 bits, in the order of rows.
#include <cmath>
#include <cstdio>
#include <cstdlib>

)"
                               "#include \"cycles.h\"\n"
                               "#include \"top.h\"\n"
                               R"(
template <class T>
struct Kept {  // in a file
  typedef float type;
};
template <>
struct Kept<int> {
  typedef int type;
};
template <>
struct Kept<bool> {
  typedef int type;
};
inline float kept(float x) { return x; }
inline int kept(int x) { return x; }
inline int kept(bool x) { return x; }
template <class T>
float kept(const T& x) {
  return float(x.to_double());
}

template <class T>
void load(const char* path, T* to, long count) {
  FILE* file = std::fopen(path, "rb");
  typename Kept<T>::type element;
  for (long i = 0; i < count; ++i) {
    if (!file || std::fread(&element, sizeof element, 1, file) != 1) {
      std::fprintf(stderr, "%s has less than %ld elements, or is not there\n", path, count);
      std::exit(2);
    }
    to[i] = T(element);
  }
  std::fclose(file);
}

// The largest error, relative to numbers above 1; that of something that is no number, if only one is, is infinite.
template <class T>
double compared(const char* name, const char* result, const char* expected, const T* of, long count) {
  FILE* made = std::fopen(result, "wb");
  FILE* known = std::fopen(expected, "rb");
  double largest = 0;
  for (long i = 0; i < count; ++i) {
    typename Kept<T>::type element = kept(of[i]), wanted = 0;
    if (made) std::fwrite(&element, sizeof element, 1, made);
    if (!known || std::fread(&wanted, sizeof wanted, 1, known) != 1) continue;
    if (element == wanted || (element != element && wanted != wanted)) continue;
    const double error = std::fabs(double(element) - double(wanted)) / std::fmax(1, std::fabs(double(wanted)));
    largest = error <= largest ? largest : error == error ? error : INFINITY;
  }
  if (made) std::fclose(made);
  if (known) std::fclose(known);
  std::printf("%s: largest error %.3g of %ld elements%s\n", name, largest, count, known ? "" : ", nothing to compare");
  return largest;
}

void report_cycles() {
  long interval = 0;
#define NAME(number, name)                                      \
  if (number < cycles::busy.size()) {                           \
    const long busy = cycles::busy[number];                     \
    std::printf("stage %s: %ld cycles\n", #name, busy);         \
    if (interval < busy) interval = busy;                       \
  }
  STAGES
#undef NAME
  std::printf("latency: %ld cycles\ninterval: %ld cycles\n", cycles::latency, interval);
}
)";

}  // namespace spmdx::emit::hls
