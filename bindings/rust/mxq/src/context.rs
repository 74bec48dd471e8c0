use crate::context_options::{ContextOptions, ParallelFor};
use crate::enums::{Device, Status};
use crate::error::{check, text, Error, Result};
use mxq_sys as sys;
use std::fmt;
use std::ptr;

/// A device that verbs run on. Many threads may use it at once.
pub struct Context {
    raw: *mut sys::mxq_context,
    device: Device,
    ordinal: i32,
    _parallel_for: Option<ParallelFor>, // the library may call it until the context is destroyed
}

// SAFETY: the header promises that a context may be used from many threads at once, and destroyed by any.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The CPU, with as many threads as the process may use.
    pub fn cpu() -> Result<Context> {
        Context::new(Device::Cpu, 0, None)
    }

    /// The CPU, with this many threads, the calling one included.
    pub fn cpu_with_threads(threads: i32) -> Result<Context> {
        Context::new(Device::Cpu, 0, Some(ContextOptions::new()?.set_threads(threads)?))
    }

    /// A CUDA device. Its verbs are those of [`launch`](crate::launch).
    pub fn cuda(ordinal: i32) -> Result<Context> {
        Context::new(Device::Cuda, ordinal, None)
    }

    /// A device with options; the ordinal of a CPU is 0.
    pub fn new(device: Device, ordinal: i32, options: Option<&ContextOptions>) -> Result<Context> {
        let mut raw = ptr::null_mut();
        let given = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
        // SAFETY: options are NULL or live.
        check(unsafe { sys::mxq_context_create(device as i32, ordinal, given, &mut raw) })?;
        Ok(Context { raw, device, ordinal, _parallel_for: options.and_then(ContextOptions::parallel_for) })
    }

    /// One line about the device, such as "CPU, 8 threads, avx2".
    pub fn description(&self) -> &str {
        // SAFETY: the text lives as long as the context.
        unsafe { text(sys::mxq_context_description(self.raw)) }
    }

    /// One line about the cuBLASLt that products may use, or why there is none.
    pub fn cublaslt(&self) -> &str {
        // SAFETY: the text lives as long as the context.
        unsafe { text(sys::mxq_context_cublaslt(self.raw)) }
    }

    /// Which kind of device it is.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The ordinal of the CUDA device; 0 for the CPU.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// The C handle, for functions of [`sys`](crate::sys).
    pub fn as_raw(&self) -> *mut sys::mxq_context {
        self.raw
    }

    /// Refuses a CUDA context, whose calls only enqueue work: the borrows of the buffers would end too early.
    pub(crate) fn synchronous(&self) -> Result<()> {
        if self.device == Device::Cpu {
            return Ok(());
        }
        Err(Error::new(
            Status::InvalidArgument,
            "context is of a CUDA device, expected a CPU context; mxq::launch has the verbs for CUDA",
        ))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: calls borrow the context, so none is using it.
        unsafe { sys::mxq_context_destroy(self.raw) }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.description())
    }
}
