//! Figures of runtimes, drivers and folders, in the words of the Summary API. Data in, data out, but for sizes of filesystems.

use std::path::Path;

use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::disk::{self, Usage};
use super::is_local_ephemeral;
use super::types::*;
use crate::volumes::Amounts;

pub(super) fn filesystem_of(all: &[v1::FilesystemUsage], time: &str) -> Option<FsStats> {
    let first = all.first()?;
    let mut fs = disk::filesystem(Path::new(&first.fs_id.as_ref()?.mountpoint), time)?;
    // How full the disk is stands in the free bytes; the used ones are those of images alone.
    fs.used_bytes = first.used_bytes.as_ref().map(|it| it.value).or(fs.used_bytes);
    fs.inodes_used = first.inodes_used.as_ref().map(|it| it.value).or(fs.inodes_used);
    Some(fs)
}

pub(super) fn of_driver(amounts: Amounts, now: Timestamp) -> FsStats {
    let (bytes, inodes) = (amounts.bytes, amounts.inodes);
    FsStats {
        time: stamp(now),
        available_bytes: bytes.map(|it| it.available),
        capacity_bytes: bytes.map(|it| it.total),
        used_bytes: bytes.map(|it| it.used),
        inodes_free: inodes.map(|it| it.available),
        inodes: inodes.map(|it| it.total),
        inodes_used: inodes.map(|it| it.used),
    }
}

/// A folder's usage on its filesystem.
pub(super) fn on(fs: &FsStats, used: Usage, now: Timestamp) -> FsStats {
    FsStats { time: stamp(now), used_bytes: Some(used.bytes), inodes_used: Some(used.inodes), ..fs.clone() }
}

/// What counts against the node's ephemeral storage: writable layers, logs, and volumes on the node's disk.
pub(super) fn ephemeral(
    pod: &Pod,
    containers: &[ContainerStats],
    volumes: &[VolumeStats],
    node: &NodeStats,
    time: &str,
) -> FsStats {
    let local = volumes.iter().filter(|volume| is_local_ephemeral(pod, &volume.name));
    let parts: Vec<&FsStats> =
        containers.iter().flat_map(|it| [&it.rootfs, &it.logs]).chain(local.map(|volume| &volume.fs)).collect();
    FsStats {
        time: time.to_owned(),
        used_bytes: sum(parts.iter().map(|fs| fs.used_bytes)).or(Some(0)),
        inodes_used: sum(parts.iter().map(|fs| fs.inodes_used)).or(Some(0)),
        ..node.fs.clone()
    }
}

pub(super) fn memory_stats(memory: &v1::MemoryUsage) -> MemoryStats {
    let value = |value: &Option<v1::UInt64Value>| value.as_ref().map(|it| it.value);
    MemoryStats {
        time: stamp(from_nanos(memory.timestamp)),
        available_bytes: value(&memory.available_bytes),
        usage_bytes: value(&memory.usage_bytes),
        working_set_bytes: value(&memory.working_set_bytes),
        rss_bytes: value(&memory.rss_bytes),
        page_faults: value(&memory.page_faults),
        major_page_faults: value(&memory.major_page_faults),
        psi: memory.psi.as_ref().map(psi_stats),
    }
}

pub(super) fn io_stats(io: &v1::IoUsage) -> IoStats {
    IoStats { time: stamp(from_nanos(io.timestamp)), psi: io.psi.as_ref().map(psi_stats) }
}

pub(super) fn psi_stats(psi: &v1::PsiStats) -> PsiStats {
    let data = |data: &Option<v1::PsiData>| {
        let data = data.unwrap_or_default();
        PsiData { total: data.total, avg10: data.avg10, avg60: data.avg60, avg300: data.avg300 }
    };
    PsiStats { full: data(&psi.full), some: data(&psi.some) }
}

pub(super) fn network_stats(network: &v1::NetworkUsage) -> Option<NetworkStats> {
    let value = |value: &Option<v1::UInt64Value>| value.as_ref().map_or(0, |it| it.value);
    let interface = |it: &v1::NetworkInterfaceUsage| InterfaceStats {
        name: it.name.clone(),
        rx_bytes: value(&it.rx_bytes),
        rx_errors: value(&it.rx_errors),
        tx_bytes: value(&it.tx_bytes),
        tx_errors: value(&it.tx_errors),
    };
    let default = network.default_interface.as_ref().map(interface)?;
    let mut interfaces = vec![default.clone()];
    interfaces.extend(network.interfaces.iter().map(interface).filter(|it| it.name != default.name));
    Some(NetworkStats { time: stamp(from_nanos(network.timestamp)), default, interfaces })
}

pub(super) fn sum_cpu(containers: &[ContainerStats], time: &str) -> CpuStats {
    CpuStats {
        time: time.to_owned(),
        usage_nano_cores: sum(containers.iter().map(|it| it.cpu.usage_nano_cores)),
        usage_core_nano_seconds: sum(containers.iter().map(|it| it.cpu.usage_core_nano_seconds)),
        // What several waited for is no sum.
        psi: None,
    }
}

pub(super) fn sum_memory(containers: &[ContainerStats], time: &str) -> MemoryStats {
    let total = |of: fn(&MemoryStats) -> Option<u64>| sum(containers.iter().map(|it| of(&it.memory)));
    MemoryStats {
        time: time.to_owned(),
        available_bytes: total(|it| it.available_bytes),
        usage_bytes: total(|it| it.usage_bytes),
        working_set_bytes: total(|it| it.working_set_bytes),
        rss_bytes: total(|it| it.rss_bytes),
        page_faults: total(|it| it.page_faults),
        major_page_faults: total(|it| it.major_page_faults),
        psi: None,
    }
}

/// The sum of what is known; unknown when nothing is.
pub(super) fn sum(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values.flatten().reduce(u64::saturating_add)
}

pub(super) fn stamp(time: Timestamp) -> String {
    seconds(time.as_second())
}

pub(super) fn seconds(second: i64) -> String {
    Timestamp::from_second(second).unwrap_or_default().to_string()
}

pub(super) fn nanos(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}

pub(super) fn from_nanos(nanos: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or_default()
}
