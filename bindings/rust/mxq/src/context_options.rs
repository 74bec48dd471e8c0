use crate::error::{check, Result};
use crate::handle::Handle;
use crate::options::c_string;
use mxq_sys as sys;
use std::any::Any;
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::Arc;

/// A host's way to run tasks, kept as long as a context may call it.
pub(crate) type ParallelFor = Arc<dyn Any + Send + Sync>;

/// Options of a context: its threads, and its cuBLASLt.
pub struct ContextOptions {
    handle: Handle<sys::mxq_context_options>,
    parallel_for: Option<ParallelFor>,
}

// SAFETY: options may be read by many calls at once; setters take &mut.
unsafe impl Send for ContextOptions {}
// SAFETY: as above.
unsafe impl Sync for ContextOptions {}

impl ContextOptions {
    /// All defaults.
    pub fn new() -> Result<ContextOptions> {
        let mut raw = ptr::null_mut();
        // SAFETY: writes a handle to raw.
        check(unsafe { sys::mxq_context_options_create(&mut raw) })?;
        Ok(ContextOptions { handle: Handle::owned(raw, sys::mxq_context_options_destroy), parallel_for: None })
    }

    /// Threads of the CPU, the calling one included; 0: as many as the process may use.
    pub fn set_threads(&mut self, threads: i32) -> Result<&mut Self> {
        // SAFETY: the handle is live, as in all functions below.
        self.done(unsafe { sys::mxq_context_options_set_threads(self.handle.get(), threads) })
    }

    /// Whether the context has threads of its own, which it shares with no other.
    pub fn set_own_threads(&mut self, own: bool) -> Result<&mut Self> {
        self.done(unsafe { sys::mxq_context_options_set_own_threads(self.handle.get(), own.into()) })
    }

    /// Runs the work of the CPU on threads of the host: `parallel_for(count, task)` calls `task` up to `count` times, on any
    /// threads, and returns when all calls have returned. The context then starts no thread.
    ///
    /// Count is 2 up to the number of threads. The calling thread does what no other takes, so that fewer calls are fine too.
    /// Threads that call verbs at once call it at once. After a panic inside the library goes on with the work.
    ///
    /// ```
    /// # fn main() -> mxq::Result<()> {
    /// let mut options = mxq::ContextOptions::new()?;
    /// options.set_threads(4)?.set_parallel_for(|count, task| {
    ///     std::thread::scope(|scope| (0..count).for_each(|_| drop(scope.spawn(task)))); // a pool of yours in its place
    /// })?;
    /// let cpu = mxq::Context::new(mxq::Device::Cpu, 0, Some(&options))?;
    /// # assert!(cpu.description().contains("4 threads"));
    /// # Ok(()) }
    /// ```
    pub fn set_parallel_for<F>(&mut self, parallel_for: F) -> Result<&mut Self>
    where
        F: Fn(usize, &(dyn Fn() + Sync)) + Send + Sync + 'static,
    {
        let kept = Arc::new(parallel_for);
        let user = Arc::as_ptr(&kept) as *mut c_void;
        // SAFETY: the options, and each context that they make, keep what user points to.
        check(unsafe { sys::mxq_context_options_set_parallel_for(self.handle.get(), Some(run_tasks::<F>), user) })?;
        self.parallel_for = Some(kept);
        Ok(self)
    }

    /// The file of the cuBLASLt that a CUDA context uses; "": the one that the library finds.
    pub fn set_cublaslt_path(&mut self, path: &str) -> Result<&mut Self> {
        let path = c_string(path);
        self.done(unsafe { sys::mxq_context_options_set_cublaslt_path(self.handle.get(), path.as_ptr()) })
    }

    /// The C handle, for functions of [`sys`](crate::sys).
    pub fn as_raw(&self) -> *mut sys::mxq_context_options {
        self.handle.get()
    }

    pub(crate) fn parallel_for(&self) -> Option<ParallelFor> {
        self.parallel_for.clone()
    }

    fn done(&mut self, status: sys::mxq_status) -> Result<&mut Self> {
        check(status).map(|()| self)
    }
}

/// A task of the library with its argument, which threads of the host share.
struct Task {
    run: unsafe extern "C" fn(*mut c_void, i32),
    data: *mut c_void,
    count: i32,
    next: AtomicI32,
}

// SAFETY: the library's tasks run on any threads at once.
unsafe impl Sync for Task {}

impl Task {
    /// Runs the next index, each once, and nothing after the last.
    fn call(&self) {
        let index =
            self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| (next < self.count).then_some(next + 1));
        if let Ok(index) = index {
            // SAFETY: the borrow of self ends before the library's call does, so that data is live.
            unsafe { (self.run)(self.data, index) }
        }
    }
}

unsafe extern "C" fn run_tasks<F>(user: *mut c_void, count: i32, task: sys::mxq_task, data: *mut c_void)
where
    F: Fn(usize, &(dyn Fn() + Sync)),
{
    let (Some(run), parallel_for) = (task, &*(user as *const F)) else { return };
    let task = Task { run, data, count, next: AtomicI32::new(0) };
    // A panic may not reach the library, whose caller is C. The tasks that were left out are done by the calling thread.
    let _ = catch_unwind(AssertUnwindSafe(|| parallel_for(count as usize, &|| task.call())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    unsafe extern "C" fn record(data: *mut c_void, index: i32) {
        (*(data as *const Mutex<Vec<i32>>)).lock().unwrap().push(index);
    }

    #[test]
    fn each_index_runs_once_however_often_the_host_calls() {
        let parallel_for = |count: usize, task: &(dyn Fn() + Sync)| (0..2 * count).for_each(|_| task());
        let mut seen = Mutex::new(Vec::new());
        fn run<F: Fn(usize, &(dyn Fn() + Sync))>(f: &F, data: *mut c_void) {
            // SAFETY: f and data outlive the call.
            unsafe { run_tasks::<F>(f as *const F as *mut c_void, 3, Some(record), data) }
        }
        run(&parallel_for, &mut seen as *mut Mutex<Vec<i32>> as *mut c_void);
        assert_eq!(*seen.lock().unwrap(), [0, 1, 2]);
    }
}
