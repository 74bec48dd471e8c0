// Works out one call: the bytes of every buffer before it, and those that the contract says it leaves behind.
#ifndef MXQ_TESTS_SEARCH_PROBLEM_H
#define MXQ_TESTS_SEARCH_PROBLEM_H

#include "../apart.h"
#include "../oracle_product.h"
#include "../verbs/combine.h"
#include "call.h"

namespace search {

using oracle::Bytes;

// One buffer of a call. `after` is what it must hold then; of the D of a product, without the elements that are computed.
struct Image {
    Bytes before, after;
    int64_t element = 1;   // bytes, to which its address must be aligned
    bool written = false;  // by the call
    bool used = true;      // false: the call must neither need nor touch it
};

// Holds a descriptor whose pointers are not set yet.
struct TensorPlan {
    std::string name;  // "in", "out", "a", "b", "d"
    Side side;
    oracle::Spec spec;
    testing::Dims dims{std::nullopt, 0, 0};
};

// One operand of a piece: its (lines, k) values.
struct PieceOperand {
    oracle::Floats values;
    int64_t lines = 0;
    size_t matrix = 0;  // its expert or group
};

// A part of D that is one product: rows of the stored D, one after another.
struct Piece {
    int64_t first_row = 0, rows = 0, k = 0;
    PieceOperand a, b;
    oracle::Floats previous, bias;
    mutable std::map<int32_t, std::vector<oracle::Element>> sums = {};  // by class of bound, once they were asked for
};

struct Problem {
    Call call;
    std::vector<TensorPlan> tensors;      // in the order of the arguments
    std::map<std::string, Image> images;  // by name: "in.data", "out.rowwise.codes", "ends", ...
    std::vector<Piece> pieces;            // of a product
    oracle::Part stored[2];               // of a product: the parts of A and B that it reads
    testing::Choices choices = {};        // of a verb with a routing
};

enum class Operand { a, b };
// Returns where the scales of a piece's operand lie.
oracle::Placement placement_of(const Problem& problem, const Piece& piece, Operand which);

// Returns the call's tensors and buffers, with the oracle's results.
Problem make_problem(const Call& call);

// Returns the call's tensors and options without values and results: enough for a query.
Problem make_outline(const Call& call);

// Sets the buffers of a product before the call, and those that it must leave behind (product.cpp).
std::vector<TensorPlan> product_tensors(const Call& call);
void add_product(Problem& problem);
void add_bias_image(Problem& problem);

// Sets the buffers of a verb of the layer (layer.cpp).
std::vector<TensorPlan> layer_tensors(const Call& call);
void add_layer(Problem& problem);

// Returns the problem with an id that no expert has, as a device must answer it; with a row of a choice that no row of `in`
// is.
std::optional<Problem> with_wrong_id(const Problem& problem, int64_t at);
std::optional<Problem> with_wrong_choice_row(const Problem& problem, int64_t at);

// Forgets offsets of buffers that the call does not have, so that its line is short.
void drop_unused_offsets(Call& call);

// ---- Shared by both ----------------------------------------------------------------------------------------------------

inline constexpr int32_t both_parts[] = {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE};
const char* part_name(int32_t part);
oracle::Groups groups_of(const Call& call, const Side& side);

// Returns how many rows of a columnwise group have values: a transform, of sixteens, gives its padding some.
int64_t rows_of_values(const oracle::Spec& spec, int64_t rows);

// Returns the specification of a tensor: `is_target` gives it the options of quantization.
oracle::Spec spec_of(const Call& call, const Side& side, bool is_target);

// Returns codes and scales of a tensor that is read, as the values say. Bytes that are not written are 0xFF.
oracle::Part draw_part(const Call& call, const TensorPlan& tensor, int32_t part, const Values& values);

// Says how codes or scales of a part that is read lie in memory. Of a list, expert e is the e-th from the end, so that nobody
// finds it by a stride.
struct Lying {
    testing::Lines lines;
    testing::Distances apart;
    int64_t place_of(int64_t expert) const { return (lines.matrices - 1 - expert) * apart.matrix_of(lines); }
    int64_t expert_bytes() const {
        return testing::span_of({std::min<int64_t>(lines.matrices, 1), lines.lines, lines.width}, {apart.line, 0});
    }
};
Lying code_lying(const TensorPlan& tensor, int32_t part);
Lying scale_lying(const TensorPlan& tensor, int32_t part);

// Says how the rows of a plain tensor lie whose experts have an address each.
Lying data_lying(const TensorPlan& tensor);

// Returns the buffers that mxq_tensor_set_memory lays out for a tensor, in their order; none where it is not asked to.
std::vector<std::string> block_of(const Problem& problem, const TensorPlan& tensor);

// Adds the buffers of a part that is read.
void add_part(Problem& problem, const TensorPlan& tensor, int32_t part, const oracle::Part& stored, bool used);

Image written_image(Bytes after, int64_t element);
Image read_image(Bytes bytes, int64_t element);

// Adds what a call writes to a plain tensor, from dense rows, and to the parts of a quantized one, from their values.
void add_plain_output(Problem& problem, const TensorPlan& tensor, const Bytes& dense);
void add_quantized_output(Problem& problem, const TensorPlan& out, const oracle::Floats& x);

// Adds the data of a plain tensor that is read, from its dense rows.
void add_plain(Problem& problem, const TensorPlan& tensor, const Bytes& dense);

// Of a plain tensor whose rows are by index: how many rows its data have, and the type of the indices.
int64_t source_rows_of(const TensorPlan& tensor);
int32_t index_type_of(const TensorPlan& tensor);
void add_indexed(Problem& problem, const TensorPlan& tensor, const Bytes& dense);

// Rows and which of them are written, with gaps between them as the tensor's row stride says. What is not written is `fill`.
Bytes with_gaps(const TensorPlan& tensor, const Bytes& rows, const Bytes& written, uint8_t fill);

}  // namespace search

#endif
