//! Packs the page that npm has built (`web/dist`) into the program: each file compressed once, here. Without it the
//! crate still builds, with one page that says what is missing. A page that is being built is waited for.

use std::io::Write;
use std::path::{Path, PathBuf};

const MISSING: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>knarr</title>\
    <p>This knarr was built without the dashboard's page: run <code>make build</code>.</p></html>\n";

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let dist = here.join("web/dist");
    println!("cargo:rerun-if-changed=build.rs");
    // A folder that is not there is looked for at every build: cargo cannot watch it.
    println!("cargo:rerun-if-changed={}", dist.display());
    wait_for_page(&here.join("web/.page-lock"));
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        collect(&dist, &dist, &mut files);
        files.sort();
    }
    let mut table = String::from("pub(super) static FILES: &[File] = &[\n");
    if files.is_empty() {
        table.push_str(&entry(&out, 0, "index.html", MISSING.as_bytes()));
    }
    for (number, name) in files.iter().enumerate() {
        let content = std::fs::read(dist.join(name)).expect("a file of the page can be read");
        table.push_str(&entry(&out, number, name, &content));
    }
    table.push_str("];\n");
    std::fs::write(out.join("files.rs"), table).expect("OUT_DIR can be written");
}

/// `scripts/build-page` holds the lock while it builds, beside all that is compiled before this crate.
fn wait_for_page(lock: &Path) {
    // Nobody has built a page here yet.
    let Ok(lock) = std::fs::File::open(lock) else { return };
    lock.lock_shared().expect("a file can be locked");
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the page can be read") {
        let path = entry.expect("its entries too").path();
        if path.is_dir() {
            collect(root, &path, files)
        } else {
            let name = path.strip_prefix(root).expect("it is below").to_str().expect("names are UTF-8");
            // Source maps are for whoever builds the page.
            if !name.ends_with(".map") {
                files.push(name.replace('\\', "/"));
            }
        }
    }
}

/// One line of the table; the compressed bytes stand in a file of their own.
fn entry(out: &Path, number: usize, name: &str, content: &[u8]) -> String {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(content).expect("memory can be written");
    let packed = packer.finish().expect("memory can be written");
    let file = out.join(format!("{number}.gz"));
    std::fs::write(&file, packed).expect("OUT_DIR can be written");
    format!(
        "    File {{ name: {name:?}, length: {}, packed: include_bytes!({:?}) }},\n",
        content.len(),
        file.display().to_string()
    )
}
