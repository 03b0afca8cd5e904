//! What upstream does: kube-apiserver v1.36.4 with etcd on the same disk, measured on a machine of two cores like the
//! one these benchmarks were written on, over TLS with JSON, with pods of the same size and the same numbers of clients.
//! They stand here as constants so that the benchmarks need no upstream programs; measure again when machines differ.

pub const SOURCE: &str = "kube-apiserver v1.36.4 and etcd, measured on a machine of two cores";

pub const READY_SECONDS: f64 = 2.1;
/// kube-apiserver and etcd together.
pub const IDLE_MIB: f64 = 279.0 + 43.0;
pub const MIB_WITH_10000_PODS: f64 = 1.8 * 1024.0;
/// Clients, and pods created per second.
pub const CREATES: [(usize, f64); 3] = [(1, 316.0), (16, 524.0), (64, 866.0)];
pub const CREATE_CPU_MS: f64 = 2.2;
pub const GETS: f64 = 3400.0;
pub const GET_CPU_MS: f64 = 0.5;
/// All 10,000 pods in one answer of 72 MB.
pub const LIST_MS: f64 = 960.0;
pub const LIST_MB: f64 = 72.0;
/// The same in protobuf.
pub const LIST_PROTOBUF_MS: f64 = 510.0;
/// 100 watchers while pods are created as fast as the server takes them.
pub const WATCH_EVENTS: f64 = 30_000.0;
pub const WATCH_P99_MS: f64 = 416.0;
/// 64 clients patching one object: patches that succeed per second.
pub const PATCHES: f64 = 12.0;

/// The floors that upstream's scheduler_perf sets itself for 5,000 nodes on 6 cores, in pods per second.
pub fn scheduled_per_second(shape: &str) -> Option<f64> {
    match shape {
        "basic" => Some(680.0),
        "pod affinity" => Some(70.0),
        "pod anti-affinity" => Some(180.0),
        "topology spread" => Some(460.0),
        "preemption" => Some(570.0),
        _ => None,
    }
}

/// Upstream's kubelet with containerd and runc, on such a machine.
pub const NODE_SOURCE: &str = "kubelet v1.36 with containerd and runc, measured on a machine of two cores";
pub const POD_READY_P50_MS: f64 = 510.0;
/// 80 pods at once took 14 seconds.
pub const PODS_AT_ONCE_PER_SECOND: f64 = 80.0 / 14.0;
pub const MIB_PER_POD: f64 = 13.0;
/// 15 % of a core with 95 sleeping pods.
pub const IDLE_CORE_PERCENT_PER_POD: f64 = 15.0 / 95.0;
/// The whole node: the control plane, of which it is 490, kubelet, proxy and containerd.
pub const NODE_MIB: f64 = 665.0;

/// At least what Headlamp's page weighs: five of the libraries that its page is made of, minified as their makers publish them, by
/// `gzip -9`; 6,718 kB without. Its own code is not counted.
pub const HEADLAMP_SOURCE: &str = "monaco-editor 0.52.2, elkjs 0.9.3, @mui/material 5.16.7, recharts 2.15.0 and react-dom 18.3.1 of its \
    frontend/package.json as npm has them; its own code is not counted";
pub const HEADLAMP_KB: f64 = 1765.0;
