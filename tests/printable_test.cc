#include "culet/printable.h"

#include <string>

#include <gtest/gtest.h>

namespace culet {
namespace {

TEST(Printable, WhatSteersATerminalIsEscaped) {
  EXPECT_EQ(Printable("plain text, \\ and 'quotes'"), "plain text, \\ and 'quotes'");
  EXPECT_EQ(Printable("\x1b[31mred\x1b]0;title\x07"), "\\x1b[31mred\\x1b]0;title\\x07");
  EXPECT_EQ(Printable("a\tb\r\nc\x7f"), "a\\x09b\\x0d\\x0ac\\x7f");
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // CSI as one character
  EXPECT_EQ(Printable("\xc2\xa0"), "\xc2\xa0");
  EXPECT_EQ(Printable("\xe2\x80\xaegnp.exe"), "\\u202egnp.exe");
  EXPECT_EQ(Printable("\xe2\x81\xa7"), "\\u2067");
}

TEST(Printable, Utf8StaysAndOtherBytesAreShown) {
  const std::string text = "h\xc3\xa9 \xe4\xbd\xa0 \xf0\x9f\x98\x80";
  EXPECT_EQ(Printable(text), text);
  EXPECT_EQ(Printable("\x9b"
                      "31m"),
            "\\x9b31m");
  EXPECT_EQ(Printable("\xc2"), "\\xc2");
  EXPECT_EQ(Printable("\xe4\xbd"), "\\xe4\\xbd");
  EXPECT_EQ(Printable("\xc0\x9b"), "\\xc0\\x9b");           // a longer form
  EXPECT_EQ(Printable("\xe0\x82\x9b"), "\\xe0\\x82\\x9b");  // the same
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(Printable("\xff"), "\\xff");
}

TEST(Printable, LongTextEndsBetweenCharacters) {
  EXPECT_EQ(Printable("12345", 5), "12345");
  EXPECT_EQ(Printable("123456", 5), "12345...");
  EXPECT_EQ(Printable("1234\x1b[0m", 5), "1234...");
  EXPECT_EQ(Printable("123\xe4\xbd\xa0", 5), "123...");
  EXPECT_EQ(Printable("", 0), "");
}

}  // namespace
}  // namespace culet
