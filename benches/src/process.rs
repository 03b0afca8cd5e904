//! What another process costs, as the kernel counts it.

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

fn memory_mib(pid: u32, field: &'static str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context(field)?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}
