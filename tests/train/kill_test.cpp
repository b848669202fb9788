// The run is killed at seeded random times, with a checkpoint after each step so that many kills fall into saving, and
// resumed with the same command until it is done. Argument: the number of kills.
#include <cstdlib>

#include "process.h"

namespace kitbash::test {
namespace {

int kills = 20;

TEST(Kill, ARunThatIsKilledAgainAndAgainEndsAsTheUndisturbedOne) {
  const Place p(recipe_text("checkpoint_every = 1", 40, 20));
  const auto arguments = [&](const std::string& run) {
    std::vector<std::string> a{"train", p.recipe_file(), "--run", p.run(run), "--threads", "1"};
    if (fs::exists(p.run(run))) a.push_back("--resume");
    return a;
  };
  const double begun = clock_seconds();
  {
    Child c(arguments("whole"), p.path() + "/out");
    ASSERT_EQ(c.wait(), 0) << c.text();
  }
  const double whole = clock_seconds() - begun;
  const std::string last = "/checkpoints/step-00000060";

  std::mt19937_64 random(20260);
  int done = 0, saving = 0, runs = 0, starts = 0;
  while (done < kills) {  // a run that ends before all kills are spent is followed by another
    const std::string run = "killed" + std::to_string(runs++);
    for (;;) {
      Child c(arguments(run), p.path() + "/out");
      ++starts;
      if (done < kills) {
        pause_for(double(random() % 1000) * 1e-3 * whole * 0.4);
        c.send(SIGKILL);
      }
      const int code = c.wait();
      if (code == 0) break;
      ASSERT_EQ(code, -SIGKILL) << c.text();
      ++done;
      std::error_code e;
      for (const auto& f : fs::directory_iterator(p.run(run) + "/checkpoints", e))
        saving += f.path().extension() == ".tmp";
      ASSERT_LT(starts, 20 * kills) << "no progress";
    }
    const auto differ = diff_checkpoints(p.run("whole") + last, p.run(run) + last);
    ASSERT_TRUE(differ.empty()) << joined(differ);
    ASSERT_EQ(metrics(p.run(run)), metrics(p.run("whole")));
  }
  std::printf("%d kills, %d of them while saving, over %d runs; undisturbed %.2f s\n", done, saving, runs, whole);
}

}  // namespace
}  // namespace kitbash::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) kitbash::test::kills = std::max(1, std::atoi(argv[1]));
  return RUN_ALL_TESTS();
}
