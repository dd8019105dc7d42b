// lld::elf::link by running the ld.lld program with the same arguments.
//
// MLA_PROLOGUE_LLD names the program; else ROCm's own is taken, else one on PATH, else the one that
// was found when this library was made (FALLBACK, the Rust toolchain's).

#include "Driver.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

LLD_HAS_DRIVER(elf)

extern char **environ;

namespace {
std::vector<std::string> candidates() {
  if (const char *named = std::getenv("MLA_PROLOGUE_LLD"))
    return {named};
  std::vector<std::string> found;
  const char *rocm = std::getenv("ROCM_PATH");
  for (const std::string &root : {std::string(rocm ? rocm : ""), std::string("/opt/rocm")})
    if (!root.empty() && access((root + "/llvm/bin/ld.lld").c_str(), X_OK) == 0)
      found.push_back(root + "/llvm/bin/ld.lld");
  found.push_back("ld.lld");
  found.push_back(FALLBACK);
  return found;
}
} // namespace

bool lld::elf::link(llvm::ArrayRef<const char *> args, llvm::raw_ostream &,
                    llvm::raw_ostream &err, bool, bool) {
  std::vector<char *> argv;
  for (const char *arg : args)
    argv.push_back(const_cast<char *>(arg));
  argv.push_back(nullptr);
  for (const std::string &program : candidates()) {
    pid_t pid;
    int failure = posix_spawnp(&pid, program.c_str(), nullptr, nullptr, argv.data(), environ);
    if (failure == ENOENT)
      continue;
    if (failure != 0) {
      err << program << ": " << std::strerror(failure) << "\n";
      return false;
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
      if (errno != EINTR)
        return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  err << "no ld.lld found: install ROCm's llvm or Debian's lld, or set MLA_PROLOGUE_LLD\n";
  return false;
}
