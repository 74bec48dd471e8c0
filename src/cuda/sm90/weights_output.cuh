// From the sums of weights_sm90 to D, by bf16_output.cuh: those of a CTA that has all of a contraction or the end of one, or
// of the CTAs of a cluster, added up in their order by the pieces of bf16_exchange.cuh.
#pragma once
#include "cuda/sm90/bf16_output.cuh"
#include "cuda/sm90/weights_parts.cuh"

namespace mxq::cuda::sm90::weights {

// Brings a piece, 16 lines by 32 tokens, to D; `line` and `token` are the first. Its sums come by way of shared memory
// (put_turn), since registers are short while other sums wait in them. `lifted`: kLift is part of them.
template <Weights kind, bool lifted = kind == Weights::Fp8Blocks>
__device__ __noinline__ void write_piece(const Arguments& args, const Tile& tile, int32_t line, int token, uint32_t repair,
                                         uint8_t* out) {
    float sums[bf16::kTurnSums];
    bf16::take_turn(reinterpret_cast<const float*>(out), sums);
#pragma unroll
    for (float& sum : sums) sum = lifted ? multiply_rn(sum, kUnlift) : sum;
    const bf16::Output output = bf16::output_of<kind>(args, tile, line);
    bf16::add_bias_to_sums(args, tile, output, line, repair, sums);
    bf16::write_any_turn<kind>(args, tile, output, line, token, repair, sums, out);
}

// Multiplies four sums, of two tokens and two lines, by the factors of these. Returns whether the factors are usual.
__device__ __forceinline__ bool multiply_by_factors(const GemmProblem& p, const Tile& tile, int32_t line, int token,
                                                    float (&values)[4]) {
    const TileOperand a = bf16::operand_of_tokens(p, tile), b = operand_of_matrix(p.b, tile.group);
    bool usual = true;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float of_token = line_factor(p.a, a, tile.row + min(token + i % 2, tile.rows - 1));
        const float of_line = line_factor(p.b, b, line + i / 2 * 8);
        usual &= is_usual_factor(of_token) && is_usual_factor(of_line);
        values[i] = multiply_rn(multiply_rn(values[i], of_token), of_line);
    }
    return usual;
}

// Stores four elements, of two tokens and two lines; those that pad the group become +0.
template <class T>
__device__ __forceinline__ void store_four_elements(const GemmProblem& p, const Tile& tile, int32_t line, int token,
                                                    const float (&values)[4]) {
    T* const to = static_cast<T*>(p.d.data) + (tile.d_row + token) * p.d.row_stride + line;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (token + i % 2 < tile.padded)
            to[i % 2 * p.d.row_stride + i / 2 * 8] = from_float<T>(token + i % 2 < tile.rows ? values[i] : 0);
}

// Writes 16 lines by eight tokens, of which a lane has two of two lines, element by element. Returns whether it did: D is
// not added to, and sums and factors are usual.
template <Weights kind, bool lifted>
__device__ __forceinline__ bool write_eight_tokens(const Arguments& args, const Tile& tile, int32_t line, int first,
                                                   float4 sums) {
    const GemmProblem& p = args.problem;
    const uint32_t lane = read_thread() % 32;
    const int32_t own_line = line + int32_t(lane / 4), token = first + int32_t(lane % 4) * 2;
    float values[4] = {sums.x, sums.y, sums.z, sums.w};
    bool usual = true;
#pragma unroll
    for (float& value : values) {
        if (lifted) value = multiply_rn(value, kUnlift);
        if (kind == Weights::Nvfp4) value = multiply_rn(value, unit_of_sums<kind>);
        usual &= fabsf(value) < bits_float(kInfinityBits);
    }
    if (has_factor(p.a) || has_factor(p.b)) {
        if (has_line_factor(p.a) || has_line_factor(p.b)) usual &= multiply_by_factors(p, tile, own_line, token, values);
        if (!__all_sync(kAllLanes, usual)) return false;
    }
    if (!p.is_sum_alone()) bf16::add_bias(p, tile, line, values);
    with_plain(p.d.format, [&](auto type) { store_four_elements<decltype(type)>(p, tile, own_line, token, values); });
    return true;
}

// Writes 16 lines of a tile of up to 16 tokens. Returns whether it did.
template <Weights kind, bool lifted>
__device__ __noinline__ bool write_few_tokens(const Arguments& args, const Tile& tile, int32_t line, float4 first,
                                              float4 second) {
    if (args.problem.beta != 0 || line + kWarpLines > args.problem.n) return false;
    return write_eight_tokens<kind, lifted>(args, tile, line, 0, first) &&
           (tile.padded <= 8 || write_eight_tokens<kind, lifted>(args, tile, line, 8, second));
}

// Writes 16 lines, from `line` on, where registers suffice to take sums from them.
template <Weights kind, bool lifted, int count>
__device__ __forceinline__ void write_sums(const Arguments& args, const Tile& tile, int32_t line, float (&sums)[count],
                                           uint32_t repair, uint8_t* out) {
    if (lifted)
#pragma unroll
        for (float& sum : sums) sum = multiply_rn(sum, kUnlift);
    const bf16::Output output = bf16::output_of<kind>(args, tile, line);
    bf16::add_bias_to_sums(args, tile, output, line, repair, sums);
#pragma unroll
    for (int first = 0; first < 2 * count; first += bf16::kOutTokens) {
        if (first >= tile.padded) break;
        bf16::write_any_turn<kind>(args, tile, output, line, first, repair, &sums[first / 2], out);
    }
}

// Writes 16 lines, from `line` on, of a tile that this CTA has alone; `few`: it has up to 16 tokens. Kernels with larger
// tiles do without, since the code alone made them up to 4% slower.
template <Weights kind, int tokens, bool few, bool direct, bool lifted = kind == Weights::Fp8Blocks>
__device__ __forceinline__ void write_own_lines(const Arguments& args, const Tile& tile, int32_t line,
                                                float (&sums)[tokens / 2], uint32_t repair,
                                                uint8_t (*outs)[bf16::kOutBytes]) {
    if (line >= args.problem.n) return;
    if constexpr (direct) return write_sums<kind, lifted>(args, tile, line, sums, repair, outs[bf16::consumer_warp()]);
    if (few && tile.padded <= 16 && repair == 0 &&
        write_few_tokens<kind, lifted>(args, tile, line, {sums[0], sums[1], sums[2], sums[3]},
                                       {sums[4], sums[5], sums[6], sums[7]}))
        return;
#pragma unroll
    for (int first = 0; first < tokens; first += bf16::kOutTokens) {
        if (first >= tile.padded) break;
        uint8_t* const out = outs[bf16::consumer_warp()];
        __syncwarp();  // all have read the piece before
        bf16::put_turn(&sums[first / 2], reinterpret_cast<float*>(out));
        write_piece<kind, lifted>(args, tile, line, first, repair, out);
    }
}

// Writes what pads the group behind the tokens that a tile may have. A warp has 16 lines, columns of D.
__device__ __forceinline__ void clear_padding(const Arguments& args, const Tile& tile, int32_t line, int32_t tokens) {
    const GemmProblem& p = args.problem;
    const int32_t lane = int32_t(read_thread() % 32), column = line + lane % kWarpLines;
    if (p.beta != 0 || column >= p.n) return;
#pragma unroll 1
    for (int32_t token = tokens + lane / kWarpLines; token < tile.padded; token += 32 / kWarpLines)
        store_element(p.d.data, p.d.format, (tile.d_row + token) * p.d.row_stride + column, 0);
}

// Sends sums to the CTAs of their pieces, and which lines of the warp are to be made again to all.
template <int tokens>
__device__ __forceinline__ void send_pieces(Exchange<tokens>& exchange, const Tile& tile, uint32_t sharing, uint32_t repair,
                                            const float (&sums)[tokens / 2]) {
    constexpr uint32_t of_warp = Exchange<tokens>::of_warp;
    const uint32_t own = block_of_cluster(), lane = read_thread() % 32, warp = bf16::consumer_warp();
    if (lane == own) exchange.repair[own][warp] = repair;
    if (lane < sharing && lane != own)
        bf16::store_in_block(bf16::address_in_block(&exchange.repair[own][warp], lane), repair);
#pragma unroll
    for (uint32_t turn = 0; turn < of_warp; turn++) {
        if (int32_t(turn) * bf16::kOutTokens >= tile.rows) break;
        const uint32_t piece = warp * of_warp + turn, before = piece / sharing;
        bf16::send_part(exchange.sums[before * sharing + own], piece - before * sharing, &sums[turn * bf16::kTurnSums]);
    }
}

// Writes a tile that the cluster shares. Its consumers all call it when their last products are complete. `exchange` lies
// where the stages were.
template <Weights kind, int tokens>
__device__ __forceinline__ void write_shared_tile(const Arguments& args, Exchange<tokens>& exchange, const Tile& tile,
                                                  const float (&sums)[tokens / 2], uint32_t repair, bf16::OutOfWarps& outs) {
    using Pieces = Exchange<tokens>;
    const uint32_t sharing = args.sharing, own = block_of_cluster();
    sync_cluster_readers();
    send_pieces(exchange, tile, sharing, repair, sums);
    sync_cluster();
#pragma unroll 1
    for (uint32_t before = bf16::consumer_warp(); before * sharing + own < Pieces::pieces; before += kConsumerWarps) {
        const uint32_t piece = before * sharing + own, warp = piece / Pieces::of_warp;
        const int token = int(piece % Pieces::of_warp) * bf16::kOutTokens;
        if (token >= tile.padded) continue;
        uint32_t of_lines = 0;
        for (uint32_t cta = 0; cta < sharing; cta++) of_lines |= exchange.repair[cta][warp];
        float all[bf16::kTurnSums];
        bf16::add_parts(&exchange.sums[before * sharing], sharing, all);
        const int32_t line = tile.line + int32_t(warp) * kWarpLines;
        uint8_t* const out = outs[bf16::consumer_warp()];
        __syncwarp();  // all have read the piece before
        bf16::put_turn(all, reinterpret_cast<float*>(out));
        write_piece<kind>(args, tile, line, token, of_lines, out);
    }
}

// Takes the sums of a tile, or of a part of one, to where they belong.
template <Weights kind, bool few, class Block, class Consumer>
__device__ __forceinline__ void finish_tile(const Arguments& args, Block& shared, const Tile& tile, Consumer& consumer,
                                            uint32_t repair) {
    constexpr int out_tokens = Block::kOutTokens, sums = Block::kTokens / 2;
    if (args.sharing > 1) {
        write_shared_tile<kind, out_tokens>(args, reinterpret_cast<Exchange<out_tokens>&>(shared.stages), tile,
                                            consumer.totals, repair, shared.out);
    } else {
        const uint32_t place = Block::kHasPieces ? tile.first_place + tile.before : blockIdx.x;
        const bool own = Block::kHasPieces && args.pieces.count > 0 && args.pieces.of_cta == args.pieces.count;
        if (!tile.ends) return leave_part<sums>(args, place, own, consumer.totals, repair);
        if (tile.first_block > 0) repair |= add_parts<sums>(args, tile.first_place, place, consumer.totals);
        write_own_lines<kind, out_tokens, few, (Block::kTokens >= kMostTokens)>(args, tile, bf16::first_line_of(tile),
                                                                                consumer.totals, repair, shared.out);
    }
    if (block_of_cluster() == 0) clear_padding(args, tile, bf16::first_line_of(tile), out_tokens);
}

}  // namespace mxq::cuda::sm90::weights
