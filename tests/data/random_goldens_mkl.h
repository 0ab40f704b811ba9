// Made by tests/goldens/make_random_goldens.py with PyTorch 2.3.1+cu121. Do not edit.
#pragma once

#include "support/random_golden.h"

// clang-format off
inline const std::vector<RandomGolden> kMklDropoutGoldens = {
    {"dropout_mask", 0u, {36}, {0x1.999999999999ap-4}, 0x0e2f9894bc387746},
    {"dropout_mask", 0u, {1601}, {0x1.999999999999ap-4}, 0x22747218b331f5d2},
    {"dropout_mask", 0u, {36}, {0x1.0000000000000p-1}, 0x77c50ef00852f068},
    {"dropout_mask", 0u, {1601}, {0x1.0000000000000p-1}, 0x9cd812e32b7e91e3},
    {"dropout_mask", 0u, {36}, {0x1.ccccccccccccdp-1}, 0x253becd34b9ca413},
    {"dropout_mask", 0u, {1601}, {0x1.ccccccccccccdp-1}, 0x8e3bef53c4e85bbb},
    {"dropout_mask", 0u, {36}, {0x1.5555555555555p-2}, 0x3792f0f15d8f1ce7},
    {"dropout_mask", 0u, {1601}, {0x1.5555555555555p-2}, 0x42334e5260f8a975},
    {"dropout_mask", 123u, {36}, {0x1.999999999999ap-4}, 0x9bf67cfb57f65808},
    {"dropout_mask", 123u, {1601}, {0x1.999999999999ap-4}, 0xbda0eeb84ea939d4},
    {"dropout_mask", 123u, {36}, {0x1.0000000000000p-1}, 0xf218689bd86a0d38},
    {"dropout_mask", 123u, {1601}, {0x1.0000000000000p-1}, 0x0608940d0db48d53},
    {"dropout_mask", 123u, {36}, {0x1.ccccccccccccdp-1}, 0x943cf28841434e75},
    {"dropout_mask", 123u, {1601}, {0x1.ccccccccccccdp-1}, 0x1f7053636fac0244},
    {"dropout_mask", 123u, {36}, {0x1.5555555555555p-2}, 0x30d43e5920e2d98b},
    {"dropout_mask", 123u, {1601}, {0x1.5555555555555p-2}, 0x861ce655b7dd69f8},
    {"dropout_mask", 4294967295u, {36}, {0x1.999999999999ap-4}, 0x760a7af89e61cb0e},
    {"dropout_mask", 4294967295u, {1601}, {0x1.999999999999ap-4}, 0x5bbce0c2ee3bc904},
    {"dropout_mask", 4294967295u, {36}, {0x1.0000000000000p-1}, 0x78f1d7c66a9df601},
    {"dropout_mask", 4294967295u, {1601}, {0x1.0000000000000p-1}, 0x57bba3d2af1e0e74},
    {"dropout_mask", 4294967295u, {36}, {0x1.ccccccccccccdp-1}, 0x000463de45cf3c03},
    {"dropout_mask", 4294967295u, {1601}, {0x1.ccccccccccccdp-1}, 0x152e754dfc36efa1},
    {"dropout_mask", 4294967295u, {36}, {0x1.5555555555555p-2}, 0x04471d46996c3764},
    {"dropout_mask", 4294967295u, {1601}, {0x1.5555555555555p-2}, 0xf7760c5382b62fb0},
    {"dropout_mask", 4294967301u, {36}, {0x1.999999999999ap-4}, 0x0a70d609ad6c9b5d},
    {"dropout_mask", 4294967301u, {1601}, {0x1.999999999999ap-4}, 0x70b161aee8a9d34a},
    {"dropout_mask", 4294967301u, {36}, {0x1.0000000000000p-1}, 0x56d1c9c2fd346367},
    {"dropout_mask", 4294967301u, {1601}, {0x1.0000000000000p-1}, 0xde15241004c4a0fa},
    {"dropout_mask", 4294967301u, {36}, {0x1.ccccccccccccdp-1}, 0x943cf18841434cc2},
    {"dropout_mask", 4294967301u, {1601}, {0x1.ccccccccccccdp-1}, 0x4ceffced2aa82358},
    {"dropout_mask", 4294967301u, {36}, {0x1.5555555555555p-2}, 0x8d4599b7f9ffbdf0},
    {"dropout_mask", 4294967301u, {1601}, {0x1.5555555555555p-2}, 0x66e0c13583ff9aa6},
    {"dropout_mask", 18446744073709551615u, {36}, {0x1.999999999999ap-4}, 0x760a7af89e61cb0e},
    {"dropout_mask", 18446744073709551615u, {1601}, {0x1.999999999999ap-4}, 0x5bbce0c2ee3bc904},
    {"dropout_mask", 18446744073709551615u, {36}, {0x1.0000000000000p-1}, 0x78f1d7c66a9df601},
    {"dropout_mask", 18446744073709551615u, {1601}, {0x1.0000000000000p-1}, 0x57bba3d2af1e0e74},
    {"dropout_mask", 18446744073709551615u, {36}, {0x1.ccccccccccccdp-1}, 0x000463de45cf3c03},
    {"dropout_mask", 18446744073709551615u, {1601}, {0x1.ccccccccccccdp-1}, 0x152e754dfc36efa1},
    {"dropout_mask", 18446744073709551615u, {36}, {0x1.5555555555555p-2}, 0x04471d46996c3764},
    {"dropout_mask", 18446744073709551615u, {1601}, {0x1.5555555555555p-2}, 0xf7760c5382b62fb0},
};
// clang-format on
