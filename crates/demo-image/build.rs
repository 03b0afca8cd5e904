//! Compiles the program of the demo image with the compiler that compiles this crate, for the same target, so that the
//! image can be embedded: static, position-dependent and without symbols, because nothing else is in the image.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=program");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let output = PathBuf::from(variable("OUT_DIR")).join("demo");
    let mut compiler = Command::new(variable("RUSTC"));
    compiler
        .args(["--edition", "2024", "--crate-name", "demo", "--crate-type", "bin"])
        .args(["--target", &variable("TARGET")])
        .args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "strip=symbols"])
        .args(["-C", "target-feature=+crt-static", "-C", "relocation-model=static"]);
    if let Ok(linker) = std::env::var("RUSTC_LINKER") {
        compiler.arg(format!("-Clinker={linker}"));
    }
    compiler.arg("-o").arg(&output).arg("program/main.rs");
    let status = compiler.status().expect("the compiler can be started");
    assert!(status.success(), "the demo program does not compile: {status}");
    println!("cargo:rustc-env=DEMO_PROGRAM={}", output.display());
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
