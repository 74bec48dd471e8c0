//! Microscaling formats (MXFP8, MXFP6, MXFP4, NVFP4, block FP8) for Rust, by libmxq.
//!
//! ```
//! # fn main() -> mxq::Result<()> {
//! let cpu = mxq::Context::cpu()?;
//! let x: Vec<f32> = (0..4 * 64).map(|i| (i as f32).sin()).collect();
//! let q = mxq::Quantized::new(&cpu, mxq::Format::Mxfp8E4m3, &x, 4, 64)?;
//! let y = q.matmul_transposed(&cpu, &q)?; // x x^T, 4 x 4
//! println!("{q}: {:.2} was {:.2}, y[0] = {:.2}", q.dequantize(&cpu)?[1], x[1], y[0]);
//! # Ok(()) }
//! ```
//!
//! [`Quantized`] owns its memory and does the common things. [`Tensor`] is the C library's descriptor, with everything that it
//! can be told; its lifetime is that of the buffers it was given. A [`Descriptor`] is made once and bound to buffers for each
//! call. The verbs ([`quantize`], [`gemm`], ...) work on tensors. What is refused is an [`Error`] with the library's message.
//!
//! A [`Routing`] says which experts each token goes to; [`expert_layer`] runs a layer of them, and [`route`], [`activate`] and
//! [`combine`] are its steps.
//!
//! Safe functions run on CPU contexts. Work on a GPU goes on after the call: [`launch`] has the same verbs for CUDA contexts,
//! with workspace and stream, and is unsafe. Setters take a [`DeviceSlice`] there in place of a slice.
#![warn(missing_docs)]

mod activate_options;
mod buffers;
mod context;
mod context_options;
mod descriptor;
mod device;
mod elements;
mod enums;
mod error;
mod expert_layer_options;
mod handle;
pub mod launch;
mod layer;
mod log;
mod memory;
mod options;
mod plan;
mod quantized;
mod routing;
mod tensor;
mod verbs;

pub use activate_options::ActivateOptions;
pub use buffers::{Buffer, BufferMut};
pub use context::Context;
pub use context_options::ContextOptions;
pub use descriptor::Descriptor;
pub use device::{DeviceSlice, Stream};
pub use elements::{Element, Integer};
pub use enums::*;
pub use error::{Error, Result};
pub use expert_layer_options::ExpertLayerOptions;
pub use layer::*;
pub use log::{reset_log, set_log};
pub use memory::Memory;
pub use mxq_sys as sys;
pub use options::{GemmOptions, QuantizeOptions};
pub use plan::Plan;
pub use quantized::{Quantized, Scales};
pub use routing::{Routing, RoutingArrays};
pub use tensor::Tensor;
pub use verbs::*;

/// The version of the library that was loaded, such as "0.2.0".
pub fn version() -> &'static str {
    // SAFETY: the library gives text of static storage.
    unsafe { error::text(sys::mxq_version_string()) }
}
