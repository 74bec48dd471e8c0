use crate::enums::Status;
use mxq_sys as sys;
use std::ffi::CStr;
use std::fmt;
use std::os::raw::c_char;

/// A call that the library refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: Status,
    message: String,
}

/// The result of every function that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Error {
        Error { status, message: message.into() }
    }

    /// The class of the refusal.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Which argument is wrong, what was expected, what came, and what to do.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.status, self.message)
    }
}

impl std::error::Error for Error {}

/// Text of the library; "" for NULL.
///
/// # Safety
/// The text must live for 'a and not change.
pub(crate) unsafe fn text<'a>(chars: *const c_char) -> &'a str {
    if chars.is_null() {
        return "";
    }
    CStr::from_ptr(chars).to_str().unwrap_or("")
}

/// Turns a status into a result, with the message of this thread's last failure.
pub(crate) fn check(status: sys::mxq_status) -> Result<()> {
    if status == sys::MXQ_STATUS_OK {
        return Ok(());
    }
    // SAFETY: the message lives until this thread's next failure, and is copied here.
    let message = unsafe { text(sys::mxq_last_error()) }.to_owned();
    Err(Error::new(Status::from_raw(status).unwrap_or(Status::InternalError), message))
}
