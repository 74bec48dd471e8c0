//! Products, changes of layouts, and the log on a GPU. Skipped where there is no GPU.
mod common;
#[path = "common/gpu.rs"]
mod on_gpu;

use common::numbers;
use mxq::launch;
use mxq::*;
use on_gpu::{bytes_of, gpu, on, workspace, Outcome};
use std::sync::Mutex;

const ROWS: usize = 70;
const COLS: usize = 128;
const OUTPUTS: usize = 48;
const ENDS: [i32; 3] = [5, 30, 64]; // of the rows; the last ones are in no group
const FORMATS: [Format; 5] = [Format::Mxfp8E4m3, Format::Mxfp6E2m3, Format::Mxfp4, Format::Nvfp4, Format::Fp8E4m3];

/// Names the kinds of tensors of these tests: rows of tokens, one weight, or one weight for each expert.
#[derive(Clone, Copy)]
enum Is {
    Rows,
    Weight,
    Experts,
}

fn tensor<'a>(format: Format, is: Is) -> Result<Tensor<'a>> {
    match is {
        Is::Rows => Tensor::new(format, ROWS as i64, COLS as i64),
        Is::Weight => Tensor::new(format, OUTPUTS as i64, COLS as i64),
        Is::Experts => Tensor::new_3d(format, ENDS.len() as i64, OUTPUTS as i64, COLS as i64),
    }
}

/// Codes, scales and amax of numbers that the CPU quantizes, in one block.
fn quantized(cpu: &Context, values: &[f32], format: Format, is: Is) -> Result<Memory> {
    let mut memory = Memory::new(tensor(format, is)?.total_bytes(Part::Rowwise)?);
    let (mut plain, mut out) = (tensor(Format::F32, is)?, tensor(format, is)?);
    quantize(cpu, None, plain.set_const_data(values)?, out.set_memory(Part::Rowwise, &mut memory)?)?;
    Ok(memory)
}

fn values(cpu: &Context, memory: &mut Memory, format: Format, is: Is) -> Result<Vec<f32>> {
    let (mut q, mut out) = (tensor(format, is)?, tensor(Format::F32, is)?);
    let mut numbers = vec![0.0; out.required_bytes(Part::Rowwise)?.0 / 4];
    dequantize(cpu, None, q.set_memory(Part::Rowwise, memory)?, out.set_data(&mut numbers)?)?;
    Ok(numbers)
}

/// Compares sums of products with their exact values, within `share` of the sum of magnitudes.
fn compare(got: &[f32], a: &[f32], b: &[f32], expert: usize, rows: std::ops::Range<usize>, share: f64) {
    for i in rows {
        for j in 0..OUTPUTS {
            let pairs = || (0..COLS).map(|l| (a[i * COLS + l] as f64, b[(expert * OUTPUTS + j) * COLS + l] as f64));
            let (exact, sum): (f64, f64) = (pairs().map(|(a, b)| a * b).sum(), pairs().map(|(a, b)| (a * b).abs()).sum());
            assert!((got[i * OUTPUTS + j] as f64 - exact).abs() <= share * sum + 1e-30, "{i} {j}");
        }
    }
}

/// How far a sum may be from its exact value, by the class of the plan: a share of the sum of magnitudes.
fn share(plan: &Plan, is_exact: bool) -> f64 {
    let cut = match plan.bound {
        Bound::ExactProducts => 40.0,
        Bound::Fp8TensorCores => 270376.0,
        _ if !is_exact => 270376.0 + 2f64.powi(17), // numbers of similar size lose less when they are rebased
        other => panic!("{other:?} of {} rounds operands", plan.implementation),
    };
    (1.3 * COLS as f64 + cut) * 2f64.powi(-24)
}

#[test]
fn products_keep_the_bound() -> Outcome {
    let Some((gpu, cuda)) = gpu() else { return Ok(()) };
    let cpu = Context::cpu()?;
    let ends = gpu.upload(&ENDS)?;
    for format in FORMATS {
        let (mut a, mut b) = (
            quantized(&cpu, &numbers(ROWS * COLS, 1), format, Is::Rows)?,
            quantized(&cpu, &numbers(ENDS.len() * OUTPUTS * COLS, 2), format, Is::Experts)?,
        );
        let mut one = quantized(&cpu, &numbers(OUTPUTS * COLS, 3), format, Is::Weight)?;
        let there = [gpu.upload(&a[..])?, gpu.upload(&b[..])?, gpu.upload(&one[..])?];
        let product = gpu.upload(&[f32::NAN; ROWS * OUTPUTS])?;
        let [a_values, b_values, one_values] = [
            values(&cpu, &mut a, format, Is::Rows)?,
            values(&cpu, &mut b, format, Is::Experts)?,
            values(&cpu, &mut one, format, Is::Weight)?,
        ];
        for is_exact in [false, true] {
            let mut options = GemmOptions::new()?;
            options.set_exact_products(is_exact)?;
            let (mut x, mut w, mut y) = (
                tensor(format, Is::Rows)?,
                tensor(format, Is::Weight)?,
                Tensor::new(Format::F32, ROWS as i64, OUTPUTS as i64)?,
            );
            x.set_memory(Part::Rowwise, there[0].slice())?;
            w.set_memory(Part::Rowwise, there[2].slice())?;
            y.set_data(product.slice())?;
            let plan = gemm_query(&cuda, Some(&options), &x, &w, &y)?;
            let space = gpu.allocate((plan.workspace_bytes as usize).max(1))?;
            // SAFETY: all memory stays until the stream was waited for.
            unsafe { launch::gemm(&cuda, Some(&options), &x, &w, &mut y, on(&gpu, &space))? };
            compare(&product.read()?, &a_values, &one_values, 0, 0..ROWS, share(&plan, is_exact));

            product.write(&[f32::NAN; ROWS * OUTPUTS])?;
            let (mut x, mut w) = (tensor(format, Is::Rows)?, tensor(format, Is::Experts)?);
            x.set_groups(ends.slice())?.set_memory(Part::Rowwise, there[0].slice())?;
            w.set_memory(Part::Rowwise, there[1].slice())?;
            let plan = grouped_gemm_query(&cuda, Some(&options), &x, &w, &y)?;
            let (share, space) = (share(&plan, is_exact), gpu.allocate((plan.workspace_bytes as usize).max(1))?);
            // SAFETY: as above.
            unsafe { launch::grouped_gemm(&cuda, Some(&options), &x, &w, &mut y, on(&gpu, &space))? };
            let (got, mut first) = (product.read()?, 0);
            for (expert, end) in ENDS.into_iter().enumerate() {
                compare(&got, &a_values, &b_values, expert, first..end as usize, share);
                first = end as usize;
            }
            assert!(got[first * OUTPUTS..].iter().all(|y| y.is_nan()), "rows of no group were written");
        }
    }
    Ok(())
}

#[test]
fn values_and_layouts_have_the_bytes_of_the_cpu() -> Outcome {
    let Some((gpu, cuda)) = gpu() else { return Ok(()) };
    let cpu = Context::cpu()?;
    let space = workspace(&gpu)?;
    for format in FORMATS {
        let mut memory = quantized(&cpu, &numbers(ROWS * COLS, 1), format, Is::Rows)?;
        let (q_there, expected) = (gpu.upload(&memory[..])?, values(&cpu, &mut memory, format, Is::Rows)?);
        let plain = gpu.allocate::<f32>(ROWS * COLS)?;
        let (mut q, mut out) = (tensor(format, Is::Rows)?, tensor(Format::F32, Is::Rows)?);
        q.set_memory(Part::Rowwise, q_there.slice())?;
        // SAFETY: all memory stays until the stream was waited for.
        unsafe { launch::dequantize(&cuda, None, &q, out.set_data(plain.slice())?, on(&gpu, &space))? };
        assert_eq!(bytes_of(&plain.read()?), bytes_of(&expected), "{format:?}");

        // The columnwise part of the rowwise one.
        let bytes = tensor(format, Is::Rows)?.total_bytes(Part::Columnwise)?;
        let (mut turned, turned_there) = (Memory::new(bytes), gpu.upload(&vec![0u8; bytes])?);
        let (mut from, mut to, mut to_there) =
            (tensor(format, Is::Rows)?, tensor(format, Is::Rows)?, tensor(format, Is::Rows)?);
        requantize(&cpu, None, from.set_memory(Part::Rowwise, &mut memory)?, to.set_memory(Part::Columnwise, &mut turned)?)?;
        to_there.set_memory(Part::Columnwise, turned_there.slice())?;
        // SAFETY: as above.
        unsafe { launch::requantize(&cuda, None, &q, &mut to_there, on(&gpu, &space))? };
        assert!(turned_there.read()? == turned[..], "{format:?}");
    }
    Ok(())
}

#[test]
fn scales_go_into_tiles_and_back() -> Outcome {
    let Some((gpu, cuda)) = gpu() else { return Ok(()) };
    let (cpu, space) = (Context::cpu()?, workspace(&gpu)?);
    let new = || tensor(Format::Mxfp8E4m3, Is::Rows);
    let tiled = || -> Result<Tensor> {
        let mut tensor = new()?;
        tensor.set_swizzled(true)?;
        Ok(tensor)
    };
    let mut memory = quantized(&cpu, &numbers(ROWS * COLS, 1), Format::Mxfp8E4m3, Is::Rows)?;
    let (there, bytes) = (gpu.upload(&memory[..])?, tiled()?.total_bytes(Part::Rowwise)?);
    let mut expected = Memory::new(bytes);
    let (tiles_there, back_there) = (gpu.upload(&vec![0u8; bytes])?, gpu.upload(&vec![0u8; memory.len()])?);

    let (mut from, mut to) = (new()?, tiled()?);
    swizzle_scales(&cpu, None, from.set_memory(Part::Rowwise, &mut memory)?, to.set_memory(Part::Rowwise, &mut expected)?)?;
    let (mut q, mut tiles, mut back) = (new()?, tiled()?, new()?);
    q.set_memory(Part::Rowwise, there.slice())?;
    tiles.set_memory(Part::Rowwise, tiles_there.slice())?;
    back.set_memory(Part::Rowwise, back_there.slice())?;
    // SAFETY: all memory stays until the stream was waited for.
    unsafe {
        launch::swizzle_scales(&cuda, None, &q, &mut tiles, on(&gpu, &space))?;
        launch::unswizzle_scales(&cuda, None, &tiles, &mut back, on(&gpu, &space))?;
    }
    let (codes, scales) = tiled()?.required_bytes(Part::Rowwise)?;
    let first = codes.next_multiple_of(256);
    assert_eq!(tiles_there.read()?[first..][..scales], expected[first..][..scales]);
    let (_, scales) = new()?.required_bytes(Part::Rowwise)?;
    assert_eq!(back_there.read()?[first..][..scales], there.read()?[first..][..scales]);
    Ok(())
}

#[test]
fn a_launch_has_its_line_in_the_log() -> Outcome {
    let Some((gpu, cuda)) = gpu() else { return Ok(()) };
    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let (x, y, space) = (gpu.upload(&numbers(64, 1))?, gpu.allocate::<u16>(64)?, workspace(&gpu)?);
    let (mut input, mut out) = (Tensor::new(Format::F32, 1, 64)?, Tensor::new(Format::Bf16, 1, 64)?);
    input.set_const_data(x.slice())?;
    out.set_data(y.slice())?;
    set_log(LogLevel::Info, |_, line| LINES.lock().unwrap().push(line.to_owned()))?;
    // SAFETY: all memory stays until the stream was waited for.
    let done = unsafe { launch::convert(&cuda, None, &input, &mut out, on(&gpu, &space)) };
    reset_log()?;
    done?;
    gpu.wait()?;
    let lines = LINES.lock().unwrap();
    assert!(
        lines.iter().any(|line| line.contains(": convert, f32 1 x 64, bf16 1 x 64: ") && !line.starts_with("CPU")),
        "{lines:?}"
    );
    Ok(())
}
