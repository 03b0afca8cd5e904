//! Links the program small, and at a fixed address where that saves memory.
//!
//! Every pod has a shim, which is this program. Linked to run anywhere, it would be written to at each start, wherever it
//! holds an address, and a shim would own those pages: about a mebibyte of the program's constants. At a fixed address they stay
//! as they are in the file, and all shims share them with knarr. Upstream's programs are linked so, too.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo:rustc-link-arg-bins=-no-pie");
        // Code of generics that came out the same is kept once, which the linker that Rust brings along can do there.
        if target("ARCH") == "x86_64" {
            println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
        }
    }
}
