//! The same on a GPU: bytes equal to the CPU's, a captured layer, refusals. Skipped where there is no GPU, or no CUDA in the
//! library; the test program may be carried to a machine that has both.
#[path = "common/gpu.rs"]
mod on_gpu;

mod common;

use common::numbers;
use mxq::launch;
use mxq::*;
use on_gpu::{bytes_of, gpu, on, workspace, Outcome};

#[test]
fn quantized_bytes_are_those_of_the_cpu() -> Outcome {
    let Some((gpu, cuda)) = gpu() else { return Ok(()) };
    let cpu = Context::cpu()?;
    let (rows, cols) = (70, 128);
    let values = numbers(rows * cols, 1);
    let x = gpu.upload(&values)?;
    for format in [Format::Mxfp8E4m3, Format::Mxfp6E2m3, Format::Mxfp4, Format::Nvfp4, Format::Fp8E4m3] {
        let expected = Quantized::new(&cpu, format, &values, rows, cols)?;
        let mut input = Tensor::new(Format::F32, rows as i64, cols as i64)?;
        input.set_const_data(x.slice())?;
        let mut out = Tensor::new(format, rows as i64, cols as i64)?;
        let memory = gpu.allocate::<u8>(out.total_bytes(Part::Rowwise)?)?;
        out.set_memory(Part::Rowwise, memory.slice())?;
        let space = workspace(&gpu)?;
        assert!(quantize_query(&cuda, None, &input, &out)?.workspace_bytes <= 1 << 20);
        // SAFETY: all memory stays until the stream was waited for.
        unsafe { launch::quantize(&cuda, None, &input, &mut out, on(&gpu, &space))? };
        let bytes = memory.read()?;
        let codes = expected.codes();
        assert_eq!(&bytes[..codes.len()], codes, "{format:?}");
        let scales = expected.scale_bytes().unwrap_or_else(|| bytes_of(expected.scale_floats().unwrap()));
        assert_eq!(&bytes[codes.len().next_multiple_of(256)..][..scales.len()], scales, "{format:?}");
    }
    Ok(())
}

#[test]
fn memory_of_the_host_is_refused() -> Outcome {
    let Some((gpu, cuda)) = gpu() else { return Ok(()) };
    let (x, y, space) = (vec![1f32; 64], gpu.allocate::<f32>(64)?, workspace(&gpu)?);
    let mut input = Tensor::new(Format::F32, 1, 64)?;
    // SAFETY: the memory is there, and the call is refused.
    unsafe {
        let mut out = Tensor::from_device_ptr(Format::F32, 1, 64, y.slice().address(), 0)?;
        let said = launch::convert(&cuda, None, input.set_const_data(&x)?, &mut out, on(&gpu, &space)).unwrap_err();
        let expected = "in.data is memory of the host, expected memory of CUDA 0; copy it there and give it as a DeviceSlice";
        assert!(said.message().contains(expected), "{said}");
        let other = DeviceSlice::<f32>::from_raw(y.slice().address(), 64, 1);
        let said = launch::convert(&cuda, None, input.set_const_data(other)?, &mut out, on(&gpu, &space)).unwrap_err();
        assert!(said.message().contains("in.data is memory of CUDA 1, expected memory of CUDA 0"), "{said}");
        let short = DeviceSlice::<f32>::from_raw(y.slice().address(), 63, 0);
        let said = launch::convert(&cuda, None, input.set_const_data(short)?, &mut out, on(&gpu, &space)).unwrap_err();
        assert_eq!(said.status(), Status::BufferTooSmall);
    }
    let mut out = Tensor::new(Format::F32, 1, 64)?;
    out.set_data(y.slice())?;
    input.set_const_data(y.slice())?;
    assert!(convert(&cuda, None, &input, &mut out).unwrap_err().message().contains("expected a CPU context"));
    Ok(())
}

const TOKENS: usize = 7;
const CHOICES: usize = 2;
const EXPERTS: usize = 4;
const WIDTH: usize = 128;
const INNER: usize = 64;
const ROWS: usize = TOKENS * CHOICES;

fn ids_of(step: usize) -> Vec<i32> {
    (0..ROWS).map(|i| if (i + step) % 9 == 8 { -1 } else { ((i * 5 + step * 3) % EXPERTS) as i32 }).collect()
}

#[test]
fn routing_gather_activation_and_sums_have_the_bytes_of_the_cpu() -> Outcome {
    let Some((gpu, cuda)) = gpu() else { return Ok(()) };
    let cpu = Context::cpu()?;
    let (ids, weights, values) = (ids_of(1), numbers(ROWS, 1), numbers(TOKENS * WIDTH, 2));
    let new_routing = || Routing::new(TOKENS as i64, CHOICES as i32, EXPERTS as i32);
    let bytes = new_routing()?.required_bytes()?;
    let matrix = |rows: usize, cols: usize| Tensor::new(Format::F32, rows as i64, cols as i64);

    let (mut host, mut of_host) = (new_routing()?, Memory::new(bytes));
    host.set_ids(&ids)?.set_weights(Format::F32, &weights)?.set_memory(&mut of_host)?;
    route(&cpu, None, &mut host)?;
    let (mut rows, mut activated, mut sums) = (vec![0f32; ROWS * WIDTH], vec![0f32; ROWS * INNER], vec![0f32; TOKENS * INNER]);
    let (mut tokens, mut r) = (matrix(ROWS, WIDTH)?, matrix(ROWS, WIDTH)?);
    let (mut a, mut s) = (matrix(ROWS, INNER)?, matrix(TOKENS, INNER)?);
    tokens.set_const_data(&values)?.set_row_indices(host.row_tokens()?, TOKENS as i64)?;
    convert(&cpu, None, &tokens, r.set_data(&mut rows)?)?;
    activate(&cpu, None, &r, a.set_data(&mut activated)?)?;
    combine(&cpu, None, &host, &a, None, s.set_data(&mut sums)?)?;

    let (d_ids, d_weights, x) = (gpu.upload(&ids)?, gpu.upload(&weights)?, gpu.upload(&values)?);
    let (memory, dropped) = (gpu.allocate::<u8>(bytes)?, gpu.upload(&[9])?);
    let (d_rows, d_activated) = (gpu.allocate::<f32>(ROWS * WIDTH)?, gpu.allocate::<f32>(ROWS * INNER)?);
    let (d_sums, space) = (gpu.allocate::<f32>(TOKENS * INNER)?, workspace(&gpu)?);
    let mut routing = new_routing()?;
    routing.set_ids(d_ids.slice())?.set_weights(Format::F32, d_weights.slice())?;
    routing.set_memory(memory.slice())?.set_dropped(dropped.slice())?;
    let (mut tokens, mut r) = (matrix(ROWS, WIDTH)?, matrix(ROWS, WIDTH)?);
    let (mut a, mut s) = (matrix(ROWS, INNER)?, matrix(TOKENS, INNER)?);
    r.set_data(d_rows.slice())?;
    a.set_data(d_activated.slice())?;
    s.set_data(d_sums.slice())?;
    let arrays = routing.device_arrays()?;
    // SAFETY: row_tokens stay until the stream was waited for; route writes them before convert reads them.
    let row_tokens = unsafe { DeviceSlice::<i32>::from_raw(arrays.row_tokens.address(), ROWS, 0) };
    tokens.set_const_data(x.slice())?.set_row_indices(row_tokens, TOKENS as i64)?;
    // SAFETY: all memory stays until the stream was waited for.
    unsafe {
        launch::route(&cuda, None, &mut routing, on(&gpu, &space))?;
        launch::convert(&cuda, None, &tokens, &mut r, on(&gpu, &space))?;
        launch::activate(&cuda, None, &r, &mut a, on(&gpu, &space))?;
        launch::combine(&cuda, None, &routing, &a, None, &mut s, on(&gpu, &space))?;
    }
    assert_eq!(dropped.read()?, [0]);
    assert_eq!(bytes_of(&d_rows.read()?), bytes_of(&rows));
    assert_eq!(bytes_of(&d_activated.read()?), bytes_of(&activated));
    assert_eq!(bytes_of(&d_sums.read()?), bytes_of(&sums));
    let got = memory.read()?;
    for (at, array) in [host.ends()?, host.row_tokens()?, host.choice_rows()?].into_iter().enumerate() {
        assert_eq!(&got[at * 256..][..4 * array.len()], bytes_of(array), "array {at}");
    }
    Ok(())
}

#[test]
fn a_captured_layer_is_replayed_with_other_ids() -> Outcome {
    let Some((gpu, cuda)) = gpu() else { return Ok(()) };
    let cpu = Context::cpu()?;
    let (x, weights) = (vec![0x3F80u16; TOKENS * WIDTH], numbers(ROWS, 1)); // 1 in BF16
    let shapes = [(2 * INNER, WIDTH), (WIDTH, INNER)];
    let three = |format, (rows, cols): (usize, usize)| Tensor::new_3d(format, EXPERTS as i64, rows as i64, cols as i64);
    let mut kept = [Memory::new(0), Memory::new(0)];
    for (memory, shape) in kept.iter_mut().zip(shapes) {
        let values = numbers(EXPERTS * shape.0 * shape.1, shape.0 as u32);
        let (mut plain, mut out) = (three(Format::F32, shape)?, three(Format::Mxfp4, shape)?);
        *memory = Memory::new(out.total_bytes(Part::Rowwise)?);
        quantize(&cpu, None, plain.set_const_data(&values)?, out.set_memory(Part::Rowwise, memory)?)?;
    }
    let on_gpu = [gpu.upload(&kept[0][..])?, gpu.upload(&kept[1][..])?];
    let [mut host_weights, mut weights_there] = [
        [three(Format::Mxfp4, shapes[0])?, three(Format::Mxfp4, shapes[1])?],
        [three(Format::Mxfp4, shapes[0])?, three(Format::Mxfp4, shapes[1])?],
    ];
    for ((tensor, memory), (there, on_gpu)) in host_weights.iter_mut().zip(&mut kept).zip(weights_there.iter_mut().zip(&on_gpu))
    {
        tensor.set_memory(Part::Rowwise, memory)?;
        there.set_memory(Part::Rowwise, on_gpu.slice())?;
    }
    let new_routing = || Routing::new(TOKENS as i64, CHOICES as i32, EXPERTS as i32);
    let tokens = |format| Tensor::new(format, TOKENS as i64, WIDTH as i64);
    let bytes = new_routing()?.required_bytes()?;

    let (d_ids, d_weights, memory) = (gpu.upload(&ids_of(0))?, gpu.upload(&weights)?, gpu.allocate::<u8>(bytes)?);
    let (d_x, d_y) = (gpu.upload(&x)?, gpu.allocate::<f32>(TOKENS * WIDTH)?);
    let mut routing = new_routing()?;
    routing.set_ids(d_ids.slice())?.set_weights(Format::F32, d_weights.slice())?.set_memory(memory.slice())?;
    let (mut input, mut out) = (tokens(Format::Bf16)?, tokens(Format::F32)?);
    input.set_const_data(d_x.slice())?;
    out.set_data(d_y.slice())?;
    let [gate_up, down] = &weights_there;
    let plan = expert_layer_query(&cuda, None, &input, &routing, gate_up, down, &out)?;
    let space = gpu.allocate::<u8>((plan.workspace_bytes as usize).max(256))?;
    let launch = on(&gpu, &space);
    // SAFETY: all memory stays until the stream was waited for, and the graph is gone before it.
    let graph =
        gpu.capture(|| unsafe { launch::expert_layer(&cuda, None, &input, &mut routing, gate_up, down, &mut out, launch) })?;
    for step in 0..5 {
        d_ids.write(&ids_of(step))?;
        graph.launch()?;
        let got = d_y.read()?;
        let (ids, mut expected, mut memory) = (ids_of(step), vec![0f32; TOKENS * WIDTH], Memory::new(bytes));
        let (mut host, mut input, mut out) = (new_routing()?, tokens(Format::Bf16)?, tokens(Format::F32)?);
        host.set_ids(&ids)?.set_weights(Format::F32, &weights)?.set_memory(&mut memory)?;
        input.set_const_data(&x)?;
        out.set_data(&mut expected)?;
        expert_layer(&cpu, None, &input, &mut host, &host_weights[0], &host_weights[1], &mut out)?;
        let largest = expected.iter().fold(0f32, |largest, y| largest.max(y.abs()));
        assert!(largest > 1.0);
        // Sums of other orders, rounded to BF16 three times on the way.
        let is_near = |(got, expected): (&f32, &f32)| (got - expected).abs() <= largest / 32.0;
        assert!(got.iter().zip(&expected).all(is_near), "step {step}, {}", plan.implementation);
    }
    Ok(())
}
