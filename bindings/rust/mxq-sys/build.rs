//! Finds libmxq: in the folder that MXQ_LIB_DIR names, or else where pkg-config says. With the feature `static` it is `libmxq.a`,
//! which the program then contains.
use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=MXQ_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let is_static = env::var_os("CARGO_FEATURE_STATIC").is_some();
    if let Ok(folder) = env::var("MXQ_LIB_DIR") {
        link_folder(&folder);
        link_mxq(is_static);
        // Libraries that libmxq.a needs in addition to those that Rust links. pkg-config would tell them.
        if is_static {
            ["stdc++", "m", "dl", "pthread", "rt"].into_iter().for_each(link);
        }
        return;
    }
    let options: &[&str] = if is_static { &["--static", "--libs", "libmxq"] } else { &["--libs", "libmxq"] };
    let found = Command::new("pkg-config").args(options).output();
    let Some(flags) = found.ok().filter(|output| output.status.success()) else {
        panic!(
            "libmxq was not found: install it so that `pkg-config --libs libmxq` finds it, or name its folder in MXQ_LIB_DIR"
        );
    };
    for flag in String::from_utf8_lossy(&flags.stdout).split_whitespace() {
        if let Some(folder) = flag.strip_prefix("-L") {
            link_folder(folder);
        } else if flag == "-lmxq" {
            link_mxq(is_static);
        } else if let Some(library) = flag.strip_prefix("-l") {
            link(library);
        }
    }
}

fn link_mxq(is_static: bool) {
    println!("cargo:rustc-link-lib={}=mxq", if is_static { "static" } else { "dylib" });
}

fn link(library: &str) {
    println!("cargo:rustc-link-lib={library}");
}

/// Also tells dependents the folder, as DEP_MXQ_LIB_DIR in their build scripts.
fn link_folder(folder: &str) {
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:lib_dir={folder}");
}
