//! What another process costs, as the kernel counts it.

use std::collections::BTreeMap;

use anyhow::Context;

const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of processor time so far, in user and kernel mode together.
pub fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).context("a field of stat");
    Ok((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// Resident memory in MiB.
pub fn resident_mib(pid: u32) -> anyhow::Result<f64> {
    memory_mib(pid, "VmRSS:")
}

/// The most memory that was ever resident, in MiB.
pub fn peak_mib(pid: u32) -> anyhow::Result<f64> {
    memory_mib(pid, "VmHWM:")
}

/// Memory in MiB that the machine has left for programs.
pub fn available_mib() -> anyhow::Result<f64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).context("MemAvailable")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}

fn memory_mib(pid: u32, field: &'static str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context(field)?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}

/// Memory in KiB that no other process shares.
pub fn private_kib(pid: u32) -> anyhow::Result<f64> {
    Ok(mapped_kib(pid, "Private_Clean:")? + mapped_kib(pid, "Private_Dirty:")?)
}

/// Memory in MiB, where what several processes share is divided among them.
pub fn proportional_mib(pid: u32) -> anyhow::Result<f64> {
    Ok(mapped_kib(pid, "Pss:")? / 1024.0)
}

/// Memory in MiB that is no file's.
pub fn anonymous_mib(pid: u32) -> anyhow::Result<f64> {
    Ok(mapped_kib(pid, "Anonymous:")? / 1024.0)
}

fn mapped_kib(pid: u32, field: &'static str) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).context(field)?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// Bytes that it has caused to be written to disks so far.
pub fn written_bytes(pid: u32) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes:")).context("write_bytes")?;
    Ok(line.trim().parse()?)
}

/// How often each of its threads was put on a processor and left it again.
pub fn context_switches(pid: u32) -> anyhow::Result<BTreeMap<u32, f64>> {
    let mut threads = BTreeMap::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let Some(id) = thread.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let counts = status.lines().filter(|line| line.contains("ctxt_switches:"));
        threads.insert(id, counts.filter_map(|line| line.rsplit(':').next()?.trim().parse::<f64>().ok()).sum());
    }
    Ok(threads)
}

/// Every process below this one that is called so: `knarr shim`, say.
pub fn called(arguments: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").starts_with(arguments)
    };
    pids.filter(is).collect()
}
