#include "core/formats.h"

#include "api/guard.h"

const char* mxq_format_name(int32_t format) {
    const mxq::Format* found = mxq::find_format(format);
    return found ? found->name : nullptr;
}

mxq_status mxq_format_property(int32_t format, int32_t property, int64_t* value) {
    return mxq::guard("mxq_format_property", [&] {
        mxq::require_output(value, "value");
        const mxq::Format* found = mxq::find_format(format);
        if (!found)
            mxq::fail(MXQ_STATUS_INVALID_ARGUMENT, "format is %d, expected one of MXQ_FORMAT_*", format);
        switch (property) {
            case MXQ_PROPERTY_ELEMENT_BITS: *value = found->bits; return;
            case MXQ_PROPERTY_BLOCK: *value = mxq::scaling_of(found->scaling).length; return;
            case MXQ_PROPERTY_QUANTIZED: *value = found->quantized(); return;
        }
        mxq::fail(MXQ_STATUS_INVALID_ARGUMENT, "property is %d, expected one of MXQ_PROPERTY_*", property);
    });
}
