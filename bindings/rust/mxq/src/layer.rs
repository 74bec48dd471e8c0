//! The verbs of the expert layer on CPU contexts, and their queries on any context.
use crate::activate_options::ActivateOptions;
use crate::context::Context;
use crate::device::places;
use crate::error::Result;
use crate::expert_layer_options::ExpertLayerOptions;
use crate::launch::{self, raw, Launch};
use crate::options::QuantizeOptions;
use crate::plan::{plan, Plan};
use crate::routing::Routing;
use crate::tensor::Tensor;
use crate::verbs::ready;
use mxq_sys as sys;
use std::ptr;

/// Activates `input` into `out`, plain or quantized: (S, 2 I) to (S, I), or (S, I) to (S, I) without a gate. Experts are a first
/// dimension of both. An element is computed in fp32 and rounded once. Groups, which either may have, each have their own bias.
///
/// Refused: other shapes, groups with padding (but of a quantized `out`), an option that means nothing to the activation, and
/// gradients, which [`activate_backward`] writes.
pub fn activate(context: &Context, options: Option<&ActivateOptions>, input: &Tensor, out: &mut Tensor) -> Result<()> {
    ready(context, out)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::activate(context, options, input, out, Launch::NONE) }
}

/// How [`activate`] would run with these arguments.
pub fn activate_query(context: &Context, options: Option<&ActivateOptions>, input: &Tensor, out: &Tensor) -> Result<Plan> {
    let given = places!["options": options, "in": Some(input), "out": Some(out)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_activate_query", context, given, |plan| unsafe {
        sys::mxq_activate_query(context.as_raw(), options, input.as_raw(), out.as_raw(), plan)
    })
}

/// The gradients of gates and ups, (S, 2 I), from `gradient` (S, I), that of what [`activate`] makes of `input` with these
/// options. `out` is plain or quantized. The options also say where gradients of biases and of weights of rows go.
///
/// Refused: activations without a gate, and what [`activate`] refuses.
pub fn activate_backward(
    context: &Context,
    options: Option<&mut ActivateOptions>,
    gradient: &Tensor,
    input: &Tensor,
    out: &mut Tensor,
) -> Result<()> {
    ready(context, out)?;
    // SAFETY: descriptors and options borrow their buffers, options to write mutably, and the work of a CPU context is done
    // when the call returns.
    unsafe { launch::activate_backward(context, options, gradient, input, out, Launch::NONE) }
}

/// How [`activate_backward`] would run with these arguments.
pub fn activate_backward_query(
    context: &Context,
    options: Option<&ActivateOptions>,
    gradient: &Tensor,
    input: &Tensor,
    out: &Tensor,
) -> Result<Plan> {
    let given = places!["options": options, "gradient": Some(gradient), "in": Some(input), "out": Some(out)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let (gradient, input, out) = (gradient.as_raw(), input.as_raw(), out.as_raw());
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_activate_backward_query", context, given, |plan| unsafe {
        sys::mxq_activate_backward_query(context.as_raw(), options, gradient, input, out, plan)
    })
}

/// Fills the memory of a routing from its ids and weights. Options may only ask for an implementation.
///
/// Refused: a routing without ids or memory, computed arrays, and ids that are no expert and not -1.
pub fn route(context: &Context, options: Option<&QuantizeOptions>, routing: &mut Routing) -> Result<()> {
    context.synchronous()?;
    // SAFETY: the routing borrows its buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::route(context, options, routing, Launch::NONE) }
}

/// How [`route`] would run with these arguments.
pub fn route_query(context: &Context, options: Option<&QuantizeOptions>, routing: &Routing) -> Result<Plan> {
    let given = places!["options": options, "routing": Some(routing)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    // SAFETY: a query reads the routing and options alone, which are live.
    plan("mxq_route_query", context, given, |plan| unsafe {
        sys::mxq_route_query(context.as_raw(), options, routing.as_raw(), plan)
    })
}

/// Sums the rows of each token's choices: out\[t\] = residual\[t\] + the sum over j of weight\[t, j\] times the row of choice
/// (t, j). `input` is (T k, columns), `out` and `residual` (T, columns), all plain, of any types. Sums are in fp32, in order.
///
/// Refused: other shapes, and rows of choices that `input` does not have.
pub fn combine(
    context: &Context,
    options: Option<&QuantizeOptions>,
    routing: &Routing,
    input: &Tensor,
    residual: Option<&Tensor>,
    out: &mut Tensor,
) -> Result<()> {
    ready(context, out)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::combine(context, options, routing, input, residual, out, Launch::NONE) }
}

/// How [`combine`] would run with these arguments.
pub fn combine_query(
    context: &Context,
    options: Option<&QuantizeOptions>,
    routing: &Routing,
    input: &Tensor,
    residual: Option<&Tensor>,
    out: &Tensor,
) -> Result<Plan> {
    let given = places!["routing": Some(routing), "in": Some(input), "residual": residual, "out": Some(out)];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let (routing, input, out) = (routing.as_raw(), input.as_raw(), out.as_raw());
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_combine_query", context, given, |plan| unsafe {
        sys::mxq_combine_query(context.as_raw(), options, routing, input, raw(residual), out, plan)
    })
}

/// The gradients of [`combine`], from `d_out` (T, columns): `d_in` (T k, columns), weight\[t, j\] times d_out\[t\] in the row
/// of each choice, and `d_weights`, F32 (T, k), the product of d_out\[t\] with that row of `input`. Either may be left out, and
/// `input` is read for `d_weights` alone.
///
/// Refused: what [`combine`] refuses, and `d_weights` without `input`.
pub fn combine_backward(
    context: &Context,
    options: Option<&QuantizeOptions>,
    routing: &Routing,
    d_out: &Tensor,
    input: Option<&Tensor>,
    d_in: Option<&mut Tensor>,
    d_weights: Option<&mut Tensor>,
) -> Result<()> {
    context.synchronous()?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::combine_backward(context, options, routing, d_out, input, d_in, d_weights, Launch::NONE) }
}

/// How [`combine_backward`] would run with these arguments.
pub fn combine_backward_query(
    context: &Context,
    options: Option<&QuantizeOptions>,
    routing: &Routing,
    d_out: &Tensor,
    input: Option<&Tensor>,
    d_in: Option<&Tensor>,
    d_weights: Option<&Tensor>,
) -> Result<Plan> {
    let given = places!["routing": Some(routing), "d_out": Some(d_out), "in": input, "d_in": d_in, "d_weights": d_weights];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let (routing, d_out, input, d_in, d_weights) = (routing.as_raw(), d_out.as_raw(), raw(input), raw(d_in), raw(d_weights));
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_combine_backward_query", context, given, |plan| unsafe {
        sys::mxq_combine_backward_query(context.as_raw(), options, routing, d_out, input, d_in, d_weights, plan)
    })
}

/// Runs an expert layer, from tokens to tokens: route, product with `gate_up` (E, 2 I, K), activation, product with `down`
/// (E, K, I), weighted sum. `x` and `out` are plain, (T, K); the weights have any format. The bits are those of the single
/// verbs. Routings of computed arrays skip the first step.
///
/// ```
/// # fn main() -> mxq::Result<()> {
/// use mxq::{Context, Format, Memory, Routing, Tensor};
/// let (cpu, x, mut y) = (Context::cpu()?, [1f32; 2 * 4], [0f32; 2 * 4]);
/// let (w_gate_up, w_down) = ([0.5f32; 3 * 2 * 8 * 4], [0.25f32; 3 * 4 * 8]);
/// let mut memory = Memory::new(Routing::new(2, 1, 3)?.required_bytes()?);
/// let mut routing = Routing::new(2, 1, 3)?;
/// routing.set_ids(&[2, 0])?.set_memory(&mut memory)?;
/// let (mut tokens, mut out) = (Tensor::new(Format::F32, 2, 4)?, Tensor::new(Format::F32, 2, 4)?);
/// let (mut gate_up, mut down) = (Tensor::new_3d(Format::F32, 3, 16, 4)?, Tensor::new_3d(Format::F32, 3, 4, 8)?);
/// tokens.set_const_data(&x)?;
/// gate_up.set_const_data(&w_gate_up)?;
/// down.set_const_data(&w_down)?;
/// mxq::expert_layer(&cpu, None, &tokens, &mut routing, &gate_up, &down, out.set_data(&mut y)?)?;
/// assert!((y[0] - 7.05).abs() < 0.05); // 8 * 0.25 * silu(2) * 2
/// # Ok(()) }
/// ```
///
/// Refused: other shapes, experts of another number than the routing's, and what the single verbs refuse.
pub fn expert_layer(
    context: &Context,
    options: Option<&ExpertLayerOptions>,
    x: &Tensor,
    routing: &mut Routing,
    gate_up: &Tensor,
    down: &Tensor,
    out: &mut Tensor,
) -> Result<()> {
    ready(context, out)?;
    // SAFETY: descriptors and options borrow their buffers, and the work of a CPU context is done when the call returns.
    unsafe { launch::expert_layer(context, options, x, routing, gate_up, down, out, Launch::NONE) }
}

/// How [`expert_layer`] would run with these arguments: the implementation of each step, and the workspace of all.
pub fn expert_layer_query(
    context: &Context,
    options: Option<&ExpertLayerOptions>,
    x: &Tensor,
    routing: &Routing,
    gate_up: &Tensor,
    down: &Tensor,
    out: &Tensor,
) -> Result<Plan> {
    let given = places![
        "options": options, "x": Some(x), "routing": Some(routing), "gate_up": Some(gate_up), "down": Some(down),
        "out": Some(out)
    ];
    let options = options.map_or(ptr::null(), |options| options.as_raw() as *const _);
    let (x, routing, gate_up, down, out) = (x.as_raw(), routing.as_raw(), gate_up.as_raw(), down.as_raw(), out.as_raw());
    // SAFETY: a query reads descriptors and options alone, which are live.
    plan("mxq_expert_layer_query", context, given, |plan| unsafe {
        sys::mxq_expert_layer_query(context.as_raw(), options, x, routing, gate_up, down, out, plan)
    })
}
