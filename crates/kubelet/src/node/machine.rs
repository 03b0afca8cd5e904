//! Facts about this machine: CPUs, memory, machine ids. Read from the kernel's texts, which the functions below take apart.

use std::collections::BTreeMap;
use std::path::Path;

/// Facts of the machine that do not change while it is up, except by hot-plugging.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    pub cpus: u64,
    pub memory_bytes: u64,
    pub swap_bytes: u64,
    /// Bytes in pages of each size that are set aside, by the size in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
    pub architecture: &'static str,
}

/// Reads it; what cannot be read is left empty, as upstream does.
pub fn read() -> Machine {
    let memory = text("/proc/meminfo");
    let memory = meminfo(&memory);
    let machine_id = first_of(&["/etc/machine-id", "/var/lib/dbus/machine-id"]);
    let system_uuid = first_of(&["/sys/class/dmi/id/product_uuid", "/proc/device-tree/system-id", "/etc/machine-id"]);
    Machine {
        cpus: cpus(&text("/sys/devices/system/cpu/online")).unwrap_or(1),
        memory_bytes: memory.get("MemTotal").copied().unwrap_or(0),
        swap_bytes: memory.get("SwapTotal").copied().unwrap_or(0),
        huge_pages: huge_pages(Path::new("/sys/kernel/mm/hugepages")),
        system_uuid,
        machine_id,
        boot_id: text("/proc/sys/kernel/random/boot_id").trim().to_owned(),
        kernel_version: text("/proc/sys/kernel/osrelease").trim().to_owned(),
        os_image: os_image(&first_of(&["/etc/os-release", "/usr/lib/os-release"])),
        architecture: architecture(std::env::consts::ARCH),
    }
}

/// The fields of `/proc/meminfo`, in bytes.
pub fn meminfo(text: &str) -> BTreeMap<&str, u64> {
    let field = |line| -> Option<(&str, u64)> {
        let (name, rest) = str::split_once(line, ':')?;
        let mut words = rest.split_whitespace();
        let number: u64 = words.next()?.parse().ok()?;
        Some((name, if words.next() == Some("kB") { number * 1024 } else { number }))
    };
    text.lines().filter_map(field).collect()
}

/// How many processors a list such as `0-3,8` names.
fn cpus(text: &str) -> Option<u64> {
    let range = |part: &str| -> Option<u64> {
        match part.split_once('-') {
            Some((from, to)) => Some(to.parse::<u64>().ok()?.checked_sub(from.parse().ok()?)? + 1),
            None => part.parse::<u64>().ok().map(|_| 1),
        }
    };
    text.trim().split(',').map(range).sum()
}

fn os_image(text: &str) -> String {
    let pretty = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    pretty
        .map(|name| name.trim_matches(['"', '\'']).to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or("Linux".into())
}

/// Go's names of architectures, which Kubernetes uses.
fn architecture(rust: &'static str) -> &'static str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

/// Folders `hugepages-2048kB` with how many pages each are set aside.
pub(crate) fn huge_pages(folder: &Path) -> BTreeMap<u64, u64> {
    let mut sizes = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let size =
            name.to_str().and_then(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok());
        let count = std::fs::read_to_string(entry.path().join("nr_hugepages")).unwrap_or_default();
        if let (Some(size), Ok(count)) = (size, count.trim().parse::<u64>()) {
            sizes.insert(size * 1024, count * size * 1024);
        }
    }
    sizes
}

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn first_of(paths: &[&str]) -> String {
    paths.iter().map(|path| text(path).trim().to_owned()).find(|text| !text.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_kernel() {
        let memory = meminfo("MemTotal:       24684100 kB\nHugePages_Total:       4\nbroken\nMemFree: x kB\n");
        assert_eq!(memory, BTreeMap::from([("MemTotal", 24_684_100 * 1024), ("HugePages_Total", 4)]));
        assert_eq!([cpus("0-3,8\n"), cpus("0\n"), cpus(""), cpus("3-1")], [Some(5), Some(1), None, None]);
        assert_eq!(
            os_image("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
            "Debian GNU/Linux 12 (bookworm)"
        );
        assert_eq!(os_image(""), "Linux");
    }

    #[test]
    fn this_machine_has_a_size_and_a_name() {
        let machine = read();
        assert!(machine.cpus > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(!machine.kernel_version.is_empty() && !machine.boot_id.is_empty(), "{machine:?}");
    }

    #[test]
    fn huge_pages_are_counted_by_size() {
        let folder = tempfile::tempdir().unwrap();
        for (name, count) in [("hugepages-2048kB", "3\n"), ("hugepages-1048576kB", "0\n"), ("other", "7")] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("nr_hugepages"), count).unwrap();
        }
        assert_eq!(huge_pages(folder.path()), BTreeMap::from([(2 << 20, 6 << 20), (1 << 30, 0)]));
    }
}
