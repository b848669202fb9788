#include "checkpoint/run_lock.h"

#include <sys/wait.h>

#include "fixture.h"

namespace kitbash {
namespace {

TEST(RunLock, ASecondRunIsRefusedWithPidAndHost) {
  TempFolder t;
  const RunLock mine(t.path() + "/run");
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const std::string e = error_of([&] { RunLock second(t.path() + "/run"); });
  EXPECT_TRUE(contains(e, "process " + std::to_string(getpid()) + " on " + host + " has it")) << e;
}

TEST(RunLock, TheFolderIsFreeAfterwards) {
  TempFolder t;
  { const RunLock one(t.path()); }
  { const RunLock two(t.path()); }
}

TEST(RunLock, AProcessThatIsKilledLeavesNoLock) {
  TempFolder t;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    RunLock theirs(t.path());
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char c;
  ASSERT_EQ(read(ready[0], &c, 1), 1);
  EXPECT_TRUE(contains(error_of([&] { RunLock mine(t.path()); }), "process " + std::to_string(child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const RunLock mine(t.path());
  close(ready[0]), close(ready[1]);
}

}  // namespace
}  // namespace kitbash
