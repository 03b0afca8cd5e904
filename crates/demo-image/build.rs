//! Compiles the program of the demo image with the compiler that compiles this crate, for the same target, so that the
//! image can be embedded: static, position-dependent and without symbols, because nothing else is in the image.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;

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
    let packed = output.with_extension("gz");
    pack(&output, &packed).expect("the demo program can be packed");
    println!("cargo:rustc-env=DEMO_PROGRAM_PACKED={}", packed.display());
}

/// Half of the program is zeros and tables, which need not be carried around.
fn pack(program: &Path, packed: &Path) -> std::io::Result<()> {
    let mut packing = GzEncoder::new(File::create(packed)?, Compression::best());
    std::io::copy(&mut File::open(program)?, &mut packing)?;
    packing.finish().map(drop)
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
