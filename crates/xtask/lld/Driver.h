// Stands in for LLD's own header where the LLVM at hand comes without LLD: just enough of it for
// CubeCL's shim, which calls lld::elf::link on one object file.
#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/Support/raw_ostream.h>

#define LLD_HAS_DRIVER(flavor)                                                 \
  namespace lld {                                                              \
  namespace flavor {                                                           \
  bool link(llvm::ArrayRef<const char *> args, llvm::raw_ostream &out,         \
            llvm::raw_ostream &err, bool exitEarly, bool disableOutput);       \
  }                                                                            \
  }
