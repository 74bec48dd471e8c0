#include "core/log.h"

#include "api/guard.h"

using namespace mxq;

mxq_status mxq_set_log_callback(mxq_log_callback callback, mxq_log_level level, void* user) {
    return guard("mxq_set_log_callback", [&] {
        if (level < MXQ_LOG_OFF || level > MXQ_LOG_TRACE)
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "level is %d, expected MXQ_LOG_OFF (0), MXQ_LOG_INFO (1) or MXQ_LOG_TRACE (2)", level);
        if (!callback && (user || level != MXQ_LOG_OFF))
            fail(MXQ_STATUS_INVALID_ARGUMENT,
                 "callback is NULL, expected a function; or clear it with NULL, MXQ_LOG_OFF and NULL");
        if (callback) set_log_callback({callback, LogLevel(level), user});
        else clear_log_callback();
    });
}
