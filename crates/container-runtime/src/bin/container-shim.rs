//! The shim as a program of its own, for the tests of this crate. knarr itself becomes a shim in the same way.

fn main() {
    container_runtime::shim::main(std::env::args_os().skip(2))
}
