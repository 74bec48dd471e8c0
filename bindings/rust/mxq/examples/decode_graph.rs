//! A decode loop through a block of gated experts: `cargo run --release --example decode_graph`.
//!
//! Each step adds to x what a layer of MXFP4 experts makes of it, and rounds the sum to BF16. On a GPU one CUDA graph holds the
//! step, and is replayed with the ids of each step. The CPU runs the same steps, to compare with or where there is no GPU.
#[path = "common/driver.rs"]
mod driver;

use driver::{Failure, Gpu};
use mxq::launch::{self, Launch};
use mxq::*;
use std::time::Instant;

const TOKENS: usize = 4;
const CHOICES: usize = 2;
const EXPERTS: usize = 8;
const WIDTH: usize = 512; // of a token
const INNER: usize = 256; // numbers between the two products; the first product has a gate and an up for each
const STEPS: usize = 32;

/// Weights of all experts in MXFP4: (EXPERTS, rows, cols).
struct Weights {
    rows: usize,
    cols: usize,
    codes: Vec<u8>,
    scales: Vec<u8>,
}

impl Weights {
    /// Quantizes them once, when the model is loaded.
    fn new(cpu: &Context, rows: usize, cols: usize, value: impl Fn(usize) -> f32) -> Result<Weights> {
        let values: Vec<f32> = (0..EXPERTS * rows * cols).map(value).collect();
        let mut weights = Weights { rows, cols, codes: vec![], scales: vec![] };
        let (code_bytes, scale_bytes) = weights.describe()?.required_bytes(Part::Rowwise)?;
        weights.codes = vec![0; code_bytes];
        weights.scales = vec![0; scale_bytes];
        let (mut plain, mut out) =
            (Tensor::new_3d(Format::F32, EXPERTS as i64, rows as i64, cols as i64)?, weights.describe()?);
        plain.set_const_data(&values)?;
        out.set_part(Part::Rowwise, &mut weights.codes, &mut weights.scales)?;
        quantize(cpu, None, &plain, &mut out)?;
        drop(out);
        Ok(weights)
    }

    fn describe<'a>(&self) -> Result<Tensor<'a>> {
        Tensor::new_3d(Format::Mxfp4, EXPERTS as i64, self.rows as i64, self.cols as i64)
    }

    /// The descriptor of codes and scales, here or in memory of a device.
    fn tensor<'a>(&self, codes: impl Buffer<'a, Element = u8>, scales: impl Buffer<'a, Element = u8>) -> Result<Tensor<'a>> {
        let mut tensor = self.describe()?;
        tensor.set_const_part(Part::Rowwise, codes, scales)?;
        Ok(tensor)
    }
}

/// The descriptors of a step.
struct Step<'a> {
    x: Tensor<'a>,   // BF16, what a step reads and replaces
    sum: Tensor<'a>, // F32
    routing: Routing<'a>,
}

impl<'a> Step<'a> {
    /// Buffers of the host, or of a device.
    fn new(
        x: impl BufferMut<'a, Element = u16>,
        sum: impl BufferMut<'a, Element = f32>,
        ids: impl Buffer<'a, Element = i32>,
        weights: impl Buffer<'a, Element = f32>,
        memory: impl BufferMut<'a, Element = u8>,
    ) -> Result<Step<'a>> {
        let tokens = |format| Tensor::new(format, TOKENS as i64, WIDTH as i64);
        let mut step = Step { x: tokens(Format::Bf16)?, sum: tokens(Format::F32)?, routing: routing()? };
        step.x.set_data(x)?;
        step.sum.set_data(sum)?;
        step.routing.set_ids(ids)?.set_weights(Format::F32, weights)?.set_memory(memory)?;
        Ok(step)
    }

    /// How much workspace the layer needs, and by which implementations it runs.
    fn plan(&self, context: &Context, gate_up: &Tensor, down: &Tensor) -> Result<Plan> {
        let mut options = ExpertLayerOptions::new()?;
        options.set_residual(&self.x)?;
        expert_layer_query(context, Some(&options), &self.x, &self.routing, gate_up, down, &self.sum)
    }

    /// Enqueues a step: sum = x + layer(x), x = BF16 of the sum.
    fn run(&mut self, context: &Context, gate_up: &Tensor, down: &Tensor, launch: Launch) -> Result<()> {
        let mut options = ExpertLayerOptions::new()?;
        options.set_residual(&self.x)?;
        // SAFETY: the buffers stay until the loop has waited for its last step, and the stream alone uses them.
        unsafe {
            launch::expert_layer(context, Some(&options), &self.x, &mut self.routing, gate_up, down, &mut self.sum, launch)?;
            launch::convert(context, None, &self.sum, &mut self.x, launch)
        }
    }
}

fn routing<'a>() -> Result<Routing<'a>> {
    Routing::new(TOKENS as i64, CHOICES as i32, EXPERTS as i32)
}

/// Returns the expert of each choice of a step, as an engine's router would. One choice in 32 is dropped.
fn ids(step: usize) -> Vec<i32> {
    let id = |i: usize| if (step + i) % 32 == 31 { -1 } else { ((step * 5 + i * 3) % EXPERTS) as i32 };
    (0..TOKENS * CHOICES).map(id).collect()
}

fn choice_weights(step: usize) -> Vec<f32> {
    (0..TOKENS * CHOICES).map(|i| if (i + step) % CHOICES == 0 { 0.625 } else { 0.375 }).collect()
}

/// The tokens of the first step in BF16: 0.5 to 2, both signs.
fn first_tokens() -> Vec<u16> {
    (0..TOKENS * WIDTH).map(|i| (0x3F00 + (i * 37) % 0x100 + i % 2 * 0x8000) as u16).collect()
}

/// A number from -1 to 1.
fn noise(i: usize) -> f32 {
    let mixed = (i as u32).wrapping_mul(0x9E3779B1);
    ((mixed ^ mixed >> 15).wrapping_mul(0x85EBCA77) >> 8) as f32 / (1 << 23) as f32 - 1.0
}

fn on_cpu(cpu: &Context, gate_up: &Weights, down: &Weights) -> Result<(Vec<f32>, f64)> {
    let (mut x, mut sum, mut memory) = (first_tokens(), vec![0f32; TOKENS * WIDTH], Memory::new(routing()?.required_bytes()?));
    let first = gate_up.tensor(&gate_up.codes, &gate_up.scales)?;
    let second = down.tensor(&down.codes, &down.scales)?;
    let start = Instant::now();
    for step in 0..STEPS {
        let (ids, weights) = (ids(step), choice_weights(step));
        let mut now = Step::new(&mut x, &mut sum, &ids, &weights, &mut memory)?;
        now.run(cpu, &first, &second, Launch::NONE)?;
    }
    Ok((sum, start.elapsed().as_secs_f64() * 1e6 / STEPS as f64))
}

fn on_gpu(gpu: &Gpu, cuda: &Context, gate_up: &Weights, down: &Weights) -> std::result::Result<(Vec<f32>, f64), Failure> {
    let (codes, scales) = ([gpu.upload(&gate_up.codes)?, gpu.upload(&down.codes)?], [&gate_up.scales, &down.scales]);
    let scales = [gpu.upload(scales[0])?, gpu.upload(scales[1])?];
    let first = gate_up.tensor(codes[0].slice(), scales[0].slice())?;
    let second = down.tensor(codes[1].slice(), scales[1].slice())?;
    let (x, sum) = (gpu.upload(&first_tokens())?, gpu.allocate::<f32>(TOKENS * WIDTH)?);
    let (of_ids, of_weights) = (gpu.upload(&ids(0))?, gpu.upload(&choice_weights(0))?);
    let memory = gpu.allocate::<u8>(routing()?.required_bytes()?)?;
    let mut step = Step::new(x.slice(), sum.slice(), of_ids.slice(), of_weights.slice(), memory.slice())?;

    let plan = step.plan(cuda, &first, &second)?;
    println!("{}: {}, {} bytes of workspace", cuda.description(), plan.implementation, plan.workspace_bytes);
    let workspace = gpu.allocate::<u8>(plan.workspace_bytes as usize)?;
    let launch = Launch { workspace: (!workspace.slice().is_empty()).then(|| workspace.slice()), stream: gpu.stream() };
    let graph = gpu.capture(|| step.run(cuda, &first, &second, launch))?;

    let loops = || -> std::result::Result<f64, Failure> {
        x.write(&first_tokens())?;
        gpu.wait()?;
        let start = Instant::now();
        for step in 0..STEPS {
            of_ids.write(&ids(step))?;
            of_weights.write(&choice_weights(step))?;
            graph.launch()?;
        }
        gpu.wait()?;
        Ok(start.elapsed().as_secs_f64() * 1e6 / STEPS as f64)
    };
    loops()?; // warms up
    let time = loops()?;
    Ok((sum.read()?, time))
}

/// The largest magnitude; NaN where there is one.
fn largest_of(numbers: impl Iterator<Item = f32>) -> f32 {
    numbers.map(f32::abs).fold(0.0, |largest, number| if number > largest || number.is_nan() { number } else { largest })
}

fn main() -> std::result::Result<(), Failure> {
    let cpu = Context::cpu()?;
    let gate_up = Weights::new(&cpu, 2 * INNER, WIDTH, |i| 0.04 * noise(i))?;
    let down = Weights::new(&cpu, WIDTH, INNER, |i| 0.04 * noise(i + 99))?;
    let (expected, time) = on_cpu(&cpu, &gate_up, &down)?;
    println!("{}: {STEPS} steps of {TOKENS} tokens, {time:.1} us a step", cpu.description());
    let largest = largest_of(expected.iter().copied());

    let gpu = match Gpu::first().and_then(|gpu| Ok((gpu, Context::cuda(0)?))) {
        Ok(found) => found,
        Err(why) => {
            println!("no GPU ({why}): the CPU ran the block, largest sum {largest:.2}");
            return Ok(());
        }
    };
    let (sums, time) = on_gpu(&gpu.0, &gpu.1, &gate_up, &down)?;
    let error = largest_of(sums.iter().zip(&expected).map(|(sum, expected)| sum - expected));
    println!("CUDA graph: {STEPS} steps, {time:.1} us a step with the copies of ids and weights");
    println!("largest sum {largest:.2}, largest difference from the CPU {error:.5}");
    if error.is_nan() || error > largest / 16.0 {
        return Err("the sums of the GPU are not those of the CPU".into());
    }
    Ok(())
}
