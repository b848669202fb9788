#include "plugin/manifest.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/plugin/fixture.h"

namespace kitbash {
namespace {

using test::error_of;

const std::string kHead =
    "kitbash = 1\nneeds = 0\nbuilt_minor = 0\nplugin = \"p\"\nversion = \"1.0\"\nlicense = \"MIT\"\nbuilt_with = "
    "\"c\"\n";

std::string bad(const std::string& text) {
  return error_of([&] { parse_manifest(text, "/a/x.so"); });
}

TEST(Manifest, holds_fields_in_their_order_with_types_defaults_and_limits) {
  const PluginInfo p =
      parse_manifest(kHead +
                         "[[component]]\nkind = \"ffn\"\nname = \"d\"\n"
                         "[[component.field]]\nname = \"width\"\ntype = \"int\"\ndoc = \"w\"\nrequired = true\n"
                         "min = 1.0\nmax = 9.0e3\n"
                         "[[component.field]]\nname = \"act\"\ntype = \"slot\"\ndefault = \"swiglu\"\n"
                         "kind = \"activation\"\noptional = true\nflat = true\n"
                         "[[component.field]]\nname = \"betas\"\ntype = \"floats\"\ndefault = [9.0e-1, 1]\n"
                         "[[component.field]]\nname = \"x\"\ntype = \"float\"\ndefault = 2\n"
                         "[[op]]\nname = \"o\"\n[[kernel]]\nop = \"o\"\nname = \"k\"\ndevice = \"cpu\"\n",
                     "/a/x.so");
  EXPECT_EQ(p.path, "/a/x.so");
  EXPECT_EQ(p.license, "MIT");
  ASSERT_EQ(p.components.size(), 1u);
  const ComponentInfo& c = p.components[0];
  EXPECT_EQ(c.id(), "ffn.d");
  ASSERT_EQ(c.fields.size(), 4u);
  EXPECT_EQ(c.fields[0].name, "width");
  EXPECT_TRUE(c.fields[0].required && !c.fields[0].fallback);
  EXPECT_EQ(c.fields[0].hi, 9000);
  EXPECT_EQ(c.fields[1].kind, "activation");
  EXPECT_TRUE(c.fields[1].optional && c.fields[1].flat);
  EXPECT_EQ(std::get<std::vector<double>>(*c.fields[2].fallback), (std::vector<double>{0.9, 1}));
  EXPECT_EQ(std::get<double>(*c.fields[3].fallback), 2);
  EXPECT_EQ(c.field("betas"), &c.fields[2]);
  EXPECT_EQ(c.field("beta"), nullptr);
  EXPECT_EQ(p.ops, std::vector<std::string>{"o"});
  EXPECT_EQ(p.kernels[0].device, "cpu");
}

TEST(Manifest, ignores_keys_that_it_does_not_know) {
  EXPECT_EQ(parse_manifest(kHead + "colour = \"red\"\n[future]\na = 1\n", "/a/x.so").id, "p");
}

TEST(Manifest, says_what_is_wrong_and_in_which_file) {
  const std::string pre = "/a/x.so has a bad manifest: ";
  EXPECT_EQ(bad("kitbash ="),
            pre + "no valid TOML: Error while parsing key-value pair: encountered end-of-file (line 1, column 10)");
  EXPECT_EQ(bad("kitbash = " + std::string(20000, '[')),
            pre + "at most 32 brackets may be open at once but there are more (line 1, column 43)");
  EXPECT_EQ(bad(""), pre + "'kitbash' is missing");
  EXPECT_EQ(bad("kitbash = \"1\""), pre + "'kitbash' must be int but got text (line 1)");
  EXPECT_EQ(bad("kitbash = 1"), pre + "'needs' is missing");
  EXPECT_EQ(bad("kitbash = 1\nneeds = -1"), pre + "'needs' must be 0 or more but got -1");
  EXPECT_EQ(bad(kHead + "component = 3\n"), pre + "'component' must be an array of tables but got int (line 8)");
  EXPECT_EQ(bad(kHead + "[[component]]\nname = \"a\"\n"), pre + "component 1: 'kind' is missing");
  EXPECT_EQ(bad(kHead + "[[component]]\nkind = \"a.b\"\n"),
            pre + "component 1: 'kind' must be 1 to 64 of a-z 0-9 -_ but got 'a.b'");
  const std::string one = kHead + "[[component]]\nkind = \"ffn\"\nname = \"a\"\n";
  EXPECT_EQ(bad(one + "[[component]]\nkind = \"ffn\"\nname = \"a\"\n"), pre + "lists component ffn.a twice");
  const std::string field = one + "[[component.field]]\nname = \"w\"\n";
  const std::string at = pre + "component ffn.a, field 'w': ";
  EXPECT_EQ(bad(field), at + "'type' is missing");
  EXPECT_EQ(bad(field + "type = \"map\"\n"),
            at + "'type' must be bool, int, float, text, path, slot, ints or floats but got 'map'");
  EXPECT_EQ(bad(field + "type = \"int\"\n"), at + "'default' is missing");
  EXPECT_EQ(bad(field + "type = \"int\"\nrequired = true\ndefault = 1\n"), at + "a required key has no 'default'");
  EXPECT_EQ(bad(field + "type = \"int\"\ndefault = 1.5\n"), at + "'default' must be int but got float (line 14)");
  EXPECT_EQ(bad(field + "type = \"ints\"\ndefault = [1, \"b\"]\n"),
            at + "'default' must be ints but got text (line 14)");
  EXPECT_EQ(bad(field + "type = \"slot\"\ndefault = \"\"\n"), at + "'kind' is missing");
  EXPECT_EQ(bad(field + "type = \"int\"\ndefault = 1\nmin = 3\nmax = 2\n"),
            at + "'min' must be at most 'max' but got 3 and 2");
  EXPECT_EQ(bad(field + "type = \"int\"\ndefault = 1\ndoc = \"\\u001b[2J\"\n"),
            at + "'doc' holds the control character 27; only printable text is accepted");
  EXPECT_EQ(bad(kHead + "[[kernel]]\nop = \"o\"\nname = \"k\"\ndevice = \"tpu\"\n"),
            pre + "kernel 1: 'device' must be cpu or cuda but got 'tpu'");
}

TEST(Manifest, of_another_abi_is_understood_as_far_as_it_goes) {
  const PluginInfo p = parse_manifest("kitbash = 2\nneeds = 0\nwhat = 1\n[[component]]\nsort = \"x\"\n", "/a/x.so");
  EXPECT_EQ(p.abi_major, 2);
  EXPECT_EQ(abi_problems(p),
            Problems{"speaks plugin ABI 2; this kitbash speaks 1. Rebuild it with this SDK, or use kitbash 2.x"});
}

TEST(Manifest, every_prefix_of_a_good_one_parses_or_is_an_error_with_the_path) {
  const std::string all =
      kHead +
      "[[component]]\nkind = \"ffn\"\nname = \"a\"\n[[component.field]]\nname = \"w\"\ntype = \"int\"\ndefault = 1\n";
  for (size_t n = 0; n < all.size(); ++n) {
    const std::string e = bad(all.substr(0, n));
    EXPECT_TRUE(e == "no error" || e.rfind("/a/x.so has a bad manifest: ", 0) == 0) << n << ": " << e;
  }
}

}  // namespace
}  // namespace kitbash
