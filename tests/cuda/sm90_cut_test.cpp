// How wgmma_bf16_sm90 and weights_sm90 cut products on the 132 SMs of an H200 and on fewer; no GPU is needed.
#include "../catch.h"
#include "cuda/sm90/bf16_cut.h"
#include "cuda/sm90/weights_cut.h"

using namespace mxq::cuda::sm90::bf16;

namespace {

constexpr int64_t h200 = 132;

// Returns the tiles of one product with steps of 64 codes and tiles of 128 columns.
TilesToCut dense(int64_t m, int64_t n, int64_t k) {
    const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
    return {up(m, 256) * up(n, 128), up(m, 128) * up(n, 128), up(k, 64), m <= 64};
}

}  // namespace

// The best of those that were timed, or within 2% of it.
TEST_CASE("sm90 cut: few tiles are shared by as many blocks as run at once") {
    const struct {
        int64_t m, n, k;
        Cut cut;
    } rows[] = {{64, 4096, 4096, {128, 3}},   {128, 4096, 4096, {128, 3}},  {256, 4096, 4096, {256, 3}},
                {512, 4096, 4096, {256, 2}},  {1024, 4096, 4096, {256, 1}}, {128, 2048, 7168, {128, 6}},
                {256, 2048, 7168, {256, 6}},  {512, 2048, 7168, {256, 3}},  {1024, 2048, 7168, {256, 2}},
                {2048, 2048, 7168, {256, 1}}, {256, 8192, 8192, {256, 2}},  {8192, 8192, 8192, {256, 1}}};
    for (const auto& row : rows) {
        INFO(row.m << " x " << row.n << " x " << row.k);
        const Cut cut = cut_of(dense(row.m, row.n, row.k), h200);
        CHECK(cut.tokens == row.cut.tokens);
        CHECK(cut.sharing == row.cut.sharing);
    }
}

TEST_CASE("sm90 cut: blocks that share a tile run at once, each with steps of its own") {
    int64_t shared = 0;
    for (int64_t multiprocessors : {1, 2, 3, 7, 16, 78, 114, 132})
        for (int64_t m : {0, 1, 64, 65, 128, 129, 256, 300, 1000, 5000})
            for (int64_t n : {1, 128, 1000, 2048, 7168})
                for (int64_t k : {1, 64, 500, 512, 1024, 7168}) {
                    INFO(m << " x " << n << " x " << k << ", " << multiprocessors << " multiprocessors");
                    const TilesToCut tiles = dense(m, n, k);
                    const Cut cut = cut_of(tiles, multiprocessors);
                    REQUIRE((cut.tokens == 128 || cut.tokens == 256));
                    REQUIRE((cut.sharing >= 1 && cut.sharing <= 8));
                    if (cut.sharing == 1) continue;
                    CHECK(tiles.of(cut.tokens) * cut.sharing <= multiprocessors);
                    CHECK(tiles.of(cut.tokens) <= clusters_at_once(multiprocessors, cut.sharing));
                    CHECK(tiles.steps >= 4 * cut.sharing);
                    ++shared;
                }
    CHECK(shared > 300);
}

TEST_CASE("sm90 cut: counted clusters are no more than one H200 runs") {
    const int64_t run[] = {132, 66, 39, 30, 22, 17, 15, 15};
    for (int32_t sharing = 1; sharing <= 8; sharing++) CHECK(clusters_at_once(h200, sharing) <= run[sharing - 1]);
}

// A CTA of 16 or 32 tokens is slower where another one runs on its SM, so that 128 of them beat 192. Those of 64 are not.
TEST_CASE("sm90 cut: the SM with most blocks decides how many CTAs share a tile of weights_sm90") {
    namespace weights = mxq::cuda::sm90::weights;
    const struct {
        int64_t tiles, blocks;
        int32_t tokens, sharing;
    } rows[] = {{64, 64, 16, 2},  {79, 96, 32, 3},  {32, 32, 64, 7},  {64, 64, 64, 2},  {16, 56, 16, 8},   {132, 64, 16, 2},
                {264, 64, 64, 1}, {33, 32, 128, 3}, {64, 64, 128, 2}, {132, 64, 128, 1}};
    for (const auto& row : rows) {
        INFO(row.tiles << " tiles of " << row.blocks << " blocks, " << row.tokens << " tokens");
        const weights::Room room{h200, h200 * weights::ctas_of_sm(row.tokens)};
        CHECK(weights::cut_of(row.tiles, row.blocks, row.tokens, room).sharing == row.sharing);
    }
}
