//! Quantizes two matrices and multiplies them: `cargo run --example quantize`.

fn main() -> mxq::Result<()> {
    let cpu = mxq::Context::cpu()?;
    let x: Vec<f32> = (0..128 * 512).map(|i| (i as f32 * 0.37).sin()).collect();
    let w: Vec<f32> = (0..256 * 512).map(|i| (i as f32 * 0.61).cos()).collect();
    let xq = mxq::Quantized::new(&cpu, mxq::Format::Mxfp8E4m3, &x, 128, 512)?;
    let wq = mxq::Quantized::new(&cpu, mxq::Format::Mxfp4, &w, 256, 512)?;
    let y = xq.matmul_transposed(&cpu, &wq)?;
    println!("libmxq {} on {}: {xq} times {wq}, y[0] = {:.3}", mxq::version(), cpu.description(), y[0]);
    Ok(())
}
