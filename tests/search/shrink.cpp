#include "shrink.h"

namespace search {
namespace {

using Change = std::function<void(Call&)>;

template <class T>
Change reset(T Call::*member) {
    return [=](Call& call) { call.*member = Call{}.*member; };
}
template <class T>
Change reset(Side Call::*side, T Side::*member) {
    return [=](Call& call) { call.*side.*member = Side{}.*member; };
}

void add_sizes(std::vector<Change>& out, const Call& call) {
    for (size_t i = 0; i < call.shape.size(); ++i)
        for (int64_t size : {int64_t{1}, call.shape[i] / 2, call.shape[i] - 32, call.shape[i] - 1})
            if (size >= 1 && size < call.shape[i]) out.push_back([=](Call& c) { c.shape[i] = size; });
    if (call.shape.size() == 3 && !call.is_product()) out.push_back([](Call& c) { c.shape.erase(c.shape.begin()); });
}

void add_groups(std::vector<Change>& out, const Call& call) {
    if (!call.groups) return;
    out.push_back([](Call& c) { c.groups.reset(); });
    for (size_t i = 0; i < call.groups->size(); ++i) {
        const GroupRun run = (*call.groups)[i];
        out.push_back([=](Call& c) { c.groups->erase(c.groups->begin() + static_cast<std::ptrdiff_t>(i)); });
        for (int64_t count : {int64_t{1}, run.count / 2, run.count - 1})
            if (count > 0 && count < run.count) out.push_back([=](Call& c) { (*c.groups)[i].count = count; });
        for (int64_t rows : {int64_t{0}, int64_t{1}, run.rows / 2, run.rows - 1})
            if (rows >= 0 && rows < run.rows) out.push_back([=](Call& c) { (*c.groups)[i].rows = rows; });
    }
}

void add_sides(std::vector<Change>& out) {
    for (Side Call::*side : {&Call::first, &Call::second, &Call::d}) {
        for (int32_t part : {MXQ_PART_ROWWISE, MXQ_PART_COLUMNWISE}) out.push_back([=](Call& c) { (c.*side).parts = part; });
        out.push_back(reset(side, &Side::swizzled));
        out.push_back(reset(side, &Side::grouped));
        out.push_back(reset(side, &Side::rowwise));
        out.push_back(reset(side, &Side::columnwise));
        out.push_back(reset(side, &Side::gap));
        out.push_back(reset(side, &Side::indexed));
        out.push_back(reset(side, &Side::listed));
        out.push_back(reset(side, &Side::memory));
        for (int64_t Side::*gap : {&Side::code_line, &Side::code_expert, &Side::scale_line, &Side::scale_expert}) {
            out.push_back(reset(side, gap));
            out.push_back([=](Call& c) { (c.*side).*gap = std::min<int64_t>((c.*side).*gap, 1); });
        }
        out.push_back(reset(side, &Side::hadamard));
        out.push_back([=](Call& c) { (c.*side).hadamard &= MXQ_PART_ROWWISE; });
        out.push_back([=](Call& c) { (c.*side).hadamard &= MXQ_PART_COLUMNWISE; });
        out.push_back(reset(side, &Side::rowwise_mask));
        out.push_back(reset(side, &Side::columnwise_mask));
        out.push_back([=](Call& c) {
            if ((c.*side).plain())
                (c.*side).format = MXQ_FORMAT_F32;
            else
                (c.*side).scaling = oracle::default_scaling((c.*side).format);
        });
        out.push_back([=](Call& c) {
            if (!(c.*side).plain()) (c.*side).format = MXQ_FORMAT_MXFP8_E4M3, (c.*side).scaling = MXQ_SCALING_1X32;
        });
    }
}

void add_options(std::vector<Change>& out) {
    for (int32_t Call::*member : {&Call::rounding, &Call::nonfinite, &Call::four_over_six, &Call::source, &Call::bias,
                                  &Call::ends_type, &Call::transpose_a, &Call::transpose_b, &Call::activation,
                                  &Call::gate_layout, &Call::row_weights, &Call::id_type, &Call::choice_weights})
        out.push_back(reset(member));
    for (bool Call::*member :
         {&Call::stochastic,     &Call::compute_amax,  &Call::given_scale,     &Call::power_of_two, &Call::per_expert,
          &Call::t256,           &Call::decode_scale,  &Call::keep_hadamard,   &Call::accumulate,   &Call::exact,
          &Call::host_ends,      &Call::starts,        &Call::own_ends,        &Call::own_amax,     &Call::cover,
          &Call::read_only,      &Call::bias_gradient, &Call::weight_gradient, &Call::row_gradient, &Call::residual,
          &Call::counts_dropped, &Call::computed,       &Call::same_rows})
        out.push_back(reset(member));
    out.push_back(reset(&Call::ids));
    for (int64_t Call::*member : {&Call::sm_count, &Call::first_expert, &Call::local_experts}) out.push_back(reset(member));
    for (float Call::*member :
         {&Call::alpha, &Call::beta, &Call::epsilon, &Call::clamp_alpha, &Call::clamp_limit, &Call::clamp_addend})
        out.push_back(reset(member));
}

// Values that are zero outside of a half of the rows or of the columns.
void add_values(std::vector<Change>& out, const Call& call) {
    for (Values Call::*member : {&Call::values, &Call::second_values}) {
        for (const char* kind : {"zeros", "equal", "normal", "raw_mid"})
            out.push_back([=](Call& c) {
                if ((c.*member).kind != "zeros") (c.*member).kind = kind;
            });
        out.push_back([=](Call& c) { (c.*member).seed = 1; });
        std::vector<int64_t> keep = (call.*member).keep;
        if (keep.empty())
            keep = {0,
                    call.is_product() ? std::max(call.m(), std::max(call.n(), call.k()))
                                      : call.experts().value_or(1) * call.rows(),
                    0, call.is_product() ? std::max(call.m(), std::max(call.n(), call.k())) : call.cols()};
        for (size_t axis : {size_t{0}, size_t{2}})
            for (int64_t parts : {2, 4}) {
                const int64_t first = keep[axis], last = keep[axis + 1], step = (last - first) / parts;
                if (step < 1) continue;
                for (bool low : {true, false})
                    out.push_back([=](Call& c) {
                        (c.*member).keep = keep;
                        if (low)
                            (c.*member).keep[axis] = first + step;
                        else
                            (c.*member).keep[axis + 1] = last - step;
                    });
            }
    }
}

std::vector<Change> changes_of(const Call& call) {
    std::vector<Change> out = {reset(&Call::offsets), reset(&Call::broken), reset(&Call::broken_at)};
    add_options(out);
    add_sides(out);
    add_sizes(out, call);
    add_groups(out, call);
    add_values(out, call);
    for (const auto& [name, offset] : call.offsets) out.push_back([name = name](Call& c) { c.offsets.erase(name); });
    return out;
}

}  // namespace

Call shrink(const Call& call, const std::function<bool(const Call&)>& fails, const std::function<bool()>& may_go_on) {
    Call best = call;
    for (bool better = true; better;) {
        better = false;
        std::vector<Change> changes = changes_of(best);
        for (size_t i = 0; i < changes.size(); ++i) {
            Call smaller = best;
            changes[i](smaller);
            repair(smaller);
            if (text_of(smaller) == text_of(best)) continue;
            if (!may_go_on()) return best;
            if (!fails(smaller)) continue;
            best = smaller;
            better = true;
            changes = changes_of(best);
        }
    }
    return best;
}

}  // namespace search
