//! The few functions of the CUDA driver that an example and the tests call, loaded from `libcuda.so.1` when the program runs.
//! An engine has them from a crate such as `cudarc`.
use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::marker::PhantomData;
use std::mem::{size_of, size_of_val, transmute};
use std::ptr;
use std::slice;

extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;
const CAPTURE_OF_THIS_THREAD: c_int = 1; // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
const NON_BLOCKING: c_uint = 1; // CU_STREAM_NON_BLOCKING

/// A failure of the driver: the function, and what it said.
pub type Failure = Box<dyn std::error::Error>;

macro_rules! functions { ($($name:ident($($argument:ty),*);)*) => {
    #[allow(non_snake_case)]
    struct Functions { $($name: unsafe extern "C" fn($($argument),*) -> c_int,)* }

    impl Functions {
        fn load() -> Result<Functions, Failure> {
            // SAFETY: the names are those of the driver, with the types of its header.
            unsafe {
                let library = dlopen(c"libcuda.so.1".as_ptr(), RTLD_NOW);
                if library.is_null() {
                    return Err("libcuda.so.1 is not here".into());
                }
                Ok(Functions { $($name: {
                    let found = dlsym(library, concat!(stringify!($name), "\0").as_ptr().cast());
                    if found.is_null() {
                        return Err(concat!("libcuda.so.1 has no ", stringify!($name)).into());
                    }
                    transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_int>(found)
                },)* })
            }
        }
    }
} }

functions! {
    cuInit(c_uint);
    cuDeviceGet(*mut c_int, c_int);
    cuDevicePrimaryCtxRetain(*mut *mut c_void, c_int);
    cuCtxSetCurrent(*mut c_void);
    cuGetErrorString(c_int, *mut *const c_char);
    cuMemAlloc_v2(*mut u64, usize);
    cuMemFree_v2(u64);
    cuMemcpyHtoDAsync_v2(u64, *const c_void, usize, *mut c_void);
    cuMemcpyDtoHAsync_v2(*mut c_void, u64, usize, *mut c_void);
    cuStreamCreate(*mut *mut c_void, c_uint);
    cuStreamSynchronize(*mut c_void);
    cuStreamDestroy_v2(*mut c_void);
    cuStreamBeginCapture_v2(*mut c_void, c_int);
    cuStreamEndCapture(*mut c_void, *mut *mut c_void);
    cuGraphInstantiateWithFlags(*mut *mut c_void, *mut c_void, u64);
    cuGraphLaunch(*mut c_void, *mut c_void);
    cuGraphExecDestroy(*mut c_void);
    cuGraphDestroy(*mut c_void);
}

/// The first GPU, with a stream. Its primary context is current on the thread that made it, which alone uses it.
pub struct Gpu {
    functions: Functions,
    stream: *mut c_void,
}

impl Gpu {
    /// The GPU 0, or why there is none.
    pub fn first() -> Result<Gpu, Failure> {
        let mut gpu = Gpu { functions: Functions::load()?, stream: ptr::null_mut() };
        let (mut device, mut context, f) = (0, ptr::null_mut(), &gpu.functions);
        // SAFETY: each call gets addresses of live variables.
        unsafe {
            gpu.check("cuInit", (f.cuInit)(0))?;
            gpu.check("cuDeviceGet", (f.cuDeviceGet)(&mut device, 0))?;
            gpu.check("cuDevicePrimaryCtxRetain", (f.cuDevicePrimaryCtxRetain)(&mut context, device))?;
            gpu.check("cuCtxSetCurrent", (f.cuCtxSetCurrent)(context))?;
            let mut stream = ptr::null_mut();
            gpu.check("cuStreamCreate", (f.cuStreamCreate)(&mut stream, NON_BLOCKING))?;
            gpu.stream = stream;
        }
        Ok(gpu)
    }

    /// The stream that copies and graphs use.
    pub fn stream(&self) -> mxq::Stream {
        // SAFETY: it lives as long as the GPU, which outlives all work on it.
        unsafe { mxq::Stream::from_raw(self.stream) }
    }

    /// Memory for `len` numbers, not initialized.
    pub fn allocate<T: Copy>(&self, len: usize) -> Result<DeviceVec<'_, T>, Failure> {
        let mut address = 0;
        // SAFETY: writes an address.
        self.check("cuMemAlloc", unsafe { (self.functions.cuMemAlloc_v2)(&mut address, (len * size_of::<T>()).max(1)) })?;
        Ok(DeviceVec { gpu: self, address, len, numbers: PhantomData })
    }

    /// Memory with a copy of these numbers.
    pub fn upload<T: Copy>(&self, numbers: &[T]) -> Result<DeviceVec<'_, T>, Failure> {
        let memory = self.allocate(numbers.len())?;
        memory.write(numbers)?;
        Ok(memory)
    }

    /// Waits for all work of the stream.
    pub fn wait(&self) -> Result<(), Failure> {
        // SAFETY: the stream is live.
        self.check("cuStreamSynchronize", unsafe { (self.functions.cuStreamSynchronize)(self.stream) })
    }

    /// A graph of what `work` enqueues on the stream.
    pub fn capture(&self, work: impl FnOnce() -> mxq::Result<()>) -> Result<Graph<'_>, Failure> {
        let (mut graph, mut ready, f) = (ptr::null_mut(), ptr::null_mut(), &self.functions);
        // SAFETY: the stream is live, and no other thread uses it.
        unsafe {
            self.check("cuStreamBeginCapture", (f.cuStreamBeginCapture_v2)(self.stream, CAPTURE_OF_THIS_THREAD))?;
            let worked = work();
            let ended = self.check("cuStreamEndCapture", (f.cuStreamEndCapture)(self.stream, &mut graph));
            worked?;
            ended?;
            let made = self.check("cuGraphInstantiate", (f.cuGraphInstantiateWithFlags)(&mut ready, graph, 0));
            (f.cuGraphDestroy)(graph);
            made?;
        }
        Ok(Graph { gpu: self, graph: ready })
    }

    fn check(&self, function: &str, status: c_int) -> Result<(), Failure> {
        if status == 0 {
            return Ok(());
        }
        let mut text = ptr::null();
        // SAFETY: the driver gives text of static storage, or NULL for a number that it does not know.
        let said = unsafe {
            (self.functions.cuGetErrorString)(status, &mut text);
            if text.is_null() {
                ""
            } else {
                CStr::from_ptr(text).to_str().unwrap_or("")
            }
        };
        Err(format!("{function}: {status} {said}").into())
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if !self.stream.is_null() {
            // SAFETY: memory and graphs borrow the GPU, so all are gone.
            unsafe { (self.functions.cuStreamDestroy_v2)(self.stream) };
        }
    }
}

/// Numbers in memory of the GPU.
pub struct DeviceVec<'g, T> {
    gpu: &'g Gpu,
    address: u64,
    len: usize,
    numbers: PhantomData<T>,
}

impl<T: Copy> DeviceVec<'_, T> {
    /// Returns this memory as setters of mxq take it.
    pub fn slice(&self) -> mxq::DeviceSlice<'_, T> {
        // SAFETY: the memory lives as long as self, and has this many numbers.
        unsafe { mxq::DeviceSlice::from_raw(self.address, self.len, 0) }
    }

    /// Copies numbers there, on the stream. They may change when it returns.
    pub fn write(&self, numbers: &[T]) -> Result<(), Failure> {
        assert_eq!(numbers.len(), self.len);
        let (f, from) = (&self.gpu.functions, numbers.as_ptr().cast());
        // SAFETY: both have as many bytes. The driver has read memory that is not pinned when it returns.
        let status = unsafe { (f.cuMemcpyHtoDAsync_v2)(self.address, from, size_of_val(numbers), self.gpu.stream) };
        self.gpu.check("cuMemcpyHtoDAsync", status)
    }

    /// The numbers, when all work of the stream is done.
    pub fn read(&self) -> Result<Vec<T>, Failure>
    where
        T: Default,
    {
        let mut numbers = vec![T::default(); self.len];
        let (f, to) = (&self.gpu.functions, numbers.as_mut_ptr().cast());
        // SAFETY: both have as many bytes, and the vector lives until the copy is done.
        let status = unsafe { (f.cuMemcpyDtoHAsync_v2)(to, self.address, self.len * size_of::<T>(), self.gpu.stream) };
        self.gpu.check("cuMemcpyDtoHAsync", status)?;
        self.gpu.wait()?;
        Ok(numbers)
    }
}

impl<T> Drop for DeviceVec<'_, T> {
    fn drop(&mut self) {
        // SAFETY: freeing waits for the work that uses it.
        unsafe { (self.gpu.functions.cuMemFree_v2)(self.address) };
    }
}

/// A captured graph.
pub struct Graph<'g> {
    gpu: &'g Gpu,
    graph: *mut c_void,
}

impl Graph<'_> {
    /// Enqueues its work on the stream.
    pub fn launch(&self) -> Result<(), Failure> {
        // SAFETY: both are live.
        self.gpu.check("cuGraphLaunch", unsafe { (self.gpu.functions.cuGraphLaunch)(self.graph, self.gpu.stream) })
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        // SAFETY: its work may still run; CUDA keeps what it needs.
        unsafe { (self.gpu.functions.cuGraphExecDestroy)(self.graph) };
    }
}

/// The bytes of numbers, for comparisons.
#[allow(dead_code)] // the example compares values
pub fn bytes_of<T: Copy>(numbers: &[T]) -> &[u8] {
    // SAFETY: numbers without padding.
    unsafe { slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}
