//! What a program that serves a model needs: descriptors that stay, lists of experts, memory in one block, threads, the log.
use mxq::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    (0..count).map(|i| ((i as f32 + 1.0) * (0.37 + seed as f32)).sin()).collect()
}

fn message<T>(result: Result<T>) -> String {
    result.err().map_or("no error".to_owned(), |error| error.to_string())
}

#[test]
fn setters_compare_the_elements_with_the_format() -> Result<()> {
    let (floats, mut halves, mut bytes) = (vec![0f32; 128], vec![0u16; 128], vec![0u8; 256]);
    let (mut data, mut scales) = (floats.clone(), floats.clone());
    let mut bf16 = Tensor::new(Format::Bf16, 2, 64)?;
    let said = "data has elements of f32 (4 bytes), expected u16 or i16 for Bf16, or bytes; convert them, or check the format";
    assert_eq!(message(bf16.set_const_data(&floats).map(drop)), format!("InvalidArgument: {said}"));
    assert!(message(bf16.set_data(&mut data).map(drop)).ends_with(said));
    assert!(message(bf16.set_const_data(&[0u16; 128]).map(drop)) == "no error");
    assert!(message(Tensor::new(Format::F16, 2, 64)?.set_data(&mut bytes).map(drop)) == "no error");
    let mut f32 = Tensor::new(Format::F32, 2, 64)?;
    assert!(message(f32.set_data(&mut halves).map(drop)).contains("elements of u16 (2 bytes), expected f32 for F32"));
    let mut experts = Tensor::new_3d(Format::F32, 1, 2, 64)?;
    assert!(message(experts.set_data_list(&[&halves[..]]).map(drop)).contains("expected f32 for F32"));

    let (codes, mut written) = (vec![0u8; 128], vec![0u8; 128]);
    let mut mx = Tensor::new(Format::Mxfp8E4m3, 2, 64)?;
    assert!(message(mx.set_const_part(Part::Rowwise, &codes, &floats).map(drop)).contains("scales has elements of f32"));
    assert!(message(mx.set_part(Part::Rowwise, &mut written, &mut scales).map(drop)).contains("expected u8 for Mxfp8E4m3"));
    let mut fp8 = Tensor::new(Format::Fp8E4m3, 2, 64)?;
    assert!(message(fp8.set_const_part(Part::Rowwise, &codes, &halves).map(drop)).contains("expected f32 for Fp8E4m3"));
    let mut experts = Tensor::new_3d(Format::Fp8E4m3, 1, 2, 64)?;
    assert!(message(experts.set_part_list(Part::Rowwise, &[&codes], &[&halves[..]]).map(drop)).contains("expected f32"));
    let mut options = GemmOptions::new()?;
    assert!(message(options.set_bias(Format::Bf16, &floats).map(drop)).starts_with("InvalidArgument: bias has elements of f32"));
    Ok(())
}

#[test]
fn a_descriptor_is_bound_to_other_buffers_for_each_call() -> Result<()> {
    let cpu = Context::cpu_with_threads(2)?;
    let mut kept = [Tensor::new(Format::F32, 3, 64)?.unbind(), Tensor::new(Format::Nvfp4, 3, 64)?.unbind()];
    let [input, out] = &mut kept;
    for seed in 0..3 {
        let x = numbers(3 * 64, seed);
        let expected = Quantized::new(&cpu, Format::Nvfp4, &x, 3, 64)?;
        let (mut codes, mut scales, mut amax) = (vec![0u8; 96], vec![0u8; 12], [0f32]);
        let (mut x_bound, mut q) = (input.bind()?, out.bind()?);
        q.set_part(Part::Rowwise, &mut codes, &mut scales)?.set_amax(Part::Rowwise, &mut amax)?;
        quantize(&cpu, None, x_bound.set_const_data(&x)?, &mut q)?;
        assert_eq!((&codes[..], Some(&scales[..])), (expected.codes(), expected.scale_bytes()));
    }
    Ok(())
}

#[test]
fn a_descriptor_forgets_the_buffers_of_an_earlier_call() -> Result<()> {
    let cpu = Context::cpu()?;
    let x = numbers(2 * 64, 1);
    for format in [Format::Mxfp4, Format::Nvfp4, Format::Fp8E4m3, Format::Fp8E5m2] {
        let mut kept = Tensor::new(format, 2, 64)?.unbind();
        let (mut codes, mut amax, factor, ends) = (vec![0u8; 4096], [0f32; 1], [1f32], [1i64, 2]);
        let mut scales = vec![0u8; 4096];
        let mut first = kept.bind()?;
        first.set_groups(&ends)?.set_part(Part::Rowwise, &mut codes, &mut scales)?;
        match format {
            Format::Nvfp4 => drop(first.set_amax(Part::Rowwise, &mut amax)?.set_decode_scale(Part::Columnwise, &factor)?),
            Format::Mxfp4 => {}
            _ => drop(first.set_amax(Part::Rowwise, &mut amax)?.set_quantization_scale(&factor)?),
        }
        std::mem::forget(first); // nothing is done when it goes
        let mut second = kept.bind()?;
        unsafe {
            let (mut codes, mut scales, mut amax) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
            let (mut factor, mut ends, none) = (std::ptr::null(), std::ptr::null(), std::ptr::null_mut());
            let raw = second.as_raw();
            sys::mxq_tensor_get_part(raw, 1, std::ptr::null_mut(), &mut codes, none, &mut scales, none, std::ptr::null_mut());
            sys::mxq_tensor_get_amax(raw, 1, &mut amax, none);
            assert!(codes.is_null() && scales.is_null() && amax.is_null(), "{format:?}");
            sys::mxq_tensor_get_decode_scale(raw, 2, &mut factor, none);
            assert!(factor.is_null(), "{format:?}");
            sys::mxq_tensor_get_quantization_scale(raw, &mut factor, none);
            let mut count = 0;
            sys::mxq_tensor_get_groups(raw, &mut ends, none, std::ptr::null_mut(), &mut count);
            assert!(factor.is_null() && ends.is_null() && count == 2, "{format:?}");
        }
        let mut input = Tensor::new(Format::F32, 2, 64)?;
        input.set_const_data(&x)?;
        assert!(quantize(&cpu, None, &input, &mut second).is_err());
    }
    Ok(())
}

#[test]
fn an_amax_that_is_only_read_is_not_written() -> Result<()> {
    let cpu = Context::cpu()?;
    let q = Quantized::new(&cpu, Format::Nvfp4, &numbers(16, 1), 1, 16)?;
    let x = [100f32; 16];
    let mut input = Tensor::new(Format::F32, 1, 16)?;
    input.set_const_data(&x)?;
    let mut out = q.tensor()?;
    let expected = "nvfp4 1 x 16 1x16 rowwise has an amax that may only be read, expected one that this verb may write";
    assert!(message(amax(&cpu, None, &input, &mut out)).contains(expected));
    assert!(message(quantize(&cpu, None, &input, &mut out)).contains(expected));
    let mut largest = [0f32];
    amax(&cpu, None, &input, out.set_amax(Part::Rowwise, &mut largest)?)?;
    assert_eq!(largest, [100.0]);
    Ok(())
}

#[test]
fn one_block_of_memory() -> Result<()> {
    let cpu = Context::cpu()?;
    let x = numbers(3 * 64, 4);
    for format in [Format::F32, Format::Mxfp6E2m3, Format::Nvfp4] {
        let part = if format == Format::F32 { Part::Rowwise } else { Part::Both };
        let mut q = Tensor::new(format, 3, 64)?;
        let mut memory = Memory::new(q.total_bytes(part)?);
        assert_eq!((memory.as_ptr() as usize % 256, memory.len() % 256), (0, 0));
        let small = message(Tensor::new(format, 3, 64)?.set_memory(part, &mut memory[256..]).map(drop));
        assert!(small.contains("ask mxq_tensor_total_bytes"), "{small}");
        q.set_memory(part, &mut memory)?;
        let mut input = Tensor::new(Format::F32, 3, 64)?;
        input.set_const_data(&x)?;
        if format == Format::F32 {
            convert(&cpu, None, &input, &mut q)?;
            assert_eq!(memory[..4], x[0].to_le_bytes());
        } else {
            quantize(&cpu, None, &input, &mut q)?;
            let codes = Quantized::new(&cpu, format, &x, 3, 64)?.codes().to_vec();
            assert_eq!(memory[..codes.len()], codes);
        }
    }
    Ok(())
}

#[test]
fn experts_in_lists_multiply_like_those_in_one_block() -> Result<()> {
    let cpu = Context::cpu()?;
    let (x, w, ends) = (numbers(5 * 64, 1), numbers(2 * 32 * 64, 2), [2i64, 5]);
    let quantized = [0, 1].map(|e| Quantized::new(&cpu, Format::Mxfp4, &w[e * 2048..][..2048], 32, 64).unwrap());
    let [first, second] = &quantized;
    let mut listed = Tensor::new_3d(Format::Mxfp4, 2, 32, 64)?;
    let scales = [first.scale_bytes().unwrap(), second.scale_bytes().unwrap()];
    listed.set_part_list(Part::Rowwise, &[first.codes(), second.codes()], &scales)?;
    let mut plain = Tensor::new_3d(Format::F32, 2, 32, 64)?;
    let values = [first.dequantize(&cpu)?, second.dequantize(&cpu)?];
    plain.set_data_list(&[&values[0][..], &values[1]])?;
    let mut input = Tensor::new(Format::F32, 5, 64)?;
    input.set_const_data(&x)?.set_groups(&ends)?;
    let mut sums = [vec![0f32; 5 * 32], vec![0f32; 5 * 32]];
    for (weights, sums) in [listed, plain].iter().zip(&mut sums) {
        let mut out = Tensor::new(Format::F32, 5, 32)?;
        out.set_data(sums)?;
        grouped_gemm(&cpu, None, &input, weights, &mut out)?;
    }
    assert!(sums[0].iter().zip(&sums[1]).all(|(a, b)| (a - b).abs() <= 1e-4 * (1.0 + b.abs())) && sums[0][159] != 0.0);

    let mut wrong = Tensor::new_3d(Format::Mxfp4, 2, 32, 64)?;
    let said = message(wrong.set_part_list(Part::Rowwise, &[first.codes(), second.codes()], &scales[..1]).map(drop));
    assert!(said.contains("scales has 1 experts, expected 2, as codes has"), "{said}");
    let said = message(wrong.set_part_list(Part::Rowwise, &[first.codes(), &second.codes()[1..]], &scales).map(drop));
    assert!(said.contains("codes[1] has 1023 elements, expected 1024, as codes[0] has"), "{said}");
    Ok(())
}

#[test]
fn threads_of_the_host_do_the_work() -> Result<()> {
    let x = numbers(512 * 512, 3);
    let expected = Quantized::new(&Context::cpu_with_threads(1)?, Format::Mxfp8E4m3, &x, 512, 512)?;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let mut options = ContextOptions::new()?;
    options.set_threads(4)?.set_parallel_for(move |count, task| {
        counted.fetch_add(1, Ordering::Relaxed);
        // More often than there are tasks, which does nothing.
        std::thread::scope(|scope| (0..count + 3).for_each(|_| drop(scope.spawn(task))));
    })?;
    let cpu = Context::new(Device::Cpu, 0, Some(&options))?;
    drop(options);
    assert_eq!(Arc::strong_count(&calls), 2); // the context keeps the closure
    assert_eq!(Quantized::new(&cpu, Format::Mxfp8E4m3, &x, 512, 512)?, expected);
    assert!(calls.load(Ordering::Relaxed) > 0 && cpu.description().contains("4 threads of the host"));
    drop(cpu);
    assert_eq!(Arc::strong_count(&calls), 1); // freed with the last context
    Ok(())
}

#[test]
fn a_panic_of_the_host_s_threads_costs_nothing() -> Result<()> {
    let x = numbers(512 * 512, 3);
    let expected = Quantized::new(&Context::cpu_with_threads(1)?, Format::Mxfp8E4m3, &x, 512, 512)?;
    let mut options = ContextOptions::new()?;
    options.set_threads(4)?.set_parallel_for(|_, _| panic!("the pool is closed"))?;
    let cpu = Context::new(Device::Cpu, 0, Some(&options))?;
    assert_eq!(Quantized::new(&cpu, Format::Mxfp8E4m3, &x, 512, 512)?, expected);
    assert!(message(options.set_own_threads(true).map(drop)).starts_with("InvalidArgument"));
    Ok(())
}

#[test]
fn the_log_comes_to_a_closure() -> Result<()> {
    let (lines, me) = (Arc::new(Mutex::new(Vec::new())), std::thread::current().id());
    let taken = lines.clone();
    set_log(LogLevel::Info, move |level, line| {
        if std::thread::current().id() == me {
            taken.lock().unwrap().push((level, line.to_owned())); // other tests run at the same time
            panic!("a panic stays here");
        }
    })?;
    let cpu = Context::cpu()?;
    Quantized::new(&cpu, Format::Mxfp8E4m3, &numbers(4 * 64, 1), 4, 64)?;
    reset_log()?;
    Quantized::new(&cpu, Format::Mxfp8E4m3, &numbers(4 * 64, 1), 4, 64)?;
    let expected = "CPU: quantize, f32 4 x 64, mxfp8_e4m3 4 x 64 1x32 rowwise: cpu";
    assert_eq!(*lines.lock().unwrap(), [(LogLevel::Info, expected.to_owned())]);
    Ok(())
}

#[test]
fn quantized_is_made_of_bytes_that_are_there() -> Result<()> {
    let cpu = Context::cpu()?;
    let x = numbers(4 * 64, 7);
    for format in [Format::Mxfp8E4m3, Format::Mxfp6E3m2, Format::Mxfp4, Format::Fp8E4m3] {
        let made = Quantized::new(&cpu, format, &x, 4, 64)?;
        let scales = match made.scale_floats() {
            Some(floats) => Scales::Floats(floats.to_vec()),
            None => Scales::Bytes(made.scale_bytes().unwrap().to_vec()),
        };
        let loaded = Quantized::from_parts(format, 4, 64, made.codes().to_vec(), scales, None)?;
        assert_eq!(loaded.dequantize(&cpu)?, made.dequantize(&cpu)?);
        let mut input = Tensor::new(Format::F32, 4, 64)?;
        input.set_const_data(&x)?;
        let mut sums = vec![0f32; 16];
        let mut out = Tensor::new(Format::F32, 4, 4)?;
        out.set_data(&mut sums)?;
        gemm(&cpu, None, &input, &loaded.tensor()?, &mut out)?;
        assert!((sums[0] - x[..64].iter().map(|x| x * x).sum::<f32>()).abs() < 2.0, "{format:?}: {}", sums[0]);
    }
    let one = Quantized::from_parts(Format::Nvfp4, 1, 16, vec![0x22; 8], vec![0x38u8], Some(6.0 * 448.0))?;
    assert_eq!(one.dequantize(&cpu)?, [1.0; 16]);

    let refused = |format, codes, scales: Scales, amax| message(Quantized::from_parts(format, 1, 32, codes, scales, amax));
    let bytes = || Scales::from(vec![127u8]);
    let said = refused(Format::Mxfp8E4m3, vec![0; 31], bytes(), None);
    assert!(said.ends_with("from_parts: codes has 31 elements, expected 32 for Mxfp8E4m3 1 x 32"), "{said}");
    let said = refused(Format::Mxfp8E4m3, vec![0; 32], vec![1f32].into(), None);
    assert!(said.ends_with("scales are f32, expected Vec<u8> for Mxfp8E4m3"), "{said}");
    let said = refused(Format::Fp8E4m3, vec![0; 32], vec![127u8; 4].into(), None);
    assert!(said.ends_with("scales are bytes, expected Vec<f32> for Fp8E4m3"), "{said}");
    assert!(refused(Format::Mxfp8E4m3, vec![0; 32], vec![0u8; 2].into(), None).contains("scales has 2 elements, expected 1"));
    assert!(refused(Format::Mxfp8E4m3, vec![0; 32], bytes(), Some(1.0)).contains("amax is a number, expected None"));
    assert!(refused(Format::Nvfp4, vec![0; 16], vec![0u8; 2].into(), None).contains("amax is None, expected a number"));
    assert!(refused(Format::Bf16, vec![0; 64], bytes(), None).contains("format is Bf16"));
    Ok(())
}
