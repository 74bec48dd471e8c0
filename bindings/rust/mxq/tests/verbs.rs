//! The verbs through the safe interface, on the CPU.
mod common;

use common::numbers;
use mxq::*;

const FORMATS: [(Format, f64); 8] = [
    (Format::Mxfp8E4m3, 28.0),
    (Format::Mxfp8E5m2, 22.0),
    (Format::Mxfp6E2m3, 28.0),
    (Format::Mxfp6E3m2, 22.0),
    (Format::Mxfp4, 15.0),
    (Format::Nvfp4, 18.0),
    (Format::Fp8E4m3, 28.0),
    (Format::Fp8E5m2, 22.0),
];

#[test]
fn the_first_program_of_the_c_readme() -> Result<()> {
    let cpu = Context::cpu()?;
    let mut x = vec![0.0; 128];
    x[..4].copy_from_slice(&[1.0, -3.5, 0.25, 448.0]);
    let q = Quantized::new(&cpu, Format::Mxfp8E4m3, &x, 2, 64)?;
    assert_eq!(q.scale_bytes(), Some(&[127u8, 0, 0, 0][..]));
    assert_eq!(&q.codes()[..4], [0x38, 0xC6, 0x28, 0x7E]);
    Ok(())
}

#[test]
fn every_format_comes_back_near() -> Result<()> {
    let cpu = Context::cpu()?;
    let x = numbers(40 * 96, 1);
    for (format, least) in FORMATS {
        let q = Quantized::new(&cpu, format, &x, 40, 96)?;
        let back = q.dequantize(&cpu)?;
        let signal: f64 = x.iter().map(|x| (*x as f64).powi(2)).sum();
        let noise: f64 = x.iter().zip(&back).map(|(x, y)| (x - y) as f64).map(|e| e * e).sum();
        let decibels = 10.0 * (signal / noise).log10();
        assert!(least < decibels && decibels < least + 15.0, "{format:?}: {decibels}");
    }
    Ok(())
}

#[test]
fn products_keep_the_bound() -> Result<()> {
    let cpu = Context::cpu()?;
    let (m, n, k) = (20, 12, 96);
    for (format, _) in FORMATS {
        let a = Quantized::new(&cpu, format, &numbers(m * k, 1), m, k)?;
        let b = Quantized::new(&cpu, format, &numbers(n * k, 2), n, k)?;
        let (y, a, b) = (a.matmul_transposed(&cpu, &b)?, a.dequantize(&cpu)?, b.dequantize(&cpu)?);
        for i in 0..m {
            for j in 0..n {
                let pairs = || (0..k).map(|l| (a[i * k + l] as f64, b[j * k + l] as f64));
                let (exact, sum): (f64, f64) = (pairs().map(|(a, b)| a * b).sum(), pairs().map(|(a, b)| (a * b).abs()).sum());
                let bound = (1.3 * k as f64 + 40.0) * 2f64.powi(-24) * sum + 2f64.powi(-24) * exact.abs();
                assert!((y[i * n + j] as f64 - exact).abs() <= bound, "{format:?} {i} {j}");
            }
        }
    }
    Ok(())
}

#[test]
fn both_parts_groups_and_swizzled_scales() -> Result<()> {
    let cpu = Context::cpu_with_threads(2)?;
    let (rows, cols, ends) = (70, 64, [30, 30, 70]);
    let x: Vec<f32> = numbers(rows * cols, 3).iter().map(|x| x.powi(15)).collect(); // scales differ from block to block
    let mut input = Tensor::new(Format::F32, rows as i64, cols as i64)?;
    input.set_const_data(&x)?;
    let mut sizes = Tensor::new(Format::Mxfp8E4m3, rows as i64, cols as i64)?;
    sizes.set_groups(&ends)?.set_swizzled(true)?;
    let (row_codes, row_scales) = sizes.required_bytes(Part::Rowwise)?;
    let (col_codes, col_scales) = sizes.required_bytes(Part::Columnwise)?;
    let mut memory = [vec![0u8; row_codes], vec![0; row_scales], vec![0; col_codes], vec![0; col_scales]];
    let [a, b, c, d] = &mut memory;
    let mut q = Tensor::new(Format::Mxfp8E4m3, rows as i64, cols as i64)?;
    q.set_groups(&ends)?.set_swizzled(true)?.set_part(Part::Rowwise, a, b)?.set_part(Part::Columnwise, c, d)?;
    assert_eq!(quantize_query(&cpu, None, &input, &q)?.implementation, "cpu");
    quantize(&cpu, None, &input, &mut q)?;
    assert_eq!(q.to_string(), "mxfp8_e4m3 70 x 64 in 3 groups 1x32 rowwise columnwise swizzled");
    assert_eq!(q.shape()?, (1, 70, 64));

    let mut back = [vec![0f32; rows * cols], vec![0f32; rows * cols]];
    for (part, values) in [Part::Rowwise, Part::Columnwise].into_iter().zip(&mut back) {
        let mut out = Tensor::new(Format::F32, rows as i64, cols as i64)?;
        out.set_data(values)?;
        let mut options = QuantizeOptions::new()?;
        options.set_source_part(part)?;
        dequantize(&cpu, Some(&options), &q, &mut out)?;
    }
    assert!(back[0] != back[1]);
    for values in &back {
        assert!(x.iter().zip(values).all(|(x, y)| (x - y).abs() <= 0.05));
    }
    Ok(())
}

#[test]
fn options_are_passed_on() -> Result<()> {
    let cpu = Context::cpu()?;
    let x = numbers(8 * 64, 5);
    let default = Quantized::new(&cpu, Format::Mxfp8E4m3, &x, 8, 64)?;
    let mut options = QuantizeOptions::new()?;
    options.set_scale_rounding(ScaleRounding::Floor)?;
    let floor = Quantized::with_options(&cpu, Some(&options), Format::Mxfp8E4m3, &x, 8, 64)?;
    assert_ne!(default, floor);

    let bias = numbers(8, 6);
    let mut product = vec![0f32; 64];
    let mut d = Tensor::new(Format::F32, 8, 8)?;
    d.set_data(&mut product)?;
    let mut a = Tensor::new(Format::F32, 8, 64)?;
    a.set_const_data(&x)?;
    let mut gemm_options = GemmOptions::new()?;
    gemm_options.set_alpha(0.0)?.set_bias(Format::F32, &bias)?;
    gemm(&cpu, Some(&gemm_options), &a, &a, &mut d)?;
    assert_eq!(gemm_query(&cpu, None, &a, &a, &d)?.bound, Bound::ExactProducts);
    assert!(product.chunks(8).all(|row| row == bias));
    Ok(())
}

#[test]
fn refusals_have_the_library_s_message() -> Result<()> {
    let cpu = Context::cpu()?;
    let x = numbers(64, 1);
    let short = Quantized::new(&cpu, Format::Mxfp8E4m3, &x[..60], 1, 64).unwrap_err();
    assert_eq!(short.status(), Status::BufferTooSmall);
    assert!(short.to_string().starts_with("BufferTooSmall: mxq_quantize: in"), "{short}");
    let (a, b) = (Quantized::new(&cpu, Format::Mxfp8E4m3, &x, 1, 64)?, Quantized::new(&cpu, Format::Mxfp8E4m3, &x, 2, 32)?);
    assert_eq!(a.matmul_transposed(&cpu, &b).unwrap_err().status(), Status::ShapeMismatch);
    assert_eq!(Context::cpu_with_threads(-1).unwrap_err().status(), Status::InvalidArgument);
    assert_eq!(Context::cuda(99).unwrap_err().status(), Status::NoDevice);
    let mut options = QuantizeOptions::new()?;
    options.set_implementation("no\0ne")?;
    assert!(Quantized::with_options(&cpu, Some(&options), Format::Mxfp8E4m3, &x, 1, 64).is_err());
    Ok(())
}

#[test]
fn a_tensor_that_is_only_read_is_not_written() -> Result<()> {
    let cpu = Context::cpu()?;
    let (x, y) = (numbers(64, 1), vec![0f32; 64]);
    let mut input = Tensor::new(Format::F32, 1, 64)?;
    input.set_const_data(&x)?;
    let mut out = Tensor::new(Format::F32, 1, 64)?;
    out.set_const_data(&y)?;
    assert_eq!(convert(&cpu, None, &input, &mut out).unwrap_err().status(), Status::InvalidArgument);
    Ok(())
}

#[test]
fn contexts_and_descriptors_are_shared_by_threads() -> Result<()> {
    fn shared<T: Send + Sync>(_: &T) {}
    let cpu = Context::cpu()?;
    let q = Quantized::new(&cpu, Format::Mxfp4, &numbers(64 * 64, 9), 64, 64)?;
    let expected = q.dequantize(&cpu)?;
    shared(&Tensor::new(Format::F32, 1, 1)?);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).for_each(|_| assert_eq!(q.dequantize(&cpu).unwrap(), expected)));
        }
    });
    Ok(())
}

#[test]
fn every_family_converts_from_its_numbers() {
    assert_eq!(Format::from_raw(Format::Nvfp4 as i32), Some(Format::Nvfp4));
    assert_eq!(Format::from_raw(0), None);
    assert_eq!(version(), env!("CARGO_PKG_VERSION"));
    assert_eq!(unsafe { sys::mxq_version() }, sys::MXQ_VERSION);
}
