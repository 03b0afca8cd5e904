//! Nothing opens a file that a container or a user could have put there, except by this crate: `file` and `path` look at what is
//! there before they open it, and say how much of it is read and with what mode it is made.
//!
//! Held by looking through the sources of what runs on nodes. Files of the kernel, which nobody else makes, may be opened as
//! they are; what else does it, and why it may, stands in the list below.

use std::path::{Path, PathBuf};

const CRATES: [&str; 3] = ["kubelet", "container-runtime", "cni"];
const OPENS: [&str; 9] = [
    "fs::read(",
    "fs::read_to_string(",
    "fs::write(",
    "File::open(",
    "File::create(",
    "File::options(",
    "OpenOptions::new(",
    "tokio::fs::read(",
    "tokio::fs::write(",
];
/// What only the kernel makes. The marks of its folders, where a path is put together.
const KERNEL: [&str; 7] =
    ["\"/proc/", "\"/sys/", "\"/dev/", "cgroup.", "memory.stat", "nr_hugepages", "/etc/resolv.conf"];

/// Where else something is opened: file, what is on the line, and why it may be.
const KNOWN: &[(&str, &str, &str)] = &[
    ("kubelet/src/node/machine.rs", "read_to_string(path)", "files below /proc and /sys"),
    ("kubelet/src/managers/read.rs", "read_to_string(path)", "files below /sys"),
    ("kubelet/src/managers/read.rs", "folder.join(", "files below /sys"),
    ("kubelet/src/node/addresses.rs", "read_to_string(path)", "files below /proc"),
    ("kubelet/src/stats/mod.rs", "read_to_string(path)", "files below /proc"),
    ("kubelet/src/eviction/mod.rs", "read_to_string(path)", "files of cgroups"),
    ("kubelet/src/eviction/stall.rs", "open(FILE)", "/proc/pressure/memory"),
    (
        "container-runtime/src/exec.rs",
        "File::open(netns)",
        "a namespace in the runtime's own folder, which only root enters",
    ),
    ("container-runtime/src/apparmor.rs", "fs::write(REMOVE", "a file of the security module"),
    ("container-runtime/src/spec/host.rs", "fs::read_to_string(path)", "files below /proc and /sys"),
    ("container-runtime/src/image/store.rs", "File::open(&self.root)", "the store's own folder, to sync it"),
    (
        "container-runtime/src/image/work.rs",
        "read_to_string(path.join(LEASE))",
        "a lease that this file has just opened as a regular one",
    ),
    (
        "container-runtime/src/image/registry.rs",
        "std::fs::read(path)",
        "certificates that the operator's settings name",
    ),
    ("container-runtime/src/shim/cgroups.rs", "folder.join(", "files of cgroups"),
    ("container-runtime/src/shim/oci.rs", "File::open(folder)", "the container's own folder, which only root enters"),
    ("cni/src/exec/configuration.rs", "std::fs::read(path)", "the operator's folder of CNI configurations"),
    ("cni/src/exec/mod.rs", "std::fs::read(&path)", "the network's own folder, which only root enters"),
    ("cni/src/builtin/claims.rs", "std::fs::read(&path)", "the network's own folder, which only root enters"),
    ("cni/src/builtin/mod.rs", "read_to_string(&path)", "the network's own folder, which only root enters"),
    ("cni/src/builtin/mod.rs", "File::open(&claim.namespace)", "a namespace, only to see whether it is there"),
    ("cni/src/builtin/links.rs", "File::open(namespace)", "a namespace in the runtime's own folder"),
    ("cni/src/builtin/sysctl.rs", "path", "files below /proc/sys"),
    ("cni/src/builtin/sysctl.rs", "&listens", "files below /proc/sys"),
];

#[test]
fn nothing_else_opens_what_others_could_have_put_there() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of crates");
    let (mut found, mut seen) = (Vec::new(), vec![false; KNOWN.len()]);
    for name in CRATES {
        for file in sources(&crates.join(name).join("src")) {
            let text = std::fs::read_to_string(&file).expect("a source");
            let short = file.strip_prefix(crates).expect("below").display().to_string();
            for (number, line) in code(&text) {
                let opens = OPENS.iter().any(|one| line.contains(one));
                if !opens || KERNEL.iter().any(|one| line.contains(one)) {
                    continue;
                }
                match KNOWN.iter().position(|(file, part, _)| *file == short && line.contains(part)) {
                    Some(place) => seen[place] = true,
                    None => found.push(format!("{short}:{number}: {}", line.trim())),
                }
            }
        }
    }
    assert!(found.is_empty(), "open these by linux::file or linux::path, or say here why not:\n{}", found.join("\n"));
    let gone: Vec<&str> = KNOWN.iter().zip(&seen).filter(|(_, seen)| !**seen).map(|((file, _, _), _)| *file).collect();
    assert!(gone.is_empty(), "these are not there any more: {gone:?}");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of sources").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        match path.is_dir() {
            true if name != "tests" && name != "testdata" => found.extend(sources(&path)),
            true => {}
            false if name.ends_with(".rs") && !name.ends_with("tests.rs") && !is_test(&path) => found.push(path),
            false => {}
        }
    }
    found
}

/// A module that its parent has only for tests.
fn is_test(path: &Path) -> bool {
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let parent = path.parent().expect("a folder");
    let above = [parent.join("mod.rs"), parent.join("lib.rs"), parent.with_extension("rs")];
    let declared = format!("#[cfg(test)]\nmod {name};");
    let public = format!("#[cfg(test)]\npub mod {name};");
    above.iter().any(|file| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.contains(&declared) || text.contains(&public)
    })
}

/// The lines before the tests at the end of a file.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let end = lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{'));
    lines.into_iter().take(end.unwrap_or(usize::MAX)).enumerate().map(|(place, line)| (place + 1, line))
}
