// Sources are compiled, and the disk keeps what was compiled; no device is needed for that.
#include "fused_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kernel_cache.h"
#include "nvrtc_library.h"

namespace kb::cuda {
namespace {

// Every step, over all forms of operands.
FusedProgram everything() {
  FusedProgram p;
  p.elements = 10 * 6 * 40, p.inner = {6, 40};
  p.stride = {{240, 40, 1}, {240, 40, 1}, {0, 0, 1}, {0, 1, 0}, {1, 0, 0}, {0, 0, 0}, {0, 40, 1}};
  int value = 0;
  for (int i = 0; i < n_fused_steps; ++i) {
    if (std::string_view(fused_steps[i]) == "sum_row") continue;
    FusedStep s;
    s.op = i, s.dtype = i % 2 ? uint32_t(KB_BF16) : uint32_t(KB_F32);
    if (fused_operands(i) > 0) s.a = value;
    if (fused_operands(i) > 1) s.b = i % 7;
    p.steps.push_back(s);
    value = int(p.stride.size()) + i;
  }
  p.out = {value - 1, value};
  return p;
}
const std::vector<uint32_t> kIn{KB_BF16, KB_F32, KB_F32, KB_BF16, KB_F32, KB_F32, KB_I32}, kOut{KB_BF16, KB_F32};

TEST(FusedSource, CompilesForEveryStepAndOperand) {
  if (!nvrtc_missing().empty()) GTEST_SKIP() << nvrtc_missing();
  for (bool large : {false, true}) {
    const FusedSource s = fused_source(everything(), kIn, kOut, large);
    EXPECT_EQ(s.unit, 8);
    EXPECT_GT(nvrtc_compile(s.text, 90).size(), 1000u);
  }
}

// A norm and the gradient of its weight: two levels of sums, results of both kinds.
TEST(FusedSource, CompilesForSumsOverRows) {
  if (!nvrtc_missing().empty()) GTEST_SKIP() << nvrtc_missing();
  for (int64_t width : {2, 40, 128, 520, 4096}) {
    FusedProgram p;
    p.elements = 12 * width, p.inner = {4, width};
    p.stride = {{4 * width, width, 1}, {4, 1, 0}, {0, 0, 1}};
    p.steps = {{fused_step("mul"), KB_F32, 0, 0, 1, 0},    {fused_step("sum_row"), KB_F32, 3, -1, 1, 0},
               {fused_step("rsqrt"), KB_F32, 4, -1, 1, 0}, {fused_step("mul"), KB_F32, 0, 5, 1, 0},
               {fused_step("mul"), KB_F32, 6, 2, 1, 0},    {fused_step("sum_row"), KB_F32, 7, -1, 1, 0},
               {fused_step("add"), KB_F32, 8, 1, 1, 0},    {fused_step("add"), KB_F32, 7, 9, 1, 0}};
    p.out = {10, 9, 5}, p.row_out = {0, 1, 1};
    const FusedSource s = fused_source(p, {KB_BF16, KB_F32, KB_F32}, {KB_BF16, KB_F32, KB_F32}, false);
    EXPECT_EQ(s.row, width);
    EXPECT_GE(s.lanes * s.unit, std::min<int64_t>(width, 32 * s.unit));
    EXPECT_GT(nvrtc_compile(s.text, 90).size(), 1000u) << width;
  }
}

TEST(FusedSource, ChoosesUnitsThatEveryRowIsAMultipleOf) {
  FusedProgram p;
  p.steps = {{fused_step("exp"), KB_BF16, 0, -1, 1, 0}};
  p.out = {1};
  const auto unit = [&](std::vector<int64_t> inner, std::vector<int64_t> stride, uint32_t dtype) {
    p.inner = std::move(inner), p.stride = {std::move(stride)};
    return fused_source(p, {dtype}, {dtype}, false).unit;
  };
  EXPECT_EQ(unit({}, {1}, KB_BF16), 8);
  EXPECT_EQ(unit({}, {1}, KB_F32), 4);
  EXPECT_EQ(unit({33}, {33, 1}, KB_BF16), 1);
  EXPECT_EQ(unit({4, 20}, {0, 20, 1}, KB_BF16), 4);
  EXPECT_EQ(unit({4, 16}, {18, 0, 1}, KB_BF16), 2);
}

TEST(Nvrtc, TellsWhatTheCompilerSays) {
  if (!nvrtc_missing().empty()) GTEST_SKIP() << nvrtc_missing();
  try {
    nvrtc_compile("extern \"C\" __global__ void fused() { nonsense; }", 90);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("nonsense"), std::string::npos) << e.what();
  }
}

TEST(KernelCache, GivesBackWhatItKeptAndNothingElse) {
  const auto folder = std::filesystem::temp_directory_path() / ("kb_kernel_cache_" + std::to_string(::getpid()));
  const KernelCache cache(folder.string());
  const std::vector<char> code{'a', 'b', 0, 'c'};
  EXPECT_FALSE(cache.find("key"));
  cache.keep("key", code);
  ASSERT_TRUE(cache.find("key"));
  EXPECT_EQ(*cache.find("key"), code);
  EXPECT_FALSE(cache.find("another"));
  std::filesystem::permissions(cache.file("key"), std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  EXPECT_FALSE(cache.find("key"));  // anybody could have written it
  std::filesystem::permissions(cache.file("key"), std::filesystem::perms::others_write,
                               std::filesystem::perm_options::remove);
  std::filesystem::resize_file(cache.file("key"), std::filesystem::file_size(cache.file("key")) - 1);
  EXPECT_FALSE(cache.find("key"));
  cache.keep("key", code);
  {
    std::fstream f(cache.file("key"), std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(-1, std::ios::end);
    f.put('x');
  }
  EXPECT_FALSE(cache.find("key"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kb::cuda
