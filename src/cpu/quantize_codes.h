// Encodes values to codes of a byte each, and packs codes as they are stored. Part of kernels.cpp.
//
//     values x multiplier -> code, to nearest or by random bytes -> masked -> packed 8, 6 or 4 bits each
#pragma once
#include "cpu/moves.h"
#include "cpu/quantize_nvfp4.h"
#include "cpu/quantize_scales.h"
#include "numerics/element.h"
#include "numerics/packing.h"
#include "numerics/philox.h"

namespace mxq::cpu {
namespace {

// Stores the low bytes of words. Codes are 32-bit words before they become bytes, because a compiler that sees the narrowing
// in the loop of the arithmetic narrows every operand instead of the one result.
MXQ_HD void narrow_words(const uint32_t* words, uint8_t* codes) {
    for (int64_t i = 0; i < kMxBlock; i++) codes[i] = uint8_t(words[i]);
}

// Rounds to nearest. A type with NaN has a code for everything that a multiplier can make of a value, and needs no mask.
template <class E>
struct Nearest {
    struct None {
        MXQ_HD uint32_t operator[](int64_t) const { return 0; }
    };
    MXQ_HD static None random_of(const uint8_t*) {
        return {};
    }
    MXQ_HD static uint32_t code(float scaled, uint32_t mask, uint32_t) {
        const uint32_t code = encode<E>(scaled);
        return has_nan<E> ? code : code & mask;
    }
};

// Rounds E2M1 by a random byte for each element. The bytes are widened in a loop of their own, for the vectoriser.
struct Stochastic {
    struct Words {
        alignas(64) uint32_t words[kMxBlock];
        MXQ_HD uint32_t operator[](int64_t i) const { return words[i]; }
    };
    MXQ_HD static Words random_of(const uint8_t* bytes) {
        Words random;
        for (int64_t i = 0; i < kMxBlock; i++) random.words[i] = bytes[i];
        return random;
    }
    MXQ_HOST static uint32_t code(float scaled, uint32_t mask, uint32_t random) { return stochastic_e2m1(scaled, random) & mask; }
};

// Encodes 32 neighbours. `multiplier` and `mask` are functions of the neighbour's number.
template <class Rounding, class Multipliers, class Masks>
MXQ_HD void encode_32(const float* values, const Multipliers& multiplier, const Masks& mask, const uint8_t* random,
                      uint8_t* codes) {
    alignas(64) uint32_t words[kMxBlock];
    const auto bytes = Rounding::random_of(random);
    for (int64_t i = 0; i < kMxBlock; i++)
        words[i] = Rounding::code(multiply_rn(values[i], multiplier(i)), mask(i), bytes[i]);
    narrow_words(words, codes);
}

// Encodes blocks of `length` neighbours.
template <class Rounding, int64_t length>
void encode_blocks(const float* values, int64_t blocks, const BlockScales& scales, const uint8_t* random, uint8_t* codes) {
    for (int64_t i = 0; i < blocks * length; i += kMxBlock) {
        // These 32 neighbours are one block, a part of one, or two blocks of 16.
        const int64_t first = i / length, second = (i + kNvBlock) / length;
        const float multipliers[] = {scales.multipliers[first], scales.multipliers[second]};
        const uint32_t masks[] = {scales.masks[first], scales.masks[second]};
        const auto of = [](const auto& both, int64_t j) { return length >= kMxBlock || j < kNvBlock ? both[0] : both[1]; };
        encode_32<Rounding>(values + i, [&](int64_t j) { return of(multipliers, j); }, [&](int64_t j) { return of(masks, j); },
                            random + i, codes + i);
    }
}

// Encodes rows whose columns have a scale each, to K-major rows of codes that are `code_pitch` apart.
template <class Rounding>
void encode_columns(const float* values, int64_t rows, int64_t pitch, const BlockScales& scales, const uint8_t* random,
                    uint8_t* codes, int64_t code_pitch) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t col = 0; col < pitch; col += kMxBlock) {
            const int64_t at = row * pitch + col;
            encode_32<Rounding>(values + at, [&](int64_t i) { return scales.multipliers[col + i]; },
                                [&](int64_t i) { return scales.masks[col + i]; }, random + at, codes + row * code_pitch + col);
        }
}

// ---- Random bytes of a patch ------------------------------------------------------------------------------------------

// The seed and offset, and where the patch stands among the codes of the part as stored: its first K-major row, and its
// first code in a K-major row divided by 16.
struct RandomPosition {
    const uint64_t* seed_offset;
    int64_t row, chunk;
};

// The random words of neighbouring counters, which become vectors.
struct RandomWords {
    static constexpr int64_t counters = 16;
    alignas(64) uint32_t words[4][counters];
};

// Makes the random words of neighbouring chunks of a K-major row or, columnwise, of neighbouring K-major rows.
MXQ_HD RandomWords random_words(const RandomPosition& position, int64_t row, int64_t chunk, bool columnwise) {
    const PhiloxKey key = philox_key(position.seed_offset[0]);
    const auto first_chunk = uint32_t(position.chunk + chunk), first_row = uint32_t(position.row + row);
    RandomWords random;
    for (uint32_t i = 0; i < RandomWords::counters; i++) {
        const PhiloxWords of_counter =
            philox(key, philox_counter(first_chunk + (columnwise ? 0 : i), first_row + (columnwise ? i : 0), columnwise,
                                       position.seed_offset[1]));
        for (int word = 0; word < 4; word++) random.words[word][i] = of_counter.words[word];
    }
    return random;
}

// Stores a random byte for each element of a patch whose rows are K-major rows.
void random_of_rows(const RandomPosition& position, int64_t rows, int64_t pitch, uint8_t* random) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t chunk = 0; chunk < pitch / 16; chunk += RandomWords::counters) {
            const RandomWords words = random_words(position, row, chunk, false);
            uint8_t* const to = random + row * pitch + chunk * 16;
            for (int64_t i = 0; i < least(RandomWords::counters, pitch / 16 - chunk); i++)
                for (int word = 0; word < 4; word++) memcpy(to + i * 16 + word * 4, &words.words[word][i], 4);
        }
}

// Stores a random byte for each element of a patch whose columns are K-major rows. It has a multiple of sixteen rows.
void random_of_columns(const RandomPosition& position, int64_t rows, int64_t pitch, uint8_t* random) {
    for (int64_t row = 0; row < rows; row += 16)
        for (int64_t col = 0; col < pitch; col += RandomWords::counters) {
            const RandomWords words = random_words(position, col, row / 16, true);
            for (int byte = 0; byte < 16; byte++)
                for (int64_t i = 0; i < RandomWords::counters; i++)
                    random[(row + byte) * pitch + col + i] = uint8_t(words.words[byte / 4][i] >> byte % 4 * 8);
        }
}

// ---- Packing ----------------------------------------------------------------------------------------------------------

// Packs `count` codes. The codes after them up to a multiple of four must be 0, and `to` must have room for a word more.
template <int bits>
void pack_line(const uint8_t* codes, int64_t count, uint8_t* __restrict to) {
    if constexpr (bits == 4) {
        for (int64_t i = 0; i < (count + 1) / 2; i++) to[i] = uint8_t(codes[2 * i] | codes[2 * i + 1] << 4);
        return;
    }
    for (int64_t i = 0; i < count; i += 4) {  // a store reaches over the bytes of the next
        uint32_t word;
        memcpy(&word, codes + i, sizeof word);
        word = pack_4<bits>(word);
        memcpy(to + i * bits / 8, &word, sizeof word);
    }
}

// ---- The steps of a problem -------------------------------------------------------------------------------------------

struct CodeSteps {
    decltype(&encode_blocks<Nearest<E4M3>, 32>) blocks;
    decltype(&encode_columns<Nearest<E4M3>>) columns;
    // NULL where codes are bytes:
    decltype(&pack_line<4>) pack;
    decltype(&pack_columns<4, kTileRows, kTile>) pack_columns;
};

template <class Rounding, int bits>
CodeSteps code_steps_of(int64_t length) {
    CodeSteps steps{};
    steps.blocks = with_block_length(length, []<int64_t block>(BlockLength<block>) { return &encode_blocks<Rounding, block>; });
    steps.columns = encode_columns<Rounding>;
    if constexpr (bits != 8) steps.pack = pack_line<bits>, steps.pack_columns = pack_columns<bits, kTileRows, kTile>;
    return steps;
}

inline CodeSteps code_steps_of(const QuantizeProblem& problem) {
    const int64_t length = problem.tile.length;
    if (problem.seed_offset) return code_steps_of<Stochastic, E2M1::bits>(length);
    return with_element(problem.format->element, [&]<class E>(E) { return code_steps_of<Nearest<E>, E::bits>(length); });
}

}  // namespace
}  // namespace mxq::cpu
