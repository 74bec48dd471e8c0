//! Lets this package's own tests and examples find the library where it was linked.
fn main() {
    if let Ok(folder) = std::env::var("DEP_MXQ_LIB_DIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
