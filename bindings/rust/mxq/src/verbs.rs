//! The verbs on CPU contexts, and what a query says of a call on any context.
use crate::context::Context;
use crate::device::places;
use crate::error::Result;
use crate::launch::{self, Launch};
use crate::options::{GemmOptions, QuantizeOptions};
use crate::plan::{plan, Plan};
use crate::tensor::Tensor;
use mxq_sys as sys;
use std::ptr;

/// Refuses what a safe verb may not do: work that goes on after the call, and writing to an amax that was borrowed to read.
pub(crate) fn ready(context: &Context, out: &Tensor) -> Result<()> {
    context.synchronous()?;
    out.require_amax_to_write()
}

/// Quantizes `input` into every declared part of `out`.
pub fn quantize(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &mut Tensor) -> Result<()> {
    ready(context, out)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::quantize(context, options, input, out, Launch::NONE) }
}

/// How [`quantize`] would run with these arguments.
pub fn quantize_query(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &Tensor) -> Result<Plan> {
    let given = places!["options": options, "in": Some(input), "out": Some(out)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_quantize_query", context, given, |raw| unsafe {
        sys::mxq_quantize_query(context.as_raw(), options, input.as_raw(), out.as_raw(), raw)
    })
}

/// Quantizes a quantized tensor to another format or other parts.
pub fn requantize(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &mut Tensor) -> Result<()> {
    ready(context, out)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::requantize(context, options, input, out, Launch::NONE) }
}

/// How [`requantize`] would run with these arguments.
pub fn requantize_query(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &Tensor) -> Result<Plan> {
    let given = places!["options": options, "in": Some(input), "out": Some(out)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_requantize_query", context, given, |raw| unsafe {
        sys::mxq_requantize_query(context.as_raw(), options, input.as_raw(), out.as_raw(), raw)
    })
}

/// Dequantizes `input` to a plain tensor.
pub fn dequantize(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &mut Tensor) -> Result<()> {
    ready(context, out)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::dequantize(context, options, input, out, Launch::NONE) }
}

/// How [`dequantize`] would run with these arguments.
pub fn dequantize_query(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &Tensor) -> Result<Plan> {
    let given = places!["options": options, "in": Some(input), "out": Some(out)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_dequantize_query", context, given, |raw| unsafe {
        sys::mxq_dequantize_query(context.as_raw(), options, input.as_raw(), out.as_raw(), raw)
    })
}

/// Writes the amax of `input` to that of `out`.
pub fn amax(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &mut Tensor) -> Result<()> {
    ready(context, out)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::amax(context, options, input, out, Launch::NONE) }
}

/// How [`amax`] would run with these arguments.
pub fn amax_query(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &Tensor) -> Result<Plan> {
    let given = places!["options": options, "in": Some(input), "out": Some(out)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_amax_query", context, given, |raw| unsafe {
        sys::mxq_amax_query(context.as_raw(), options, input.as_raw(), out.as_raw(), raw)
    })
}

/// Converts between plain formats.
pub fn convert(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &mut Tensor) -> Result<()> {
    ready(context, out)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::convert(context, options, input, out, Launch::NONE) }
}

/// How [`convert`] would run with these arguments.
pub fn convert_query(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &Tensor) -> Result<Plan> {
    let given = places!["options": options, "in": Some(input), "out": Some(out)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_convert_query", context, given, |raw| unsafe {
        sys::mxq_convert_query(context.as_raw(), options, input.as_raw(), out.as_raw(), raw)
    })
}

/// Copies groups of rows to a larger alignment.
pub fn pad_groups(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &mut Tensor) -> Result<()> {
    ready(context, out)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::pad_groups(context, options, input, out, Launch::NONE) }
}

/// How [`pad_groups`] would run with these arguments.
pub fn pad_groups_query(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &Tensor) -> Result<Plan> {
    let given = places!["options": options, "in": Some(input), "out": Some(out)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_pad_groups_query", context, given, |raw| unsafe {
        sys::mxq_pad_groups_query(context.as_raw(), options, input.as_raw(), out.as_raw(), raw)
    })
}

/// Copies groups of rows to a smaller alignment.
pub fn unpad_groups(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &mut Tensor) -> Result<()> {
    ready(context, out)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::unpad_groups(context, options, input, out, Launch::NONE) }
}

/// How [`unpad_groups`] would run with these arguments.
pub fn unpad_groups_query(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &Tensor) -> Result<Plan> {
    let given = places!["options": options, "in": Some(input), "out": Some(out)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_unpad_groups_query", context, given, |raw| unsafe {
        sys::mxq_unpad_groups_query(context.as_raw(), options, input.as_raw(), out.as_raw(), raw)
    })
}

/// Copies compact scales to the layout of block-scaled tensor cores.
pub fn swizzle_scales(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &mut Tensor) -> Result<()> {
    ready(context, out)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::swizzle_scales(context, options, input, out, Launch::NONE) }
}

/// How [`swizzle_scales`] would run with these arguments.
pub fn swizzle_scales_query(
    context: &Context,
    options: Option<&QuantizeOptions>,
    input: &Tensor,
    out: &Tensor,
) -> Result<Plan> {
    let given = places!["options": options, "in": Some(input), "out": Some(out)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_swizzle_scales_query", context, given, |raw| unsafe {
        sys::mxq_swizzle_scales_query(context.as_raw(), options, input.as_raw(), out.as_raw(), raw)
    })
}

/// Copies scales back to compact order.
pub fn unswizzle_scales(context: &Context, options: Option<&QuantizeOptions>, input: &Tensor, out: &mut Tensor) -> Result<()> {
    ready(context, out)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::unswizzle_scales(context, options, input, out, Launch::NONE) }
}

/// How [`unswizzle_scales`] would run with these arguments.
pub fn unswizzle_scales_query(
    context: &Context,
    options: Option<&QuantizeOptions>,
    input: &Tensor,
    out: &Tensor,
) -> Result<Plan> {
    let given = places!["options": options, "in": Some(input), "out": Some(out)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_unswizzle_scales_query", context, given, |raw| unsafe {
        sys::mxq_unswizzle_scales_query(context.as_raw(), options, input.as_raw(), out.as_raw(), raw)
    })
}

/// Multiplies: D = alpha op(A) op(B) + beta D + bias, by default D = A B^T.
pub fn gemm(context: &Context, options: Option<&GemmOptions>, a: &Tensor, b: &Tensor, d: &mut Tensor) -> Result<()> {
    ready(context, d)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::gemm(context, options, a, b, d, Launch::NONE) }
}

/// How [`gemm`] would run with these arguments.
pub fn gemm_query(context: &Context, options: Option<&GemmOptions>, a: &Tensor, b: &Tensor, d: &Tensor) -> Result<Plan> {
    let given = places!["options": options, "a": Some(a), "b": Some(b), "d": Some(d)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_gemm_query", context, given, |raw| unsafe {
        sys::mxq_gemm_query(context.as_raw(), options, a.as_raw(), b.as_raw(), d.as_raw(), raw)
    })
}

/// Multiplies once per group of rows.
pub fn grouped_gemm(context: &Context, options: Option<&GemmOptions>, a: &Tensor, b: &Tensor, d: &mut Tensor) -> Result<()> {
    ready(context, d)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::grouped_gemm(context, options, a, b, d, Launch::NONE) }
}

/// How [`grouped_gemm`] would run with these arguments.
pub fn grouped_gemm_query(
    context: &Context,
    options: Option<&GemmOptions>,
    a: &Tensor,
    b: &Tensor,
    d: &Tensor,
) -> Result<Plan> {
    let given = places!["options": options, "a": Some(a), "b": Some(b), "d": Some(d)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_grouped_gemm_query", context, given, |raw| unsafe {
        sys::mxq_grouped_gemm_query(context.as_raw(), options, a.as_raw(), b.as_raw(), d.as_raw(), raw)
    })
}
