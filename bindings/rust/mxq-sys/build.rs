//! Finds libmxq: in the folder that MXQ_LIB_DIR names, or else where pkg-config says.
use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=MXQ_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    if let Ok(folder) = env::var("MXQ_LIB_DIR") {
        link(&folder);
        println!("cargo:rustc-link-lib=dylib=mxq");
        return;
    }
    let found = Command::new("pkg-config").args(["--libs", "libmxq"]).output();
    let Some(flags) = found.ok().filter(|output| output.status.success()) else {
        panic!(
            "libmxq was not found: install it so that `pkg-config --libs libmxq` finds it, or name its folder in MXQ_LIB_DIR"
        );
    };
    for flag in String::from_utf8_lossy(&flags.stdout).split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            link(folder);
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={library}");
        }
    }
}

/// Also tells dependents the folder, as DEP_MXQ_LIB_DIR in their build scripts.
fn link(folder: &str) {
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:lib_dir={folder}");
}
