//! The verbs for CUDA contexts: they enqueue work on a stream and return. Also for CPU contexts, where a stream is NULL.
//!
//! A buffer in memory of another device than the context's is refused, and so is a slice of the host on a CUDA context: setters
//! take a [`DeviceSlice`] there. Nothing is allocated and nothing waits, so that a CUDA graph may capture every call.
//!
//! # Safety
//! All buffers that descriptors and options name, and the workspace, must stay until the work that a call enqueues is done.
//! Until then nothing else may use what it writes, and nothing may write what it reads. The stream must be one of the
//! context's device.
use crate::activate_options::ActivateOptions;
use crate::context::Context;
use crate::device::{places, require_places, DeviceSlice, Places, Stream};
use crate::error::{check, Result};
use crate::expert_layer_options::ExpertLayerOptions;
use crate::options::{GemmOptions, QuantizeOptions};
use crate::routing::Routing;
use crate::tensor::Tensor;
use mxq_sys as sys;
use std::ffi::c_void;
use std::ptr;

/// Workspace and stream of a call.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Memory of as many bytes as the plan says, at a multiple of 256, or none. A CPU context needs none.
    pub workspace: Option<DeviceSlice<'a, u8>>,
    /// The stream that gets the work.
    pub stream: Stream,
}

impl<'a> Launch<'a> {
    /// No workspace, and the default stream.
    pub const NONE: Launch<'static> = Launch { workspace: None, stream: Stream::DEFAULT };

    /// The workspace as the library takes it, and the stream.
    fn parts(&self) -> (*mut c_void, u64, *mut c_void) {
        let (address, bytes) = self.workspace.map_or((0, 0), |memory| (memory.address(), memory.len() as u64));
        (address as *mut c_void, bytes, self.stream.as_raw())
    }

    /// Refuses arguments and a workspace in memory of another device than the context's.
    fn require(&self, verb: &str, context: &Context, arguments: &[(&str, Option<&Places>)]) -> Result<()> {
        require_places(verb, context, arguments)?;
        let mut own = Places::default();
        own.set("workspace", self.workspace.map(|memory| memory.place()));
        require_places(verb, context, &[("launch", Some(&own))])
    }
}

/// A verb of one input and one output, as the library has it.
type Unary = unsafe extern "C" fn(
    *mut sys::mxq_context,
    *const sys::mxq_quantize_options,
    *const sys::mxq_tensor,
    *const sys::mxq_tensor,
    *mut c_void,
    u64,
    *mut c_void,
) -> sys::mxq_status;

/// A product, as the library has it.
type Product = unsafe extern "C" fn(
    *mut sys::mxq_context,
    *const sys::mxq_gemm_options,
    *const sys::mxq_tensor,
    *const sys::mxq_tensor,
    *const sys::mxq_tensor,
    *mut c_void,
    u64,
    *mut c_void,
) -> sys::mxq_status;

unsafe fn unary(
    (verb, name): (Unary, &str),
    context: &Context,
    options: Option<&QuantizeOptions>,
    input: &Tensor,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    launch.require(name, context, places!["options": options, "in": Some(input), "out": Some(&*out)])?;
    let (workspace, bytes, stream) = launch.parts();
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    check(verb(context.as_raw(), options, input.as_raw(), out.as_raw(), workspace, bytes, stream))
}

unsafe fn product(
    (verb, name): (Product, &str),
    context: &Context,
    options: Option<&GemmOptions>,
    (a, b): (&Tensor, &Tensor),
    d: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    launch.require(name, context, places!["options": options, "a": Some(a), "b": Some(b), "d": Some(&*d)])?;
    let (workspace, bytes, stream) = launch.parts();
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    check(verb(context.as_raw(), options, a.as_raw(), b.as_raw(), d.as_raw(), workspace, bytes, stream))
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
    unary((sys::mxq_quantize, "mxq_quantize"), context, options, input, out, launch)
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
    unary((sys::mxq_requantize, "mxq_requantize"), context, options, input, out, launch)
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
    unary((sys::mxq_dequantize, "mxq_dequantize"), context, options, input, out, launch)
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
    unary((sys::mxq_amax, "mxq_amax"), context, options, input, out, launch)
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
    unary((sys::mxq_convert, "mxq_convert"), context, options, input, out, launch)
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
    unary((sys::mxq_pad_groups, "mxq_pad_groups"), context, options, input, out, launch)
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
    unary((sys::mxq_unpad_groups, "mxq_unpad_groups"), context, options, input, out, launch)
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
    unary((sys::mxq_swizzle_scales, "mxq_swizzle_scales"), context, options, input, out, launch)
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
    unary((sys::mxq_unswizzle_scales, "mxq_unswizzle_scales"), context, options, input, out, launch)
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
    product((sys::mxq_gemm, "mxq_gemm"), context, options, (a, b), d, launch)
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
    product((sys::mxq_grouped_gemm, "mxq_grouped_gemm"), context, options, (a, b), d, launch)
}

/// [`activate`](crate::activate) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn activate(
    context: &Context,
    options: Option<&ActivateOptions>,
    input: &Tensor,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    launch.require("mxq_activate", context, places!["options": options, "in": Some(input), "out": Some(&*out)])?;
    let (workspace, bytes, stream) = launch.parts();
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    check(sys::mxq_activate(context.as_raw(), options, input.as_raw(), out.as_raw(), workspace, bytes, stream))
}

/// [`activate_backward`](crate::activate_backward) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn activate_backward(
    context: &Context,
    options: Option<&mut ActivateOptions>,
    gradient: &Tensor,
    input: &Tensor,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let options = options.as_deref();
    let given = places!["options": options, "gradient": Some(gradient), "in": Some(input), "out": Some(&*out)];
    launch.require("mxq_activate_backward", context, given)?;
    let (workspace, bytes, stream) = launch.parts();
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let (gradient, input, out) = (gradient.as_raw(), input.as_raw(), out.as_raw());
    check(sys::mxq_activate_backward(context.as_raw(), options, gradient, input, out, workspace, bytes, stream))
}

/// [`route`](crate::route) on a stream: one launch, which reads nothing on the host.
///
/// # Safety
/// As the module says.
pub unsafe fn route(context: &Context, options: Option<&QuantizeOptions>, routing: &mut Routing, launch: Launch) -> Result<()> {
    launch.require("mxq_route", context, places!["routing": Some(&*routing)])?;
    let (workspace, bytes, stream) = launch.parts();
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    check(sys::mxq_route(context.as_raw(), options, routing.as_raw(), workspace, bytes, stream))
}

/// [`combine`](crate::combine) on a stream.
///
/// # Safety
/// As the module says.
pub unsafe fn combine(
    context: &Context,
    options: Option<&QuantizeOptions>,
    routing: &Routing,
    input: &Tensor,
    residual: Option<&Tensor>,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let given = places!["routing": Some(routing), "in": Some(input), "residual": residual, "out": Some(&*out)];
    launch.require("mxq_combine", context, given)?;
    let (workspace, bytes, stream) = launch.parts();
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let (routing, input, residual) = (routing.as_raw(), input.as_raw(), raw(residual));
    check(sys::mxq_combine(context.as_raw(), options, routing, input, residual, out.as_raw(), workspace, bytes, stream))
}

/// [`combine_backward`](crate::combine_backward) on a stream.
///
/// # Safety
/// As the module says.
#[allow(clippy::too_many_arguments)] // those of the library
pub unsafe fn combine_backward(
    context: &Context,
    options: Option<&QuantizeOptions>,
    routing: &Routing,
    d_out: &Tensor,
    input: Option<&Tensor>,
    d_in: Option<&mut Tensor>,
    d_weights: Option<&mut Tensor>,
    launch: Launch,
) -> Result<()> {
    let (d_in, d_weights) = (d_in.as_deref(), d_weights.as_deref());
    let given = places!["routing": Some(routing), "d_out": Some(d_out), "in": input, "d_in": d_in, "d_weights": d_weights];
    launch.require("mxq_combine_backward", context, given)?;
    let (workspace, bytes, stream) = launch.parts();
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    check(sys::mxq_combine_backward(
        context.as_raw(),
        options,
        routing.as_raw(),
        d_out.as_raw(),
        raw(input),
        raw(d_in),
        raw(d_weights),
        workspace,
        bytes,
        stream,
    ))
}

/// [`expert_layer`](crate::expert_layer) on a stream. A graph that captures it may be replayed with other ids and weights.
///
/// # Safety
/// As the module says.
#[allow(clippy::too_many_arguments)] // those of the library
pub unsafe fn expert_layer(
    context: &Context,
    options: Option<&ExpertLayerOptions>,
    x: &Tensor,
    routing: &mut Routing,
    gate_up: &Tensor,
    down: &Tensor,
    out: &mut Tensor,
    launch: Launch,
) -> Result<()> {
    let given = places![
        "options": options, "x": Some(x), "routing": Some(&*routing), "gate_up": Some(gate_up), "down": Some(down),
        "out": Some(&*out)
    ];
    launch.require("mxq_expert_layer", context, given)?;
    let (workspace, bytes, stream) = launch.parts();
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    check(sys::mxq_expert_layer(
        context.as_raw(),
        options,
        x.as_raw(),
        routing.as_raw(),
        gate_up.as_raw(),
        down.as_raw(),
        out.as_raw(),
        workspace,
        bytes,
        stream,
    ))
}

pub(crate) fn raw(tensor: Option<&Tensor>) -> *const sys::mxq_tensor {
    tensor.map_or(ptr::null(), |tensor| tensor.as_raw() as *const _)
}
