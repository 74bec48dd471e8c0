//! Buffers in memory of another device than the context's are refused by name, before anything is read or written.
use mxq::launch::{self, Launch};
use mxq::*;

/// Numbers of a GPU that does not exist: a verb that read them would end the process.
fn on_device<T: Copy>(len: usize) -> DeviceSlice<'static, T> {
    // SAFETY: the tests show that nobody reads it.
    unsafe { DeviceSlice::from_raw(0x1000_0000, len, 3) }
}

fn message<T>(result: Result<T>) -> String {
    result.err().map_or("no error".to_owned(), |error| error.to_string())
}

/// Refuses a call for one buffer on the GPU.
fn require_refusal<T>(result: Result<T>, buffer: &str) {
    let expected = format!("{buffer} is memory of CUDA 3, expected memory of the host; use a context of that device with");
    let said = message(result);
    assert!(said.starts_with("InvalidArgument: mxq_") && said.contains(&expected), "{said}");
}

/// An F32 tensor of 2 x 64 in memory of the host.
fn f32_of(data: &mut [f32]) -> Result<Tensor<'_>> {
    let mut tensor = Tensor::new(Format::F32, 2, 64)?;
    tensor.set_data(data)?;
    Ok(tensor)
}

#[test]
fn each_buffer_of_a_tensor() -> Result<()> {
    let cpu = Context::cpu()?;
    let (mut data, mut more, ends) = (vec![1f32; 128], vec![0f32; 128], [1, 2]);
    let mut input = f32_of(&mut data)?;
    let (mut codes, mut scales, mut amax) = (vec![0u8; 64], vec![0u8; 8], [1f32]);
    let mut q = Tensor::new(Format::Nvfp4, 2, 64)?;
    q.set_part(Part::Rowwise, &mut codes, &mut scales)?.set_amax(Part::Rowwise, &mut amax)?;

    let mut tensor = Tensor::new(Format::F32, 2, 64)?;
    require_refusal(quantize(&cpu, None, tensor.set_data(on_device::<f32>(128))?, &mut q), "in.data");
    require_refusal(quantize(&cpu, None, tensor.set_const_data(on_device::<u8>(512))?, &mut q), "in.data");
    require_refusal(quantize_query(&cpu, None, &tensor, &q), "in.data");
    require_refusal(quantize(&cpu, None, tensor.set_memory(Part::Rowwise, on_device(512))?, &mut q), "in.data");
    let indices = on_device::<i64>(2);
    require_refusal(convert(&cpu, None, input.set_row_indices(indices, 2)?, &mut f32_of(&mut more)?), "in.row_indices");
    input.declare_row_indices(Type::Int64, 2)?;
    require_refusal(pad_groups(&cpu, None, input.set_groups(on_device::<i32>(2))?, &mut f32_of(&mut more)?), "in.groups");
    let mut padded = Tensor::new(Format::F32, 2, 64)?;
    padded.set_data(&mut more)?.set_groups(&ends)?.set_padded_groups(Part::Rowwise, on_device::<i32>(2), on_device(2))?;
    let mut x = vec![1f32; 128];
    let mut grouped = f32_of(&mut x)?;
    require_refusal(pad_groups(&cpu, None, grouped.set_groups(&ends)?, &mut padded), "out.rowwise.padded_starts");

    let mut plain = vec![0f32; 128];
    let mut out = f32_of(&mut plain)?;
    require_refusal(dequantize(&cpu, None, q.set_amax(Part::Rowwise, on_device(1))?, &mut out), "in.rowwise.amax");
    let mut read = Tensor::new(Format::Nvfp4, 2, 64)?;
    read.set_part(Part::Columnwise, on_device(64), on_device::<u8>(64))?;
    require_refusal(dequantize(&cpu, None, &read, &mut out), "in.columnwise.codes");
    let (host_codes, scale) = (vec![0u8; 64], [1f32]);
    let mut read = Tensor::new(Format::Nvfp4, 2, 64)?;
    read.set_const_part(Part::Rowwise, &host_codes, on_device::<u8>(8))?.set_decode_scale(Part::Rowwise, &scale)?;
    require_refusal(dequantize(&cpu, None, &read, &mut out), "in.rowwise.scales");
    let host_scales = vec![0u8; 8];
    read.set_const_part(Part::Rowwise, &host_codes, &host_scales)?.set_decode_scale(Part::Rowwise, on_device(1))?;
    require_refusal(dequantize(&cpu, None, &read, &mut out), "in.rowwise.decode_scale");
    let mut delayed = Tensor::new(Format::Fp8E4m3, 2, 64)?;
    let (mut fp8, mut one) = (vec![0u8; 128], [0f32]);
    delayed.set_part(Part::Rowwise, &mut fp8, &mut one)?.set_quantization_scale(on_device(1))?;
    require_refusal(quantize(&cpu, None, &out, &mut delayed), "out.quantization_scale");
    Ok(())
}

#[test]
fn a_buffer_of_the_host_replaces_one_of_the_device() -> Result<()> {
    let cpu = Context::cpu()?;
    let (x, mut codes, mut scales) = (vec![1f32; 128], vec![0u8; 128], vec![0u8; 4]);
    let (mut input, mut out) = (Tensor::new(Format::F32, 2, 64)?, Tensor::new(Format::Mxfp8E4m3, 2, 64)?);
    input.set_const_data(on_device::<f32>(128))?.set_const_data(&x)?;
    out.set_memory(Part::Both, on_device(1024))?;
    require_refusal(quantize(&cpu, None, &input, &mut out), "out.rowwise.codes");
    out.set_part(Part::Rowwise, &mut codes, &mut scales)?;
    require_refusal(quantize(&cpu, None, &input, &mut out), "out.columnwise.codes");
    out.declare_part(Part::Columnwise)?;
    assert!(message(quantize(&cpu, None, &input, &mut out)).starts_with("MissingBuffer"));

    let mut kept = Tensor::new(Format::F32, 2, 64)?.unbind();
    kept.bind()?.set_const_data(on_device::<f32>(128))?;
    let mut copy = vec![0f32; 128];
    convert(&cpu, None, kept.bind()?.set_const_data(&x)?, Tensor::new(Format::F32, 2, 64)?.set_data(&mut copy)?)?;
    assert_eq!(copy, x);
    Ok(())
}

#[test]
fn each_array_of_options() -> Result<()> {
    let cpu = Context::cpu()?;
    let (mut data, mut more) = (vec![1f32; 128], vec![0f32; 64]);
    let input = f32_of(&mut data)?;
    let (mut codes, mut scales) = (vec![0u8; 64], vec![0u8; 4]);
    let mut q = Tensor::new(Format::Mxfp4, 2, 64)?;
    q.set_part(Part::Rowwise, &mut codes, &mut scales)?;
    let mut random = QuantizeOptions::new()?;
    random.set_stochastic_rounding(on_device::<u64>(2))?;
    require_refusal(quantize(&cpu, Some(&random), &input, &mut q), "options.seed_offset");
    let mut biased = GemmOptions::new()?;
    biased.set_bias(Format::Bf16, on_device::<u16>(2))?;
    let mut sums = vec![0f32; 4];
    let mut d = Tensor::new(Format::F32, 2, 2)?;
    require_refusal(gemm(&cpu, Some(&biased), &input, &input, d.set_data(&mut sums)?), "options.bias");

    let (mut half, mut gradients) = (Tensor::new(Format::F32, 2, 32)?, vec![0f32; 128]);
    half.set_data(&mut more)?;
    let mut options = ActivateOptions::new()?;
    options.set_bias(Format::F32, on_device::<f32>(64))?;
    require_refusal(activate(&cpu, Some(&options), &input, &mut half), "options.bias");
    let mut options = ActivateOptions::new()?;
    options.set_row_weights(Format::F32, on_device::<f32>(2))?;
    require_refusal(activate(&cpu, Some(&options), &input, &mut half), "options.row_weights");
    let mut options = ActivateOptions::new()?;
    options.set_quantize_options(&random)?;
    require_refusal(activate(&cpu, Some(&options), &input, &mut half), "options.quantize.seed_offset");
    let mut out = f32_of(&mut gradients)?;
    let mut options = ActivateOptions::new()?;
    options.set_bias_gradient(on_device(64))?;
    require_refusal(activate_backward(&cpu, Some(&mut options), &half, &input, &mut out), "options.bias_gradient");
    let mut options = ActivateOptions::new()?;
    options.set_row_weight_gradient(on_device(2))?;
    require_refusal(activate_backward(&cpu, Some(&mut options), &half, &input, &mut out), "options.row_weight_gradient");
    Ok(())
}

#[test]
fn each_array_of_a_routing_and_of_the_layer() -> Result<()> {
    let cpu = Context::cpu()?;
    let (ids, weights, mut memory) = ([0, 1], [1f32; 2], Memory::new(4 * 256));
    let mut routing = Routing::new(2, 1, 2)?;
    assert_eq!(routing.required_bytes()?, memory.len());
    routing.set_memory(&mut memory)?;
    require_refusal(route(&cpu, None, routing.set_ids(on_device::<i64>(2))?), "routing.ids");
    routing.set_ids(&ids)?;
    require_refusal(route(&cpu, None, routing.set_weights(Format::F32, on_device::<f32>(2))?), "routing.weights");
    require_refusal(route_query(&cpu, None, &routing), "routing.weights");
    routing.set_weights(Format::F32, &weights)?;
    let mut counted = Routing::new(2, 1, 2)?;
    counted.set_ids(&ids)?.set_memory(on_device(1024))?;
    require_refusal(route(&cpu, None, &mut counted), "routing.memory");
    let said = message(counted.ends());
    assert!(said.contains("routing.ends is memory of CUDA 3, expected memory of the host; call device_arrays"), "{said}");
    let arrays = counted.device_arrays()?;
    let starts = [arrays.ends.address(), arrays.row_tokens.address(), arrays.choice_rows.address()];
    assert_eq!(starts, [0x1000_0000, 0x1000_0100, 0x1000_0200]);
    assert_eq!((arrays.row_weights.len(), arrays.ends.ordinal()), (2, 3));
    let mut data = vec![0f32; 128];
    let mut input = f32_of(&mut data)?;
    let mut copy = vec![0f32; 128];
    require_refusal(convert(&cpu, None, input.set_routing_rows(&counted)?, &mut f32_of(&mut copy)?), "in.groups");

    routing.set_dropped(on_device(1))?;
    require_refusal(route(&cpu, None, &mut routing), "routing.dropped");
    let (rows, ends) = ([0, 1], [1, 2]);
    let mut computed = Routing::new(2, 1, 2)?;
    computed.set_computed(&ends, &rows, on_device(2), None::<&[f32]>)?;
    let (mut x, mut y) = (vec![0f32; 128], vec![0f32; 128]);
    let (x, mut y) = (f32_of(&mut x)?, f32_of(&mut y)?);
    require_refusal(combine(&cpu, None, &computed, &x, None, &mut y), "routing.choice_rows");
    assert!(message(computed.device_arrays()).contains("routing.ends is memory of the host"));
    assert_eq!(computed.ends()?, ends);
    let mut computed = Routing::new(2, 1, 2)?;
    computed.set_computed(&ends, &rows, &rows, None::<&[f32]>)?;
    let mut far = Tensor::new(Format::F32, 2, 64)?;
    far.set_const_data(on_device::<f32>(128))?;
    require_refusal(combine(&cpu, None, &computed, &x, Some(&far), &mut y), "residual.data");
    require_refusal(combine_backward(&cpu, None, &computed, &x, Some(&far), Some(&mut y), None), "in.data");

    let (gate_up, down) = (Tensor::new_3d(Format::F32, 2, 64, 64)?, Tensor::new_3d(Format::F32, 2, 64, 32)?);
    let mut options = ExpertLayerOptions::new()?;
    options.set_residual(&far)?;
    let mut layer =
        |options: &ExpertLayerOptions| expert_layer(&cpu, Some(options), &x, &mut computed, &gate_up, &down, &mut y);
    require_refusal(layer(&options), "options.residual.data");
    let mut options = ExpertLayerOptions::new()?;
    require_refusal(layer(options.set_gate_up_bias(Format::F32, on_device::<f32>(128))?), "options.gate_up_bias");
    let mut options = ExpertLayerOptions::new()?;
    require_refusal(layer(options.set_down_bias(Format::F32, on_device::<f32>(128))?), "options.down_bias");
    let (mut activation, mut options) = (ActivateOptions::new()?, ExpertLayerOptions::new()?);
    activation.set_bias(Format::F32, on_device::<f32>(128))?;
    require_refusal(layer(options.set_activate_options(&activation)?), "options.activate.bias");
    let (mut random, mut options) = (QuantizeOptions::new()?, ExpertLayerOptions::new()?);
    random.set_stochastic_rounding(on_device::<u64>(2))?;
    require_refusal(layer(options.set_quantize_options(&random)?), "options.quantize.seed_offset");
    Ok(())
}

#[test]
fn what_the_format_is_decides_the_elements_of_a_device_too() -> Result<()> {
    let mut bf16 = Tensor::new(Format::Bf16, 2, 64)?;
    let said = message(bf16.set_const_data(on_device::<f32>(128)).map(drop));
    assert!(said.contains("data has elements of f32 (4 bytes), expected u16 or i16 for Bf16"), "{said}");
    let cpu = Context::cpu()?;
    let mut y = vec![0f32; 128];
    let short = bf16.set_const_data(on_device::<u16>(100))?;
    require_refusal(convert(&cpu, None, short, &mut f32_of(&mut y)?), "in.data"); // before the library sees the extent
                                                                                  // SAFETY: as above.
    let quantized = unsafe { Tensor::from_device_ptr(Format::Mxfp4, 2, 64, 0x1000, 0) };
    assert!(message(quantized).contains("mxq_tensor_set_data: tensor is mxfp4"));
    Ok(())
}

#[test]
fn a_cpu_context_has_no_workspace_and_no_stream() -> Result<()> {
    let cpu = Context::cpu()?;
    let (mut x, mut y) = (vec![1f32; 128], vec![0f32; 128]);
    let (input, mut out) = (f32_of(&mut x)?, f32_of(&mut y)?);
    let with_workspace = Launch { workspace: Some(on_device(256)), stream: Stream::DEFAULT };
    // SAFETY: the work of a CPU context is done when the call returns.
    unsafe {
        require_refusal(launch::convert(&cpu, None, &input, &mut out, with_workspace), "launch.workspace");
        let on_stream = Launch { workspace: None, stream: Stream::from_raw(0x10 as *mut _) };
        let said = message(launch::convert(&cpu, None, &input, &mut out, on_stream));
        assert!(said.starts_with("InvalidArgument: mxq_convert: stream is"), "{said}");
        launch::convert(&cpu, None, &input, &mut out, Launch::NONE)?;
    }
    assert_eq!(y, x);
    Ok(())
}
