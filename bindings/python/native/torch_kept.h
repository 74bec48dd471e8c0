// Calls that a thread keeps: descriptors with all but their memory, which each call of the same kind sets anew.
#ifndef MXQ_PYTHON_TORCH_KEPT_H
#define MXQ_PYTHON_TORCH_KEPT_H

#include "torch_calls.h"

namespace mxq_python {

// Tells calls of one kind from others: the text that the call gives, and all that its plain arrays have but addresses.
class Key {
public:
    explicit Key(const std::string& text) : text_(text) {}
    void add(int64_t number) { numbers_[count_++] = number; }
    void add(const View& view) {
        add(static_cast<int64_t>(view.element) << 8 | view.dims);
        for (int i = 0; i < view.dims; i++) add(view.shape[i]), add(view.strides[i]);
    }
    bool operator==(const Key& other) const {
        return count_ == other.count_ && std::equal(numbers_.begin(), numbers_.begin() + count_, other.numbers_.begin()) &&
               text_ == other.text_;
    }
    size_t hash() const {
        size_t sum = std::hash<std::string_view>()(text_);
        for (int i = 0; i < count_; i++) sum = (sum ^ static_cast<size_t>(numbers_[i])) * 0x9E3779B97F4A7C15u;
        return sum >> 32;
    }

private:
    static constexpr int most = 24;  // three arrays of 7 integers, and some
    std::string text_;
    std::array<int64_t, most> numbers_{};
    int count_ = 0;
};

// A call of this kind that the thread made before, or a new one. It is out of its place while it runs, so that a call within
// it makes another; one that failed is not kept.
template <class Made>
class Kept {
public:
    template <class Make>
    Kept(const Key& key, const Make& make) : place_(places()[key.hash() % count]), made_(std::move(place_)) {
        if (!made_ || !(made_->first == key)) made_ = std::make_unique<std::pair<Key, Made>>(key, make());
    }
    Made* operator->() { return &made_->second; }
    void keep() { place_ = std::move(made_); }

private:
    using Pointer = std::unique_ptr<std::pair<Key, Made>>;
    static constexpr size_t count = 64;
    static std::array<Pointer, count>& places() {
        thread_local std::array<Pointer, count> made;
        return made;
    }
    Pointer& place_;
    Pointer made_;
};

}  // namespace mxq_python

#endif
