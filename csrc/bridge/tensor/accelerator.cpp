// SPDX-License-Identifier: Apache-2.0
// Makes PyTorch take the device for the machine's accelerator from its first use on, and not before.
//
// at::getAccelerator prefers PrivateUse1 to CUDA as soon as PrivateUse1 has a name. It needs one, so that programs can
// write "spmdx", and PyTorch has no other setting for this. But getAccelerator asks
// c10::is_privateuse1_backend_registered. So in libtorch_cpu, and in no other library, answer() replaces this function
// in the entry that the dynamic linker has filled for it, if the entry holds nothing else. The answer becomes true at
// the first use, since autograd requires that tensors of an accelerator's type are on the accelerator.
#include "bridge/tensor/accelerator.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/DeviceType.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string_view>

namespace spmdx::bridge {
namespace {

using Address = ElfW(Addr);

constexpr std::string_view kQuestion = "_ZN3c1033is_privateuse1_backend_registeredEv";
constexpr std::string_view kAsker = "libtorch_cpu.so";

bool answer() { return detail::used.load(std::memory_order_relaxed) && c10::is_privateuse1_backend_registered(); }

struct Table {
  Address start = 0;
  size_t bytes = 0;
};

// The tables of a loaded library that the dynamic linker reads.
class Library {
 public:
  explicit Library(const dl_phdr_info& info) : base_(info.dlpi_addr) {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr) & part = info.dlpi_phdr[i];
      if (part.p_type == PT_DYNAMIC) read(reinterpret_cast<const ElfW(Dyn)*>(base_ + part.p_vaddr));
      if (part.p_type == PT_GNU_RELRO) sealed_ = {base_ + part.p_vaddr, part.p_memsz};
    }
  }

  // Writes `to` in the entries for `name` that hold `from`.
  void lead(std::string_view name, Address from, Address to) const {
    for (const Table& table : {calls_, others_}) lead(table, name, from, to);
  }

 private:
  void read(const ElfW(Dyn) * entry) {
    for (; entry->d_tag != DT_NULL; ++entry) {
      const Address value = entry->d_un.d_ptr;
      switch (entry->d_tag) {
        case DT_SYMTAB:
          symbols_ = value;
          break;
        case DT_STRTAB:
          names_ = value;
          break;
        case DT_JMPREL:
          calls_.start = value;
          break;
        case DT_PLTRELSZ:
          calls_.bytes = value;
          break;
        case DT_RELA:
          others_.start = value;
          break;
        case DT_RELASZ:
          others_.bytes = value;
          break;
        default:
          break;
      }
    }
  }

  // glibc's linker replaces offsets by addresses in the table that read() reads; other linkers leave the offsets.
  template <class T>
  const T* at(Address where) const {
    return reinterpret_cast<const T*>(where < base_ ? base_ + where : where);
  }

  void lead(const Table& table, std::string_view name, Address from, Address to) const {
    if (!table.start || !symbols_ || !names_) return;
    const auto* entries = at<ElfW(Rela)>(table.start);
    for (size_t i = 0; i < table.bytes / sizeof(ElfW(Rela)); ++i) {
      const auto& symbol = at<ElfW(Sym)>(symbols_)[entries[i].r_info >> 32];
      if (symbol.st_name == 0 || at<char>(names_) + symbol.st_name != name) continue;
      auto* slot = reinterpret_cast<Address*>(base_ + entries[i].r_offset);
      if (*slot == from) write(slot, to);
    }
  }

  // The linker may have made the entries read-only.
  void write(Address* slot, Address value) const {
    const auto where = reinterpret_cast<Address>(slot);
    const auto page_bytes = static_cast<Address>(getpagesize());
    auto* page = reinterpret_cast<void*>(where & ~(page_bytes - 1));
    const bool sealed = where - sealed_.start < sealed_.bytes;
    if (sealed && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return;
    __atomic_store_n(slot, value, __ATOMIC_RELEASE);
    if (sealed) mprotect(page, page_bytes, PROT_READ);
  }

  Address base_, symbols_ = 0, names_ = 0;
  Table calls_, others_, sealed_;
};

int visit(dl_phdr_info* info, size_t, void*) {
  if (!std::string_view(info->dlpi_name ? info->dlpi_name : "").ends_with(kAsker)) return 0;
  const auto from = reinterpret_cast<Address>(&c10::is_privateuse1_backend_registered);
  Library(*info).lead(kQuestion, from, reinterpret_cast<Address>(&answer));
  return 1;
}

}  // namespace

void be_accelerator_once_used() {
  (void)at::getAccelerator();  // a linker that fills an entry at its first call has done so now
  dl_iterate_phdr(visit, nullptr);
}

}  // namespace spmdx::bridge
