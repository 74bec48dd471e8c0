//! The verbs for CUDA contexts: they enqueue work on a stream and return. Also for CPU contexts, where a stream is NULL.
//!
//! # Safety
//! All buffers that descriptors and options name, and the workspace, must be memory that the context's device can access. They
//! must stay until the work that a call enqueues is done, and nothing else may use what it writes until then.
use crate::context::Context;
use crate::error::{check, Result};
use crate::options::{GemmOptions, QuantizeOptions};
use crate::tensor::Tensor;
use mxq_sys as sys;
use std::ffi::c_void;
use std::ptr;

/// Workspace and stream of a call.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Memory of as many bytes as the plan says, at a multiple of 256, or NULL.
    pub workspace: *mut c_void,
    /// The bytes of the workspace.
    pub workspace_bytes: u64,
    /// A cudaStream_t, or NULL for the legacy default stream.
    pub stream: *mut c_void,
}

impl Launch {
    /// No workspace, and the default stream.
    pub const NONE: Launch = Launch { workspace: ptr::null_mut(), workspace_bytes: 0, stream: ptr::null_mut() };
}

/// [`quantize`](crate::quantize) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn quantize(
    context: &Context,
    options: Option<&QuantizeOptions>,
    input: &Tensor,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let Launch { workspace, workspace_bytes, stream } = launch;
    check(sys::mxq_quantize(context.as_raw(), options, input.as_raw(), out.as_raw(), workspace, workspace_bytes, stream))
}

/// [`requantize`](crate::requantize) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn requantize(
    context: &Context,
    options: Option<&QuantizeOptions>,
    input: &Tensor,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let Launch { workspace, workspace_bytes, stream } = launch;
    check(sys::mxq_requantize(context.as_raw(), options, input.as_raw(), out.as_raw(), workspace, workspace_bytes, stream))
}

/// [`dequantize`](crate::dequantize) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn dequantize(
    context: &Context,
    options: Option<&QuantizeOptions>,
    input: &Tensor,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let Launch { workspace, workspace_bytes, stream } = launch;
    check(sys::mxq_dequantize(context.as_raw(), options, input.as_raw(), out.as_raw(), workspace, workspace_bytes, stream))
}

/// [`amax`](crate::amax) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn amax(
    context: &Context,
    options: Option<&QuantizeOptions>,
    input: &Tensor,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let Launch { workspace, workspace_bytes, stream } = launch;
    check(sys::mxq_amax(context.as_raw(), options, input.as_raw(), out.as_raw(), workspace, workspace_bytes, stream))
}

/// [`convert`](crate::convert) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn convert(
    context: &Context,
    options: Option<&QuantizeOptions>,
    input: &Tensor,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let Launch { workspace, workspace_bytes, stream } = launch;
    check(sys::mxq_convert(context.as_raw(), options, input.as_raw(), out.as_raw(), workspace, workspace_bytes, stream))
}

/// [`pad_groups`](crate::pad_groups) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn pad_groups(
    context: &Context,
    options: Option<&QuantizeOptions>,
    input: &Tensor,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let Launch { workspace, workspace_bytes, stream } = launch;
    check(sys::mxq_pad_groups(context.as_raw(), options, input.as_raw(), out.as_raw(), workspace, workspace_bytes, stream))
}

/// [`unpad_groups`](crate::unpad_groups) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn unpad_groups(
    context: &Context,
    options: Option<&QuantizeOptions>,
    input: &Tensor,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let Launch { workspace, workspace_bytes, stream } = launch;
    check(sys::mxq_unpad_groups(context.as_raw(), options, input.as_raw(), out.as_raw(), workspace, workspace_bytes, stream))
}

/// [`swizzle_scales`](crate::swizzle_scales) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn swizzle_scales(
    context: &Context,
    options: Option<&QuantizeOptions>,
    input: &Tensor,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let Launch { workspace, workspace_bytes, stream } = launch;
    check(sys::mxq_swizzle_scales(context.as_raw(), options, input.as_raw(), out.as_raw(), workspace, workspace_bytes, stream))
}

/// [`unswizzle_scales`](crate::unswizzle_scales) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn unswizzle_scales(
    context: &Context,
    options: Option<&QuantizeOptions>,
    input: &Tensor,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let Launch { workspace, workspace_bytes, stream } = launch;
    check(sys::mxq_unswizzle_scales(
        context.as_raw(),
        options,
        input.as_raw(),
        out.as_raw(),
        workspace,
        workspace_bytes,
        stream,
    ))
}

/// [`gemm`](crate::gemm) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn gemm(
    context: &Context,
    options: Option<&GemmOptions>,
    a: &Tensor,
    b: &Tensor,
    d: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let Launch { workspace, workspace_bytes, stream } = launch;
    check(sys::mxq_gemm(context.as_raw(), options, a.as_raw(), b.as_raw(), d.as_raw(), workspace, workspace_bytes, stream))
}

/// [`grouped_gemm`](crate::grouped_gemm) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn grouped_gemm(
    context: &Context,
    options: Option<&GemmOptions>,
    a: &Tensor,
    b: &Tensor,
    d: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let Launch { workspace, workspace_bytes, stream } = launch;
    check(sys::mxq_grouped_gemm(
        context.as_raw(),
        options,
        a.as_raw(),
        b.as_raw(),
        d.as_raw(),
        workspace,
        workspace_bytes,
        stream,
    ))
}
