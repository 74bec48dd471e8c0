use crate::enums::LogLevel;
use crate::error::{check, text, Result};
use mxq_sys as sys;
use std::ffi::c_void;
use std::os::raw::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;

/// Gives the lines of the log up to `level` to a callback, for the whole process, in place of stderr.
///
/// The thread that calls a verb calls it, before the work begins, and several threads may do so at once. It is kept until the
/// process ends, since a call that began before may still use it. A panic inside ends with the line.
pub fn set_log<F>(level: LogLevel, callback: F) -> Result<()>
where
    F: Fn(LogLevel, &str) + Send + Sync + 'static,
{
    let user = Box::into_raw(Box::new(callback));
    // SAFETY: the callback is freed only where the library refused it.
    check(unsafe { sys::mxq_set_log_callback(Some(give_line::<F>), level as i32, user.cast()) }).inspect_err(|_| {
        drop(unsafe { Box::from_raw(user) });
    })
}

/// Lets lines go to stderr again, as the environment variable MXQ_LOG says.
pub fn reset_log() -> Result<()> {
    // SAFETY: NULL is no callback.
    check(unsafe { sys::mxq_set_log_callback(None, LogLevel::Off as i32, ptr::null_mut()) })
}

unsafe extern "C" fn give_line<F: Fn(LogLevel, &str)>(user: *mut c_void, level: sys::mxq_log_level, line: *const c_char) {
    let callback = &*(user as *const F);
    let level = LogLevel::from_raw(level).unwrap_or(LogLevel::Info);
    // A panic may not reach the library, whose caller is C.
    let _ = catch_unwind(AssertUnwindSafe(|| callback(level, text(line))));
}
