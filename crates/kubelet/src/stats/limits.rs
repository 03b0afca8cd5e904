//! What holds containers back: their limits, how often those were felt, and how long was waited for the machine. Families of
//! `/metrics/cadvisor`.

use component_base::metrics::Metric;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::metrics::OfContainers;
use super::types::{Bounds, ContainerStats, Felt, PsiStats};
use crate::resources::{PodCgroups, container};

impl PodCgroups {
    /// What a container may use, as the runtime was told; what its pod says is what it has unless it is being resized.
    pub(crate) fn bounds(&self, pod: &Pod, name: &str) -> Option<Bounds> {
        let spec = pod.spec.as_ref()?;
        let every = spec.init_containers.iter().flatten().chain(&spec.containers);
        let resources =
            container::linux(pod, every.into_iter().find(|one: &&Container| one.name == name)?, self.node());
        let amount = |value: i64| u64::try_from(value).unwrap_or(0);
        Some(Bounds {
            cpu_period: amount(resources.cpu_period),
            cpu_quota: Some(amount(resources.cpu_quota)).filter(|quota| *quota > 0),
            cpu_shares: amount(resources.cpu_shares),
            memory_bytes: amount(resources.memory_limit_in_bytes),
            memory_swap_bytes: amount(resources.memory_swap_limit_in_bytes),
        })
    }

    /// How often a container was held back. Nothing where the runtime has its cgroups elsewhere.
    pub(crate) fn felt(&self, pod: &Pod, id: &str) -> Option<Felt> {
        let group = self.group(pod).ok().flatten()?.child(id).ok().filter(|group| group.exists())?;
        let cpu = group.stats().cpu;
        Some(Felt {
            periods: cpu.periods,
            throttled_periods: cpu.periods_throttled,
            throttled_nanoseconds: cpu.throttled_ns,
            oom_kills: group.oom_kills(),
        })
    }
}

fn felt(it: &ContainerStats, read: fn(&Felt) -> f64) -> Option<f64> {
    // As cAdvisor: who has no quota is never throttled, and is not shown.
    it.bounds.as_ref()?.cpu_quota?;
    it.felt.as_ref().map(read)
}

fn bound(it: &ContainerStats, read: fn(&Bounds) -> u64) -> Option<f64> {
    it.bounds.as_ref().map(|bounds| read(bounds) as f64)
}

fn seconds(psi: Option<&PsiStats>, read: fn(&PsiStats) -> u64) -> Option<f64> {
    psi.map(|psi| read(psi) as f64 / 1e9)
}

fn io(it: &ContainerStats) -> Option<&PsiStats> {
    it.io.as_ref()?.psi.as_ref()
}

const fn plain(metric: Metric<'static>, value: fn(&ContainerStats) -> Option<f64>) -> OfContainers {
    OfContainers { metric, extra: &[], value }
}

pub(super) static FAMILIES: [OfContainers; 16] = [
    plain(
        Metric::counter("container_cpu_cfs_periods_total", "Number of elapsed enforcement period intervals."),
        |it| felt(it, |felt| felt.periods as f64),
    ),
    plain(
        Metric::counter("container_cpu_cfs_throttled_periods_total", "Number of throttled period intervals."),
        |it| felt(it, |felt| felt.throttled_periods as f64),
    ),
    plain(
        Metric::counter(
            "container_cpu_cfs_throttled_seconds_total",
            "Total time duration the container has been throttled.",
        ),
        |it| felt(it, |felt| felt.throttled_nanoseconds as f64 / 1e9),
    ),
    plain(
        Metric::counter("container_oom_events_total", "Count of out of memory events observed for the container"),
        |it| it.felt.as_ref().map(|felt| felt.oom_kills as f64),
    ),
    plain(
        Metric::counter(
            "container_pressure_cpu_stalled_seconds_total",
            "Total time duration no tasks in the container could make progress due to CPU congestion.",
        ),
        |it| seconds(it.cpu.psi.as_ref(), |psi| psi.full.total),
    ),
    plain(
        Metric::counter(
            "container_pressure_cpu_waiting_seconds_total",
            "Total time duration tasks in the container have waited due to CPU congestion.",
        ),
        |it| seconds(it.cpu.psi.as_ref(), |psi| psi.some.total),
    ),
    plain(
        Metric::counter(
            "container_pressure_io_stalled_seconds_total",
            "Total time duration no tasks in the container could make progress due to IO congestion.",
        ),
        |it| seconds(io(it), |psi| psi.full.total),
    ),
    plain(
        Metric::counter(
            "container_pressure_io_waiting_seconds_total",
            "Total time duration tasks in the container have waited due to IO congestion.",
        ),
        |it| seconds(io(it), |psi| psi.some.total),
    ),
    plain(
        Metric::counter(
            "container_pressure_memory_stalled_seconds_total",
            "Total time duration no tasks in the container could make progress due to memory congestion.",
        ),
        |it| seconds(it.memory.psi.as_ref(), |psi| psi.full.total),
    ),
    plain(
        Metric::counter(
            "container_pressure_memory_waiting_seconds_total",
            "Total time duration tasks in the container have waited due to memory congestion.",
        ),
        |it| seconds(it.memory.psi.as_ref(), |psi| psi.some.total),
    ),
    plain(Metric::gauge("container_spec_cpu_period", "CPU period of the container."), |it| {
        bound(it, |bounds| bounds.cpu_period)
    }),
    plain(Metric::gauge("container_spec_cpu_quota", "CPU quota of the container."), |it| {
        Some(it.bounds.as_ref()?.cpu_quota? as f64)
    }),
    plain(Metric::gauge("container_spec_cpu_shares", "CPU share of the container."), |it| {
        bound(it, |bounds| bounds.cpu_shares)
    }),
    plain(Metric::gauge("container_spec_memory_limit_bytes", "Memory limit for the container."), |it| {
        bound(it, |bounds| bounds.memory_bytes)
    }),
    plain(
        Metric::gauge("container_spec_memory_reservation_limit_bytes", "Memory reservation limit for the container."),
        // Nothing here reserves memory by cgroups.
        |it| bound(it, |_| 0),
    ),
    plain(Metric::gauge("container_spec_memory_swap_limit_bytes", "Memory swap limit for the container."), |it| {
        bound(it, |bounds| bounds.memory_swap_bytes)
    }),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bounds_are_what_the_runtime_is_told() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"uid": "u"},
            "spec": {"initContainers": [{"name": "first"}], "containers": [
                {"name": "bound", "resources": {"requests": {"cpu": "250m"}, "limits": {"cpu": "500m", "memory": "64Mi"}}}]},
        }))
        .unwrap();
        let groups = PodCgroups::foreign();
        let bounds = groups.bounds(&pod, "bound").unwrap();
        assert_eq!((bounds.cpu_period, bounds.cpu_quota, bounds.cpu_shares), (100_000, Some(50_000), 256));
        assert_eq!(bounds.memory_bytes, 64 << 20);
        let free = groups.bounds(&pod, "first").unwrap();
        assert_eq!((free.cpu_quota, free.cpu_shares, free.memory_bytes), (None, 2, 0));
        assert_eq!(groups.bounds(&pod, "other"), None);
        // A runtime with cgroups of its own has told nothing.
        assert_eq!(groups.felt(&pod, "id"), None);
    }
}
