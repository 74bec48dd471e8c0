//! The GPU of the tests, which are skipped where there is none, or no CUDA in the library.
#[allow(dead_code)] // each test program calls some of it
#[path = "../../examples/common/driver.rs"]
mod driver;

pub use driver::{bytes_of, DeviceVec, Failure, Gpu};
use mxq::launch::Launch;
use mxq::Context;

pub type Outcome = std::result::Result<(), Failure>;

/// The GPU and its context, or None, with the reason printed.
pub fn gpu() -> Option<(Gpu, Context)> {
    match Gpu::first().and_then(|gpu| Ok((gpu, Context::cuda(0)?))) {
        Ok(found) => Some(found),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

/// Memory that suffices for the workspace of these calls.
pub fn workspace(gpu: &Gpu) -> std::result::Result<DeviceVec<'_, u8>, Failure> {
    gpu.allocate(1 << 20)
}

pub fn on<'a>(gpu: &Gpu, workspace: &'a DeviceVec<'_, u8>) -> Launch<'a> {
    Launch { workspace: Some(workspace.slice()), stream: gpu.stream() }
}
