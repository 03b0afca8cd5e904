//! Components take the time from the clock they were given, so that a whole control plane can run on a simulated one.

use super::sources::{program, read, without_tests};

/// Programs at the edge, and those beside the kernel, whose times are of this machine.
const READERS: &[(&str, &str)] = &[
    ("crates/component-base/src/clock.rs", "the clock"),
    ("crates/container-runtime/src/image/", "times of files, which the kernel stamps, too"),
    ("crates/container-runtime/src/shim/", "a program of its own"),
    ("crates/cri/src/remote/events.rs", "speaks for a runtime of this machine"),
    ("crates/demo-image/program/", "a program of its own"),
    ("crates/knarr/", "hands out the clock"),
    ("crates/kubectl/", "a program of its own"),
    ("crates/kubelet/src/gc.rs", "compares with times of files, which the kernel stamps"),
    ("crates/store/src/conformance.rs", "names of folders of a test"),
    ("crates/store/src/embedded/clock.rs", "the seam of the embedded store"),
];

#[test]
fn components_read_no_clock_of_the_machine() {
    let reads = |line: &&str| {
        line.contains("Timestamp::now") || line.contains("SystemTime::now") || line.contains("Zoned::now")
    };
    let mut used = vec![false; READERS.len()];
    let mut found = Vec::new();
    for path in program() {
        let text = read(&path);
        let Some(line) = without_tests(&text).into_iter().find(reads) else { continue };
        match READERS.iter().position(|(one, _)| path.starts_with(one)) {
            Some(known) => used[known] = true,
            None => found.push(format!("{path}: {}", line.trim())),
        }
    }
    assert!(found.is_empty(), "take the time from component_base::clock::Clock:\n{}", found.join("\n"));
    let idle: Vec<&str> = READERS.iter().zip(used).filter(|(_, used)| !used).map(|((path, _), _)| *path).collect();
    assert!(idle.is_empty(), "an exception that nobody needs any more goes: {idle:?}");
}
