using MXQ, Test

@testset "constants" begin
    index = Int32(0)
    while (text = MXQ.Raw.mxq_constant_name(index)) != C_NULL
        name = unsafe_string(text)
        @test MXQ.constant(name) == getproperty(MXQ.Raw, Symbol(name))
        index += Int32(1)
    end
    @test index > 60
end

@testset "the first program of the C readme" begin
    x = zeros(Float32, 64, 2)
    x[1:4] = [1, -3.5, 0.25, 448]
    q = quantize(x, :mxfp8_e4m3)
    @test q.scales[1] == 127
    @test q.codes[1:4] == [0x38, 0xC6, 0x28, 0x7E]
end

@testset "$format" for format in (:mxfp8_e4m3, :mxfp8_e5m2, :mxfp6_e2m3, :mxfp6_e3m2, :mxfp4, :nvfp4, :fp8_e4m3, :fp8_e5m2)
    x, w = randn(Float32, 96, 40), randn(Float32, 96, 24)
    q, v = quantize(x, format), quantize(w, format)
    @test sum(abs2, dequantize(q) - x) < 0.05 * sum(abs2, x)
    @test matmul(q, v) ≈ dequantize(v)' * dequantize(q) rtol = 1e-4
    @test quantize(view(randn(Float32, 128, 40), 1:96, :), format) isa Quantized
end

@testset "refusals" begin
    @test_throws ArgumentError quantize(view(zeros(Float32, 64, 4), 1:2:64, :), :mxfp4)
    @test_throws MXQError matmul(quantize(zeros(Float32, 64, 4), :mxfp4), quantize(zeros(Float32, 32, 4), :mxfp4))
    @test_throws MXQError quantize(zeros(Float32, 64, 4), :mxfp9)
end
