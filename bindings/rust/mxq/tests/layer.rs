//! Routing, rows by index, activation, combine and the expert layer, on the CPU, against plain loops of this file.
mod common;

use common::numbers;
use mxq::*;

fn message<T>(result: Result<T>) -> String {
    result.err().map_or("no error".to_owned(), |error| error.to_string())
}

/// Experts of choices; about one in `experts` + 1 is dropped.
fn draw_ids(count: usize, experts: usize, seed: u32) -> Vec<i32> {
    numbers(count, seed).iter().map(|x| ((x + 1.0) / 2.0 * (experts + 1) as f32) as i32 - 1).collect()
}

fn matrix<'a>(format: Format, rows: usize, cols: usize) -> Result<Tensor<'a>> {
    Tensor::new(format, rows as i64, cols as i64)
}

fn f32_of(data: &[f32], rows: usize, cols: usize) -> Result<Tensor<'_>> {
    let mut tensor = matrix(Format::F32, rows, cols)?;
    tensor.set_const_data(data)?;
    Ok(tensor)
}

fn f32_to(data: &mut [f32], rows: usize, cols: usize) -> Result<Tensor<'_>> {
    let mut tensor = matrix(Format::F32, rows, cols)?;
    tensor.set_data(data)?;
    Ok(tensor)
}

/// Ends, tokens of rows and rows of choices, for experts from `first` on.
fn routed(ids: &[i32], choices: usize, first: i32, count: i32) -> (Vec<i32>, Vec<i32>, Vec<i32>) {
    let (mut ends, mut row_tokens, mut choice_rows) = (vec![], vec![], vec![-1; ids.len()]);
    for expert in first..first + count {
        for (choice, id) in ids.iter().enumerate().filter(|(_, id)| **id == expert) {
            assert_eq!(*id, expert);
            choice_rows[choice] = row_tokens.len() as i32;
            row_tokens.push((choice / choices) as i32);
        }
        ends.push(row_tokens.len() as i32);
    }
    row_tokens.resize(ids.len(), -1);
    (ends, row_tokens, choice_rows)
}

#[test]
fn a_routing_sorts_choices_by_expert() -> Result<()> {
    let cpu = Context::cpu()?;
    for (tokens, choices, experts, local) in
        [(7, 2, 5, None), (33, 4, 16, Some((3, 5))), (1, 1, 1, None), (0, 3, 4, None), (5, 1, 4096, Some((4095, 1)))]
    {
        let ids = draw_ids(tokens * choices, experts, 3);
        let wide: Vec<i64> = ids.iter().map(|id| (*id).into()).collect();
        let weights = numbers(tokens * choices, 4);
        let (first, count) = local.unwrap_or((0, experts as i32));
        let (ends, row_tokens, choice_rows) = routed(&ids, choices, first, count);
        for is_wide in [false, true] {
            let mut routing = Routing::new(tokens as i64, choices as i32, experts as i32)?;
            if let Some((first, count)) = local {
                routing.set_local_experts(first, count)?;
            }
            let (mut memory, mut dropped) = (Memory::new(routing.required_bytes()?), [7]);
            routing.set_weights(Format::F32, &weights)?.set_memory(&mut memory)?.set_dropped(&mut dropped)?;
            if is_wide {
                routing.set_ids(&wide)?
            } else {
                routing.set_ids(&ids)?
            };
            assert_eq!(route_query(&cpu, None, &routing)?.implementation, "cpu");
            route(&cpu, None, &mut routing)?;
            assert_eq!((routing.ends()?, routing.row_tokens()?), (&ends[..], &row_tokens[..]));
            assert_eq!(routing.choice_rows()?, choice_rows);
            for (choice, row) in choice_rows.iter().enumerate().filter(|(_, row)| **row >= 0) {
                assert_eq!(routing.row_weights()?[*row as usize], weights[choice]);
            }
            assert_eq!(routing.shape()?, (tokens as i64, choices as i32, experts as i32));
            assert_eq!(dropped, [0]);
        }
    }
    Ok(())
}

#[test]
fn a_routing_refuses_what_the_library_refuses() -> Result<()> {
    let cpu = Context::cpu()?;
    assert!(message(Routing::new(4, 2, 4097)).contains("experts is 4097, expected 1 to 4096"));
    assert!(message(Routing::new(-1, 2, 4)).contains("tokens is -1"));
    let (ids, short, wrong, weights) = ([0, 1, 2, 3], [0, 1, 2], [0, 1, 4, 3], [1f32; 4]);
    let halves = [0u16; 4];
    let mut routing = Routing::new(2, 2, 4)?;
    assert!(message(routing.set_ids(&short).map(drop)).contains("bytes of ids is 12, expected exactly 16"));
    assert!(message(routing.set_weights(Format::F32, &halves).map(drop)).contains("weights has elements of u16 (2 bytes)"));
    assert!(message(routing.set_weights(Format::F16, &halves).map(drop)).contains("expected MXQ_FORMAT_F32 (1) or"));
    assert!(message(routing.set_local_experts(2, 3).map(drop)).starts_with("InvalidArgument: mxq_routing_set_local_experts"));
    assert!(message(route(&cpu, None, routing.set_weights(Format::F32, &weights)?)).contains("ids"));
    let mut memory = Memory::new(routing.required_bytes()? + 256);
    assert!(message(Routing::new(2, 2, 4)?.set_memory(&mut memory[4..]).map(drop)).starts_with("Misaligned"));
    assert!(message(Routing::new(2, 2, 4)?.set_memory(&mut memory[..256]).map(drop)).starts_with("BufferTooSmall"));
    assert!(message(route(&cpu, None, routing.set_ids(&ids)?)).starts_with("MissingBuffer"));
    routing.set_ids(&wrong)?.set_memory(&mut memory)?;
    let said = message(route(&cpu, None, &mut routing));
    assert!(said.contains("[2] is 4, expected"), "{said}");
    let mut options = QuantizeOptions::new()?;
    options.set_amax_epsilon(1.0)?;
    assert!(message(route(&cpu, Some(&options), &mut routing)).starts_with("InvalidArgument"));

    let (ends, row_tokens, choice_rows) = routed(&ids, 2, 0, 4);
    routing.set_computed(&ends, &row_tokens, &choice_rows, None::<&[f32]>)?;
    assert_eq!((routing.ends()?, routing.row_weights()?), (&ends[..], &[][..]));
    assert!(message(route(&cpu, None, &mut routing)).contains("has arrays that another library computed"));
    let none: Option<&[f32]> = None;
    assert!(message(routing.set_computed(&ends[1..], &row_tokens, &choice_rows, none).map(drop)).contains("ends is 12"));
    assert!(Routing::new(2, 2, 4)?.ends()?.is_empty());
    Ok(())
}

#[test]
fn rows_by_index_are_read_where_they_are() -> Result<()> {
    let cpu = Context::cpu()?;
    let (x, indices) = (numbers(5 * 64, 1), [4i64, -1, 0, 4, 2, 1]);
    let mut gathered = vec![0f32; 6 * 64];
    for (row, index) in indices.iter().enumerate().filter(|(_, index)| **index >= 0) {
        gathered[row * 64..][..64].copy_from_slice(&x[*index as usize * 64..][..64]);
    }
    let expected = Quantized::new(&cpu, Format::Mxfp8E4m3, &gathered, 6, 64)?;
    let mut input = f32_of(&x, 6, 64)?;
    input.set_row_indices(&indices, 5)?;
    let (mut codes, mut scales) = (vec![0u8; 6 * 64], vec![0u8; 12]);
    let mut out = matrix(Format::Mxfp8E4m3, 6, 64)?;
    quantize(&cpu, None, &input, out.set_part(Part::Rowwise, &mut codes, &mut scales)?)?;
    assert_eq!((&codes[..], Some(&scales[..])), (expected.codes(), expected.scale_bytes()));
    let mut copy = vec![0f32; 6 * 64];
    convert(&cpu, None, &input, &mut f32_to(&mut copy, 6, 64)?)?;
    assert_eq!(copy, gathered);

    let said = message(f32_of(&x, 6, 64)?.set_row_indices(&indices[1..], 5).map(drop));
    assert!(said.contains("bytes is 40, expected exactly 48"), "{said}");
    let wrong = [0i32, 1, 2, 5, 0, 0];
    let mut input = f32_of(&x, 6, 64)?;
    let said = message(convert(&cpu, None, input.set_row_indices(&wrong, 5)?, &mut f32_to(&mut copy, 6, 64)?));
    assert!(said.starts_with("InvalidArgument: mxq_convert: ") && said.contains("[3] is 5"), "{said}");
    let said = message(matrix(Format::Mxfp4, 6, 64)?.set_row_indices(&wrong, 5).map(drop));
    assert!(said.contains("expected f32, f16 or bf16, whose rows may be given by index"), "{said}");
    let said = message(Tensor::new_3d(Format::F32, 1, 6, 64)?.set_row_indices(&wrong, 5).map(drop));
    assert!(said.contains("tensor has 3 dimensions, expected 2"), "{said}");
    let mut sizes = matrix(Format::F32, 6, 64)?;
    assert_eq!(sizes.declare_row_indices(Type::Int32, 3)?.required_bytes(Part::Rowwise)?, (3 * 64 * 4, 0));
    Ok(())
}

#[test]
fn a_bound_descriptor_has_no_indices_of_an_earlier_call() -> Result<()> {
    let cpu = Context::cpu()?;
    let (x, mut copy) = (numbers(2 * 4, 1), vec![0f32; 3 * 4]);
    let mut kept = matrix(Format::F32, 3, 4)?.unbind();
    {
        let indices = [1i32, 0, 1];
        let mut first = kept.bind()?;
        first.set_const_data(&x)?.set_row_indices(&indices, 2)?;
        convert(&cpu, None, &first, &mut f32_to(&mut copy, 3, 4)?)?;
        std::mem::forget(first); // nothing is done when it goes
    }
    assert_eq!(copy, [&x[4..], &x[..4], &x[4..]].concat());
    let mut second = kept.bind()?;
    second.set_const_data(&x)?;
    let said = message(convert(&cpu, None, &second, &mut f32_to(&mut copy, 3, 4)?));
    assert!(said.starts_with("MissingBuffer"), "{said}");
    Ok(())
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn activations_of_groups_with_biases_and_weights() -> Result<()> {
    let cpu = Context::cpu()?;
    let (rows, inner, ends) = (5, 32, [2i32, 5]);
    let (x, bias, weights) = (numbers(rows * 64, 1), numbers(2 * 64, 2), numbers(rows, 3));
    for layout in [GateLayout::GateUp, GateLayout::UpGate, GateLayout::InterleavedGateUp, GateLayout::InterleavedUpGate] {
        let mut options = ActivateOptions::new()?;
        options.set_gate_layout(layout)?.set_bias(Format::F32, &bias)?.set_row_weights(Format::F32, &weights)?;
        let (mut input, mut values) = (f32_of(&x, rows, 64)?, vec![0f32; rows * inner]);
        activate(&cpu, Some(&options), input.set_groups(&ends)?, &mut f32_to(&mut values, rows, inner)?)?;
        for (i, value) in values.iter().enumerate() {
            let (row, col) = (i / inner, i % inner);
            let (gate, up) = match layout {
                GateLayout::GateUp => (col, col + inner),
                GateLayout::UpGate => (col + inner, col),
                GateLayout::InterleavedGateUp => (2 * col, 2 * col + 1),
                _ => (2 * col + 1, 2 * col),
            };
            let at = |column: usize| (x[row * 64 + column] + bias[usize::from(row >= 2) * 64 + column]) as f64;
            let expected = at(gate) * sigmoid(at(gate)) * at(up) * weights[row] as f64;
            assert!((*value as f64 - expected).abs() < 1e-6, "{layout:?} {row} {col}: {value} {expected}");
        }
        let expected = Quantized::new(&cpu, Format::Mxfp8E4m3, &values, rows, inner)?;
        let (mut codes, mut scales) = (vec![0u8; rows * inner], vec![0u8; rows]);
        let mut out = matrix(Format::Mxfp8E4m3, rows, inner)?;
        out.set_groups(&ends)?;
        activate(&cpu, Some(&options), &input, out.set_part(Part::Rowwise, &mut codes, &mut scales)?)?;
        assert_eq!((&codes[..], Some(&scales[..])), (expected.codes(), expected.scale_bytes()));
    }
    Ok(())
}

#[test]
fn activations_by_their_formulas() -> Result<()> {
    let cpu = Context::cpu()?;
    let x: Vec<f32> = numbers(64, 9).iter().map(|x| 10.0 * x).collect();
    let mut clamped = ActivateOptions::new()?;
    clamped.set_activation(Activation::SwigluClamped)?.set_clamp(1.5, 4.0, 0.5)?;
    let mut values = [0f32; 32];
    activate(&cpu, Some(&clamped), &f32_of(&x, 1, 64)?, &mut f32_to(&mut values, 1, 32)?)?;
    for (i, value) in values.iter().enumerate() {
        let (g, u) = (x[i].min(4.0) as f64, x[i + 32].clamp(-4.0, 4.0) as f64);
        assert!((*value as f64 - g * sigmoid(1.5 * g) * (u + 0.5)).abs() < 1e-5);
    }
    let relu = |x: f32| x.max(0.0) * x.max(0.0);
    let silu = |x: f32| (x as f64 * sigmoid(x as f64)) as f32;
    let formulas: [(Activation, &dyn Fn(f32) -> f32); 2] = [(Activation::SquaredRelu, &relu), (Activation::Silu, &silu)];
    for (activation, formula) in formulas {
        let (mut options, mut values) = (ActivateOptions::new()?, [0f32; 64]);
        options.set_activation(activation)?;
        activate(&cpu, Some(&options), &f32_of(&x, 2, 32)?, &mut f32_to(&mut values, 2, 32)?)?;
        assert!(values.iter().zip(&x).all(|(value, x)| (value - formula(*x)).abs() <= 1e-5), "{activation:?}");
    }
    Ok(())
}

#[test]
fn activations_refuse_what_the_library_refuses() -> Result<()> {
    let cpu = Context::cpu()?;
    let (x, mut values, mut gradient) = (numbers(128, 1), vec![0f32; 64], vec![0f32; 64]);
    let (input, mut out) = (f32_of(&x, 2, 64)?, f32_to(&mut values, 2, 32)?);
    let mut narrow = vec![0f32; 62];
    assert!(message(activate(&cpu, None, &input, &mut f32_to(&mut narrow, 2, 31)?)).starts_with("ShapeMismatch"));
    let mut options = ActivateOptions::new()?;
    assert!(message(options.set_bias(Format::Bf16, &x).map(drop)).contains("bias has elements of f32 (4 bytes), expected u16"));
    assert!(message(options.set_row_weights(Format::F16, &x).map(drop)).contains("row_weights has elements of f32"));
    assert!(message(options.set_clamp(f32::NAN, 1.0, 1.0).map(drop)).starts_with("InvalidArgument"));
    options.set_bias(Format::F32, &x[..63])?;
    assert!(message(activate(&cpu, Some(&options), &input, &mut out)).starts_with("BufferTooSmall"));
    let mut options = ActivateOptions::new()?;
    options.set_activation(Activation::Silu)?.set_gate_layout(GateLayout::UpGate)?;
    let (mut wide, mut same) = (vec![0f32; 128], ActivateOptions::new()?);
    assert!(message(activate(&cpu, Some(&options), &input, &mut f32_to(&mut wide, 2, 64)?)).contains("gate"));
    same.set_bias_gradient(&mut gradient)?;
    let said = message(activate(&cpu, Some(&same), &input, &mut out));
    assert!(said.contains("options sets the gradient of a bias, which only activate_backward writes"), "{said}");
    let mut rounding = QuantizeOptions::new()?;
    rounding.set_scale_rounding(ScaleRounding::Floor)?;
    let mut options = ActivateOptions::new()?;
    options.set_quantize_options(&rounding)?;
    assert!(message(activate(&cpu, Some(&options), &input, &mut out)).starts_with("InvalidArgument"));
    let mut named = ActivateOptions::new()?;
    named.set_implementation("none of these")?;
    assert!(message(activate_query(&cpu, Some(&named), &input, &out)).contains("none of these"));
    Ok(())
}

#[test]
fn gradients_of_activations() -> Result<()> {
    let cpu = Context::cpu()?;
    let (x, d, weights) = (numbers(3 * 8, 1), numbers(3 * 4, 2), numbers(3, 3));
    let (mut gradients, mut of_bias, mut of_weights) = (vec![0f32; 3 * 8], vec![0f32; 8], vec![0f32; 3]);
    let mut options = ActivateOptions::new()?;
    options.set_row_weights(Format::F32, &weights)?;
    options.set_bias_gradient(&mut of_bias)?.set_row_weight_gradient(&mut of_weights)?;
    let (from, input) = (f32_of(&d, 3, 4)?, f32_of(&x, 3, 8)?);
    let mut out = f32_to(&mut gradients, 3, 8)?;
    assert_eq!(activate_backward_query(&cpu, Some(&options), &from, &input, &out)?.workspace_bytes, 0);
    activate_backward(&cpu, Some(&mut options), &from, &input, &mut out)?;
    let near = |value: f32, expected: f64| assert!((value as f64 - expected).abs() < 1e-5, "{value} {expected}");
    for row in 0..3 {
        let mut of_weight = 0.0;
        for col in 0..4 {
            let (g, u, d) = (x[row * 8 + col] as f64, x[row * 8 + col + 4] as f64, d[row * 4 + col] as f64);
            let (s, w) = (sigmoid(g), weights[row] as f64);
            near(gradients[row * 8 + col], w * d * u * s * (1.0 + g * (1.0 - s)));
            near(gradients[row * 8 + col + 4], w * d * g * s);
            of_weight += d * g * s * u;
        }
        near(of_weights[row], of_weight);
    }
    (0..8).for_each(|col| near(of_bias[col], (0..3).map(|row| gradients[row * 8 + col] as f64).sum()));
    let mut silu = ActivateOptions::new()?;
    silu.set_activation(Activation::Silu)?;
    let said = message(activate_backward(&cpu, Some(&mut silu), &from, &input, &mut f32_to(&mut gradients, 3, 8)?));
    assert!(said.starts_with("Unsupported"), "{said}");
    Ok(())
}

#[test]
fn sums_of_choices_and_their_gradients() -> Result<()> {
    let cpu = Context::cpu()?;
    let (tokens, cols) = (6, 40);
    let (ids, weights) = (draw_ids(2 * tokens, 3, 5), numbers(2 * tokens, 6));
    let mut routing = Routing::new(tokens as i64, 2, 3)?;
    let mut memory = Memory::new(routing.required_bytes()?);
    routing.set_ids(&ids)?.set_weights(Format::F32, &weights)?.set_memory(&mut memory)?;
    route(&cpu, None, &mut routing)?;
    let rows = routing.choice_rows()?.to_vec();
    assert!(rows.contains(&-1));
    let (x, residual, d) = (numbers(12 * cols, 7), numbers(tokens * cols, 8), numbers(tokens * cols, 9));
    let input = f32_of(&x, 12, cols)?;
    for starts_at in [None, Some(f32_of(&residual, tokens, cols)?)] {
        let mut sums = vec![0f32; tokens * cols];
        let mut out = f32_to(&mut sums, tokens, cols)?;
        assert_eq!(combine_query(&cpu, None, &routing, &input, starts_at.as_ref(), &out)?.implementation, "cpu");
        combine(&cpu, None, &routing, &input, starts_at.as_ref(), &mut out)?;
        for (i, sum) in sums.iter().enumerate() {
            let (token, col) = (i / cols, i % cols);
            let mut expected = if starts_at.is_some() { residual[i] } else { 0.0 };
            for choice in (2 * token..2 * token + 2).filter(|choice| rows[*choice] >= 0) {
                expected += weights[choice] * x[rows[choice] as usize * cols + col];
            }
            assert_eq!(*sum, expected);
        }
    }

    let d_out = f32_of(&d, tokens, cols)?;
    let (mut d_x, mut d_weights) = (vec![0f32; 12 * cols], vec![9f32; 2 * tokens]);
    let (mut d_in, mut d_w) = (f32_to(&mut d_x, 12, cols)?, f32_to(&mut d_weights, tokens, 2)?);
    combine_backward_query(&cpu, None, &routing, &d_out, Some(&input), Some(&d_in), Some(&d_w))?;
    combine_backward(&cpu, None, &routing, &d_out, Some(&input), Some(&mut d_in), Some(&mut d_w))?;
    for (choice, row) in rows.iter().enumerate() {
        let (token, row) = (choice / 2, *row);
        let expected: f64 = match row {
            -1 => 0.0,
            _ => (0..cols).map(|col| d[token * cols + col] as f64 * x[row as usize * cols + col] as f64).sum(),
        };
        assert!((d_weights[choice] as f64 - expected).abs() < 1e-5);
        let is_right = |col: usize| d_x[row as usize * cols + col] == weights[choice] * d[token * cols + col];
        assert!(row < 0 || (0..cols).all(is_right));
    }

    let said = message(combine_backward(&cpu, None, &routing, &d_out, None, None, Some(&mut f32_to(&mut d_weights, 6, 2)?)));
    assert!(said.contains("mxq_combine_backward: in is NULL"), "{said}");
    let mut sums = vec![0f32; tokens * cols];
    let said = message(combine(&cpu, None, &routing, &f32_of(&x, 11, cols)?, None, &mut f32_to(&mut sums, tokens, cols)?));
    assert!(said.starts_with("ShapeMismatch: mxq_combine: in is 11 x 40"), "{said}");
    let mut halves = vec![0u16; tokens * cols];
    let mut quantized = matrix(Format::Mxfp4, tokens, cols)?;
    quantized.declare_part(Part::Rowwise)?;
    assert!(combine(&cpu, None, &routing, &input, None, &mut quantized).is_err());
    combine(&cpu, None, &routing, &input, None, matrix(Format::Bf16, tokens, cols)?.set_data(&mut halves)?)?;
    let (ends, tokens_of_rows, wrong) = ([4, 8, 12], [0; 12], [12; 12]);
    let mut outside = Routing::new(6, 2, 3)?;
    outside.set_computed(&ends, &tokens_of_rows, &wrong, None::<&[f32]>)?;
    let said = message(combine(&cpu, None, &outside, &input, None, &mut f32_to(&mut sums, tokens, cols)?));
    assert!(said.contains("routing.choice_rows[0] is 12, expected -1 (dropped) to 11"), "{said}");
    Ok(())
}

const TOKENS: usize = 9;
const WIDTH: usize = 64;
const INNER: usize = 96;
const EXPERTS: usize = 4;

/// Weights of experts in MXFP4, with memory of their own.
struct Weights([Memory; 2]);

impl Weights {
    fn new(cpu: &Context) -> Result<Weights> {
        let mut made = [Memory::new(0), Memory::new(0)];
        for (index, ((rows, cols), memory)) in [(2 * INNER, WIDTH), (WIDTH, INNER)].into_iter().zip(&mut made).enumerate() {
            let values = numbers(EXPERTS * rows * cols, index as u32);
            let mut plain = Tensor::new_3d(Format::F32, EXPERTS as i64, rows as i64, cols as i64)?;
            plain.set_const_data(&values)?;
            let mut out = Tensor::new_3d(Format::Mxfp4, EXPERTS as i64, rows as i64, cols as i64)?;
            *memory = Memory::new(out.total_bytes(Part::Rowwise)?);
            quantize(cpu, None, &plain, out.set_memory(Part::Rowwise, memory)?)?;
        }
        Ok(Weights(made))
    }

    fn tensors(&mut self) -> Result<(Tensor<'_>, Tensor<'_>)> {
        let [first, second] = &mut self.0;
        let mut gate_up = Tensor::new_3d(Format::Mxfp4, EXPERTS as i64, 2 * INNER as i64, WIDTH as i64)?;
        let mut down = Tensor::new_3d(Format::Mxfp4, EXPERTS as i64, WIDTH as i64, INNER as i64)?;
        gate_up.set_memory(Part::Rowwise, first)?;
        down.set_memory(Part::Rowwise, second)?;
        Ok((gate_up, down))
    }
}

#[test]
fn the_layer_has_the_bits_of_the_single_verbs() -> Result<()> {
    let cpu = Context::cpu()?;
    let mut kept = Weights::new(&cpu)?;
    let (gate_up, down) = kept.tensors()?;
    let rows = 2 * TOKENS;
    let (x, residual) = (numbers(TOKENS * WIDTH, 1), numbers(TOKENS * WIDTH, 2));
    let (ids, weights) = (draw_ids(rows, EXPERTS, 3), numbers(rows, 4));
    let biases = [numbers(EXPERTS * 2 * INNER, 5), numbers(EXPERTS * WIDTH, 6)];
    let (input, start) = (f32_of(&x, TOKENS, WIDTH)?, f32_of(&residual, TOKENS, WIDTH)?);
    let mut routing = Routing::new(TOKENS as i64, 2, EXPERTS as i32)?;
    let mut memory = Memory::new(routing.required_bytes()?);
    routing.set_ids(&ids)?.set_weights(Format::F32, &weights)?.set_memory(&mut memory)?;

    let mut clamp = ActivateOptions::new()?;
    clamp.set_activation(Activation::SwigluClamped)?.set_clamp(1.0, 3.0, 0.0)?;
    let mut options = ExpertLayerOptions::new()?;
    options.set_activate_options(&clamp)?.set_inner_format(Format::F32)?.set_residual(&start)?.set_exact_products(true)?;
    options.set_gate_up_bias(Format::F32, &biases[0])?.set_down_bias(Format::F32, &biases[1])?;
    options.set_row_format(Format::Mxfp8E4m3, Scaling::None)?.set_weights_first(true)?;
    let mut by_one_call = vec![0f32; TOKENS * WIDTH];
    let mut out = f32_to(&mut by_one_call, TOKENS, WIDTH)?;
    let plan = expert_layer_query(&cpu, Some(&options), &input, &routing, &gate_up, &down, &out)?;
    assert_eq!((&plan.implementation[..], plan.workspace_bytes), ("cpu, cpu, cpu, cpu, cpu, cpu", 0));
    assert_eq!(plan.bound, Bound::ExactProducts);
    expert_layer(&cpu, Some(&options), &input, &mut routing, &gate_up, &down, &mut out)?;

    let mut tokens = f32_of(&x, rows, WIDTH)?;
    tokens.set_routing_rows(&routing)?;
    let quantized = |cols: usize| -> Result<Tensor> {
        let mut tensor = matrix(Format::Mxfp8E4m3, rows, cols)?;
        tensor.set_routing_groups(&routing)?;
        Ok(tensor)
    };
    let (mut qx, mut qa) = (quantized(WIDTH)?, quantized(INNER)?);
    let mut blocks = [Memory::new(qx.total_bytes(Part::Rowwise)?), Memory::new(qa.total_bytes(Part::Rowwise)?)];
    let [first, second] = &mut blocks;
    qx.set_memory(Part::Rowwise, first)?;
    qa.set_memory(Part::Rowwise, second)?;
    let (mut hidden, mut products) = (vec![0f32; rows * 2 * INNER], vec![0f32; rows * WIDTH]);
    let (mut h, mut p) = (f32_to(&mut hidden, rows, 2 * INNER)?, f32_to(&mut products, rows, WIDTH)?);
    h.set_routing_groups(&routing)?;
    let row_weights = routing.row_weights()?;
    clamp.set_row_weights(Format::F32, row_weights)?;
    quantize(&cpu, None, &tokens, &mut qx)?;
    let (mut of_first, mut of_second) = (GemmOptions::new()?, GemmOptions::new()?);
    grouped_gemm(&cpu, Some(of_first.set_bias(Format::F32, &biases[0])?), &qx, &gate_up, &mut h)?;
    activate(&cpu, Some(&clamp), &h, &mut qa)?;
    grouped_gemm(&cpu, Some(of_second.set_bias(Format::F32, &biases[1])?), &qa, &down, &mut p)?;
    let mut unweighted = Routing::new(TOKENS as i64, 2, EXPERTS as i32)?;
    unweighted.set_computed(routing.ends()?, routing.row_tokens()?, routing.choice_rows()?, None::<&[f32]>)?;
    let mut by_verbs = vec![0f32; TOKENS * WIDTH];
    combine(&cpu, None, &unweighted, &p, Some(&start), &mut f32_to(&mut by_verbs, TOKENS, WIDTH)?)?;
    assert_eq!(by_verbs, by_one_call);
    assert!(by_verbs.iter().any(|sum| sum.abs() > 1.0));
    Ok(())
}

#[test]
fn a_token_has_the_same_bits_alone() -> Result<()> {
    let cpu = Context::cpu()?;
    let mut kept = Weights::new(&cpu)?;
    let (gate_up, down) = kept.tensors()?;
    let (x, ids) = (numbers(TOKENS * WIDTH, 1), draw_ids(2 * TOKENS, EXPERTS, 3));
    let mut options = ExpertLayerOptions::new()?;
    options.set_row_invariant(true)?;
    let run = |x: &[f32], ids: &[i32]| -> Result<Vec<f32>> {
        let tokens = ids.len() / 2;
        let mut routing = Routing::new(tokens as i64, 2, EXPERTS as i32)?;
        let (mut memory, mut sums) = (Memory::new(routing.required_bytes()?), vec![0f32; tokens * WIDTH]);
        routing.set_ids(ids)?.set_memory(&mut memory)?;
        let (input, mut out) = (f32_of(x, tokens, WIDTH)?, f32_to(&mut sums, tokens, WIDTH)?);
        expert_layer(&cpu, Some(&options), &input, &mut routing, &gate_up, &down, &mut out)?;
        Ok(sums)
    };
    let all = run(&x, &ids)?;
    for token in 0..TOKENS {
        let alone = run(&x[token * WIDTH..][..WIDTH], &ids[2 * token..][..2])?;
        assert_eq!(alone, all[token * WIDTH..][..WIDTH]);
    }
    Ok(())
}

#[test]
fn the_layer_refuses_what_the_library_refuses() -> Result<()> {
    let cpu = Context::cpu()?;
    let mut kept = Weights::new(&cpu)?;
    let (gate_up, down) = kept.tensors()?;
    let (x, ids, mut sums) = (numbers(2 * WIDTH, 1), [0, 1], vec![0f32; 2 * WIDTH]);
    let mut routing = Routing::new(2, 1, EXPERTS as i32)?;
    let mut memory = Memory::new(routing.required_bytes()?);
    routing.set_ids(&ids)?.set_memory(&mut memory)?;
    let (input, mut out) = (f32_of(&x, 2, WIDTH)?, f32_to(&mut sums, 2, WIDTH)?);
    let said = message(expert_layer(&cpu, None, &input, &mut routing, &down, &gate_up, &mut out));
    assert!(said.starts_with("ShapeMismatch: mxq_expert_layer: gate_up is"), "{said}");
    let mut other = Routing::new(2, 1, 5)?;
    let mut more = Memory::new(other.required_bytes()?);
    other.set_ids(&ids)?.set_memory(&mut more)?;
    let said = message(expert_layer(&cpu, None, &input, &mut other, &gate_up, &down, &mut out));
    assert!(said.starts_with("ShapeMismatch"), "{said}");
    let mut read_only = f32_of(&x, 2, WIDTH)?;
    let said = message(expert_layer(&cpu, None, &input, &mut routing, &gate_up, &down, &mut read_only));
    assert!(said.starts_with("InvalidArgument"), "{said}");

    let (mut options, weights) = (ExpertLayerOptions::new()?, [1f32; 2]);
    assert!(message(options.set_inner_format(Format::Mxfp4).map(drop)).contains("expected MXQ_FORMAT_F32 (1)"));
    assert!(message(options.set_row_format(Format::Bf16, Scaling::None).map(drop)).contains("expected a quantized format"));
    assert!(message(options.set_row_format(Format::Mxfp4, Scaling::Block1x16).map(drop)).contains("scaling is 5"));
    assert!(message(options.set_down_bias(Format::Bf16, &x).map(drop)).contains("down_bias has elements of f32"));
    let mut of_rows = ActivateOptions::new()?;
    of_rows.set_row_weights(Format::F32, &weights)?;
    assert!(message(options.set_activate_options(&of_rows).map(drop)).contains("activate has row weights"));
    let mut given = QuantizeOptions::new()?;
    given.set_source_part(Part::Rowwise)?;
    assert!(message(options.set_quantize_options(&given).map(drop)).contains("source part"));
    let mut gradient = vec![0f32; 4 * 2 * INNER];
    let mut backward = ActivateOptions::new()?;
    backward.set_bias_gradient(&mut gradient)?;
    options.set_activate_options(&backward)?;
    let said = message(expert_layer(&cpu, Some(&options), &input, &mut routing, &gate_up, &down, &mut out));
    assert!(said.contains("which only activate_backward writes"), "{said}");
    let mut list = Tensor::new_3d(Format::F32, 1, 2, WIDTH as i64)?;
    list.set_data_list(&[&x[..]])?;
    assert!(message(ExpertLayerOptions::new()?.set_residual(&list).map(drop)).contains("expected a plain matrix"));
    Ok(())
}

#[test]
fn descriptors_of_the_layer_are_shared_by_threads() -> Result<()> {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&Routing::new(1, 1, 1)?);
    shared(&ActivateOptions::new()?);
    shared(&ExpertLayerOptions::new()?);
    shared(&Stream::DEFAULT);
    // SAFETY: nobody reads it.
    shared(&unsafe { DeviceSlice::<f32>::from_raw(0, 0, 0) });
    Ok(())
}
