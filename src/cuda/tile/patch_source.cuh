// Loads the patches of a source into registers, however its values are stored (tile/source.cuh).
#pragma once
#include "cuda/memory/decode.cuh"
#include "cuda/tile/codes.cuh"
#include "cuda/tile/source.cuh"
#include "cuda/tile/source_scales.cuh"

namespace mxq::cuda {

// ---- Quantized parts -------------------------------------------------------------------------------------------------

constexpr int kPatchRows = Patch<float>::rows, kPatchColumns = Patch<float>::columns;
static_assert(kPatchRows == kChunk && kPatchColumns == 4, "a row of a patch is a word of codes, a column a chunk");

// Transposes a word for each of four columns into a word for each of four rows.
__device__ __forceinline__ void transpose_bytes(const uint32_t (&columns)[4], uint32_t* rows) {
    const uint32_t low01 = __byte_perm(columns[0], columns[1], 0x5140), high01 = __byte_perm(columns[0], columns[1], 0x7362);
    const uint32_t low23 = __byte_perm(columns[2], columns[3], 0x5140), high23 = __byte_perm(columns[2], columns[3], 0x7362);
    rows[0] = __byte_perm(low01, low23, 0x5410);
    rows[1] = __byte_perm(low01, low23, 0x7632);
    rows[2] = __byte_perm(high01, high23, 0x5410);
    rows[3] = __byte_perm(high01, high23, 0x7632);
}

// Loads `existing` bytes into words, one by one. Missing bytes are zero.
template <int count>
__device__ __forceinline__ void load_bytes(const uint8_t* from, int existing, uint32_t (&words)[count]) {
#pragma unroll
    for (int i = 0; i < count; i++) words[i] = 0;
#pragma unroll
    for (int i = 0; i < 4 * count; i++)
        if (i < existing) words[i / 4] |= uint32_t(from[i]) << (i % 4 * 8);
}

// Loads four codes of each of 16 rows as stored, all or none.
template <int bits>
__device__ __forceinline__ void load_wide_rows(const CodeTile& from, const Patch<float>& patch, uint32_t (&words)[kPatchRows]) {
#pragma unroll
    for (int i = 0; i < kPatchRows; i++) {
        const uint8_t* line = from.codes + (patch.row + i) * from.line_bytes;
        words[i] = patch.exists(i) ? load_packed_wide<bits, kPatchColumns>(line, patch.column).words[0] : 0;
    }
}

// Loads four codes of each of 16 rows, one a byte. Narrow loads take codes of any width.
__device__ __forceinline__ void load_rows(const CodeTile& from, const Patch<float>& patch, int bits, bool wide,
                                          uint32_t (&words)[kPatchRows]) {
    if (!wide) {
        const uint8_t* at = from.codes + patch.row * from.line_bytes + patch.column * bits / 8;
#pragma unroll
        for (int i = 0; i < kPatchRows; i++, at += from.line_bytes) {
            uint32_t word[1];
            load_bytes(at, (patch.valid(i) * bits + 7) / 8, word);
            words[i] = word[0];
        }
    } else if (bits == 8) {
        load_wide_rows<8>(from, patch, words);
    } else if (bits == 6) {
        load_wide_rows<6>(from, patch, words);
    } else {
        load_wide_rows<4>(from, patch, words);
    }
    if (bits == 6)
#pragma unroll
        for (uint32_t& word : words) word = unpack_4<6>(word);
    if (bits == 4)
#pragma unroll
        for (uint32_t& word : words) word = unpack_4<4>(word);
}

// Loads 16 codes of a column as stored, 2 * bits bytes, all or none.
__device__ __forceinline__ void load_wide_chunk(const uint8_t* from, int bits, bool exists, uint32_t (&words)[4]) {
    const auto* of_words = reinterpret_cast<const uint32_t*>(from);
    uint4 v{};
    if (exists && bits == 8) {
        v = *reinterpret_cast<const uint4*>(from);
    } else if (exists && bits == 4) {
        const uint2 two = *reinterpret_cast<const uint2*>(from);
        v.x = two.x, v.y = two.y;
    } else if (exists) {
        v.x = *of_words, v.y = *(of_words + 1), v.z = *(of_words + 2);
    }
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
}

// Unpacks 16 codes to a byte each.
template <int bits>
__device__ __forceinline__ void unpack_chunk(uint32_t (&words)[4]) {
    uint32_t packed[bits / 2], codes[4];
#pragma unroll
    for (int i = 0; i < bits / 2; i++) packed[i] = words[i];
    unpack_16<bits>(packed, codes);
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = codes[i];
}

// Loads 16 codes of each of four columns, transposed to rows, one a byte.
__device__ __forceinline__ void load_columns(const CodeTile& from, const Patch<float>& patch, int bits, bool wide,
                                             uint32_t (&words)[kPatchRows]) {
    uint32_t columns[kPatchColumns][4];
    const uint8_t* at = from.codes + patch.column * from.line_bytes + patch.row * bits / 8;
#pragma unroll
    for (int v = 0; v < kPatchColumns; v++, at += from.line_bytes) {
        const int valid = v < patch.existing_columns ? patch.existing : 0;
        if (wide)
            load_wide_chunk(at, bits, valid > 0, columns[v]);
        else load_bytes(at, (valid * bits + 7) / 8, columns[v]);
    }
#pragma unroll
    for (int v = 0; v < kPatchColumns; v++) {
        if (bits == 6) unpack_chunk<6>(columns[v]);
        if (bits == 4) unpack_chunk<4>(columns[v]);
    }
#pragma unroll
    for (int w = 0; w < 4; w++)
        transpose_bytes({columns[0][w], columns[1][w], columns[2][w], columns[3][w]}, &words[4 * w]);
}

template <class E>
__device__ __forceinline__ void decode_words(const uint32_t (&words)[kPatchRows], PatchVectors<float>& values) {
#pragma unroll
    for (int i = 0; i < kPatchRows; i++) {
        const float2 low = decode_pair<E>(words[i] & 0xFFFF), high = decode_pair<E>(words[i] >> 16);
        values[i] = {{float_bits(low.x), float_bits(low.y), float_bits(high.x), float_bits(high.y)}};
    }
}

// Multiplies decoded elements by their scales. Elements that do not exist become +0, whatever their scale.
__device__ __forceinline__ void scale_values(const QuantizedPart& part, const Patch<float>& patch, float global,
                                             const SourceScaleTable& table, PatchVectors<float>& values) {
    const int shift = source_shift(part.layout);
    const float* scales = part.columnwise ? &table[patch.row >> shift][patch.column] : &table[patch.column >> shift][patch.row];
    const int row_step = part.columnwise ? 0 : 1, column_step = 1 - row_step;
#pragma unroll
    for (int i = 0; i < kPatchRows; i++)
#pragma unroll
        for (int v = 0; v < kPatchColumns; v++) {
            const float scale = scales[i * row_step + v * column_step];
            const float value = nvfp4_product(bits_float(values[i].words[v]), scale, global);  // global: NVFP4 only
            values[i].words[v] = v < patch.valid(i) ? float_bits(value) : 0;
        }
}

// Loads the patch of a quantized part: four codes of each of 16 rows, or 16 of each of four columns, transposed. Scales come
// through shared memory. All threads of the block call it.
__device__ __forceinline__ void load_quantized_patch(const QuantizeProblem& p, const TileCoord& coord, const Group& group,
                                                     bool wide, SourceScaleTable& table, PatchVectors<float>& values) {
    const QuantizedPart& part = p.source.quantized;
    const GroupStart start = group_start(p.grouped, group, kSourcePart);
    const CodeTile codes(part, coord, start, p.source.cols);
    const int rows = int(min(coord.rows - coord.row, int64_t(kTile)));
    const Patch<float> patch(rows, part.columnwise ? codes.lines : codes.length);
    uint32_t words[kPatchRows];
    if (part.columnwise) load_columns(codes, patch, part.bits, wide, words);
    else load_rows(codes, patch, part.bits, wide, words);
    const ScaleTile scales(part, coord, start, p.source.cols, p.grouped.groups.set);
    load_source_scales(part, scales, part.columnwise ? rows : codes.length, table);
    __syncthreads();
    with_codes(part.element, [&]<class E>(E) { decode_words<E>(words, values); });
    scale_values(part, patch, global_scale(part, coord.scope), table, values);
    __syncthreads();
}

// ---- Sources ---------------------------------------------------------------------------------------------------------

template <class T>
__device__ __forceinline__ const T* first_element(const PlainMatrix& in, const SourceTile& tile) {
    return static_cast<const T*>(in.data) + tile.first_row * in.row_stride + tile.col;
}

// Loads the rows of a patch from `at` on, 16 bytes at a time. All lanes of a warp call it. Where all of them have 16 rows,
// no row is checked.
__device__ __forceinline__ void load_patch_rows(const Bf16* at, int64_t stride, const Patch<Bf16>& patch,
                                                PatchVectors<Bf16>& vectors) {
    if (__all_sync(kAllLanes, patch.existing == patch.rows)) {
#pragma unroll
        for (int i = 0; i < patch.rows; i++, at += stride) vectors[i] = load_vector_wide(at, true);
    } else {
#pragma unroll
        for (int i = 0; i < patch.rows; i++, at += stride) vectors[i] = load_vector_wide(at, patch.exists(i));
    }
}

// Loads the patch of a thread. Quantized sources need the table. All threads of the block call it.
__device__ __forceinline__ void load_patch(Bf16Source, const QuantizeProblem& p, const TileCoord& coord, const Group& group,
                                           bool wide, SourceScaleTable&, PatchVectors<Bf16>& vectors) {
    const PlainMatrix& in = p.source.plain;
    const SourceTile at(p, coord, group);
    const Bf16* const first = first_element<Bf16>(in, at);
    const Patch<Bf16> patch(at.rows, at.cols);
    if (wide) return load_patch_rows(first + patch.offset(0, in.row_stride), in.row_stride, patch, vectors);
    load_vectors(vectors, false, first, in.row_stride, patch);
}

__device__ __forceinline__ void load_patch(FloatSource, const QuantizeProblem& p, const TileCoord& coord, const Group& group,
                                           bool wide, SourceScaleTable& table, PatchVectors<float>& vectors) {
    if (p.source.is_quantized()) return load_quantized_patch(p, coord, group, wide, table, vectors);
    const PlainMatrix& in = p.source.plain;
    const SourceTile at(p, coord, group);
    const Patch<float> patch(at.rows, at.cols);
    if (in.format == MXQ_FORMAT_F32) return load_vectors(vectors, wide, first_element<float>(in, at), in.row_stride, patch);
#pragma unroll
    for (int i = 0; i < Patch<float>::rows; i++)
        vectors[i] =
            load_halves(first_element<uint16_t>(in, at) + patch.offset(i, in.row_stride), in.format, wide, patch.valid(i));
}

// Returns, on the host, whether patches can be loaded by the widest accesses.
inline bool is_wide_patch_source(const QuantizeProblem& p) {
    if (p.source.is_plain()) return is_wide(p.source.plain);
    if (p.source.is_activated()) return is_wide(p.source.activated.in);
    if (p.source.kind == SourceKind::ActivationGradient) return is_wide(p.source.gradient.from.in);
    const QuantizedPart& from = p.source.quantized;
    const int needed = !from.columnwise || from.bits == 6 ? 4 : 2 * from.bits;
    return code_access(from, p.grouped.groups.set) >= needed && (from.bits != 6 || from.length % kChunk == 0);
}

}  // namespace mxq::cuda
