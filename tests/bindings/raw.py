"""raw.py source-dir library: compares the generated _raw.py with the library that is loaded."""
import ctypes
import importlib.util
import sys

source, path = sys.argv[1:]
spec = importlib.util.spec_from_file_location("raw", f"{source}/bindings/python/src/mxq/_raw.py")
raw = importlib.util.module_from_spec(spec)
spec.loader.exec_module(raw)

library = ctypes.CDLL(path)
for name, (result, parameters) in raw.PROTOTYPES.items():
    function = getattr(library, name)
    function.restype, function.argtypes = result, parameters

constants = {name: value for name, value in vars(raw).items() if name.startswith("MXQ_")}
names = []
while library.mxq_constant_name(len(names)):
    names.append(library.mxq_constant_name(len(names)).decode())
assert sorted(names) == sorted(constants), set(names) ^ set(constants)
for name, value in constants.items():
    got = ctypes.c_int64()
    assert library.mxq_constant(name.encode(), ctypes.byref(got)) == 0 and got.value == value, name
for name, value in raw.FAMILIES["mxq_format"].items():
    assert library.mxq_format_name(value).decode() == name
print(f"{len(raw.PROTOTYPES)} functions, {len(constants)} constants")
assert len(raw.PROTOTYPES) > 100 and len(constants) > 60
