//! kubectl alone, without the rest of knarr: quick to build while working on it.

fn main() {
    std::process::exit(kubectl::main(std::env::args().skip(1).collect()));
}
