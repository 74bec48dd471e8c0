"""
Microscaling formats (MXFP8, MXFP6, MXFP4, NVFP4, block FP8) by libmxq. Written from the header and never run: no Julia was at hand.

Julia's arrays are column-major and the library's matrices row-major: an array of size `(cols, rows)` is a matrix of `rows` rows,
each of them one column of the array. Blocks run down the columns of the array.

    using MXQ
    x = randn(Float32, 512, 128)                  # 128 tokens of 512 inputs
    w = randn(Float32, 512, 256)                  # 256 outputs of 512 inputs
    q, v = quantize(x, :mxfp8_e4m3), quantize(w, :mxfp4)
    y = matmul(q, v)                              # 256 x 128: w' * x
"""
module MXQ

export quantize, dequantize, matmul, Quantized, MXQError

"The raw part: every constant, type and function of mxq.h."
module Raw
const libmxq = get(ENV, "MXQ_LIBRARY", "libmxq.so.0")
include("raw.jl")
end

struct MXQError <: Exception
    status::Int32
    message::String
end

Base.showerror(io::IO, error::MXQError) = print(io, unsafe_string(Raw.mxq_status_name(error.status)), ": ", error.message)

check(status) = status == Raw.MXQ_STATUS_OK ? nothing : throw(MXQError(status, unsafe_string(Raw.mxq_last_error())))

"Value of a constant of the header by its name; throws for one that does not exist."
function constant(name::AbstractString)
    value = Ref{Int64}(0)
    check(Raw.mxq_constant(name, value))
    return value[]
end

format_number(format::Symbol) = Int32(constant("MXQ_FORMAT_" * uppercase(String(format))))

"A handle of the library with the function that destroys it, by the garbage collector or by `close`."
mutable struct Handle{T}
    address::Ptr{T}
    destroy::Function
    function Handle(address::Ptr{T}, destroy) where {T}
        handle = new{T}(address, destroy)
        finalizer(close, handle)
        return handle
    end
end

function Base.close(handle::Handle)
    handle.address == C_NULL || handle.destroy(handle.address)
    handle.address = C_NULL
    return nothing
end

function context(device::Integer = Raw.MXQ_DEVICE_CPU, ordinal::Integer = 0)
    out = Ref{Ptr{Raw.mxq_context}}(C_NULL)
    check(Raw.mxq_context_create(device, ordinal, C_NULL, out))
    return Handle(out[], Raw.mxq_context_destroy)
end

const cpu_context = Ref{Union{Nothing,Handle{Raw.mxq_context}}}(nothing)
const cpu_lock = ReentrantLock()

cpu() = lock(cpu_lock) do
    cpu_context[] === nothing && (cpu_context[] = context())
    return cpu_context[]::Handle{Raw.mxq_context}
end

function tensor(format::Int32, rows::Integer, cols::Integer)
    out = Ref{Ptr{Raw.mxq_tensor}}(C_NULL)
    check(Raw.mxq_tensor_create_2d(format, rows, cols, out))
    return Handle(out[], Raw.mxq_tensor_destroy)
end

plain_format(::Type{Float32}) = Raw.MXQ_FORMAT_F32
plain_format(::Type{Float16}) = Raw.MXQ_FORMAT_F16

"A quantized matrix with memory of its own: the rowwise part, with the default scaling."
struct Quantized
    format::Symbol
    rows::Int
    cols::Int
    codes::Vector{UInt8}
    scales::Vector{UInt8}
    amax::Vector{Float32}
end

Base.show(io::IO, q::Quantized) = print(io, "Quantized(", q.format, ", ", q.rows, " rows of ", q.cols, ")")

pointer_or_null(memory) = isempty(memory) ? C_NULL : pointer(memory)

"A descriptor of the quantized matrix. The matrix must be preserved while it is used."
function describe(q::Quantized)
    handle = tensor(format_number(q.format), q.rows, q.cols)
    check(Raw.mxq_tensor_set_part(handle.address, Raw.MXQ_PART_ROWWISE, pointer_or_null(q.codes), length(q.codes),
                                  pointer_or_null(q.scales), length(q.scales)))
    isempty(q.amax) || check(Raw.mxq_tensor_set_amax(handle.address, Raw.MXQ_PART_ROWWISE, pointer(q.amax), 4 * length(q.amax)))
    return handle
end

"A descriptor of an array of size (cols, rows) with neighbours of a column side by side."
function describe(x::StridedMatrix{T}) where {T}
    stride(x, 1) == 1 || throw(ArgumentError("the array has a stride of $(stride(x, 1)) along its columns, expected 1; make a copy"))
    cols, rows = size(x)
    handle = tensor(plain_format(T), rows, cols)
    stride(x, 2) == cols || check(Raw.mxq_tensor_set_row_stride(handle.address, stride(x, 2)))
    elements = isempty(x) ? 0 : (rows - 1) * stride(x, 2) + cols
    check(Raw.mxq_tensor_set_data(handle.address, pointer_or_null(x), elements * sizeof(T)))
    return handle
end

"    quantize(x, format): an array of size (cols, rows) to a format such as :mxfp8_e4m3, :mxfp4, :nvfp4 or :fp8_e4m3."
function quantize(x::StridedMatrix{<:Union{Float32,Float16}}, format::Symbol)
    cols, rows = size(x)
    sizes = tensor(format_number(format), rows, cols)
    codes, scales, amax = Ref{UInt64}(0), Ref{UInt64}(0), Ref{UInt64}(0)
    check(Raw.mxq_tensor_required_bytes(sizes.address, Raw.MXQ_PART_ROWWISE, codes, scales))
    check(Raw.mxq_tensor_required_amax_bytes(sizes.address, Raw.MXQ_PART_ROWWISE, amax))
    nvfp4 = format === :nvfp4
    q = Quantized(format, rows, cols, Vector{UInt8}(undef, codes[]), Vector{UInt8}(undef, scales[]),
                  Vector{Float32}(undef, nvfp4 ? amax[] ÷ 4 : 0))
    GC.@preserve x q begin
        input, output = describe(x), describe(q)
        check(Raw.mxq_quantize(cpu().address, C_NULL, input.address, output.address, C_NULL, 0, C_NULL))
        close(input), close(output), close(sizes)
    end
    return q
end

"    dequantize(q, T = Float32): the values, as an array of size (cols, rows)."
function dequantize(q::Quantized, ::Type{T} = Float32) where {T<:Union{Float32,Float16}}
    x = Matrix{T}(undef, q.cols, q.rows)
    GC.@preserve x q begin
        input, output = describe(q), describe(x)
        check(Raw.mxq_dequantize(cpu().address, C_NULL, input.address, output.address, C_NULL, 0, C_NULL))
        close(input), close(output)
    end
    return x
end

"    matmul(a, b): the product of the matrix a with the transpose of b, as an array of size (rows of b, rows of a)."
function matmul(a::Quantized, b::Quantized, ::Type{T} = Float32) where {T<:Union{Float32,Float16}}
    d = Matrix{T}(undef, b.rows, a.rows)
    GC.@preserve a b d begin
        left, right, out = describe(a), describe(b), describe(d)
        check(Raw.mxq_gemm(cpu().address, C_NULL, left.address, right.address, out.address, C_NULL, 0, C_NULL))
        close(left), close(right), close(out)
    end
    return d
end

end
