//! `cpu_manager_state`, in upstream's format and with its checksum: either kubelet goes on where the other has stopped.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::RestoreError;
use super::super::cpu_set::CpuSet;
use super::State;
use crate::checkpoint::fnv;

pub(in super::super) const FILE: &str = "cpu_manager_state";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    policy_name: String,
    // Upstream's decoder does not mind the case.
    #[serde(alias = "defaultCPUSet")]
    default_cpu_set: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    checksum: u64,
}

pub(in super::super) fn write(policy: &str, state: &State) -> Result<Vec<u8>, serde_json::Error> {
    let entries = state.entries.iter().map(|(uid, containers)| {
        let containers = containers.iter().map(|(name, cpus)| (name.clone(), cpus.to_string()));
        (uid.clone(), containers.collect())
    });
    let mut file = File {
        policy_name: policy.to_owned(),
        default_cpu_set: state.shared.to_string(),
        entries: entries.collect(),
        checksum: 0,
    };
    file.checksum = fnv(&shown(&file, "CPUManagerCheckpoint"));
    serde_json::to_vec(&file)
}

pub(in super::super) fn read(policy: &str, bytes: &[u8]) -> Result<State, RestoreError> {
    let file: File = serde_json::from_slice(bytes)?;
    let good = ["CPUManagerCheckpoint", "CPUManagerCheckpointV2"].map(|name| fnv(&shown(&file, name)));
    if file.checksum != 0 && !good.contains(&file.checksum) {
        return Err(RestoreError::Checksum { found: file.checksum, expected: good[0] });
    }
    if file.policy_name != policy {
        return Err(RestoreError::Policy { configured: policy.to_owned(), found: file.policy_name });
    }
    let set = |text: &str| text.parse::<CpuSet>().map_err(RestoreError::Cpus);
    let mut entries = BTreeMap::new();
    for (uid, containers) in file.entries {
        let containers: Result<BTreeMap<String, CpuSet>, RestoreError> =
            containers.into_iter().map(|(name, cpus)| Ok((name, set(&cpus)?))).collect();
        entries.insert(uid, containers?);
    }
    Ok(State { shared: set(&file.default_cpu_set)?, entries })
}

/// How Go's printer for hashes shows the file.
fn shown(file: &File, name: &str) -> String {
    let pods = file.entries.iter().map(|(uid, containers)| {
        let containers: Vec<String> = containers.iter().map(|(name, cpus)| format!("{name}:{cpus}")).collect();
        format!("{uid}:map[{}]", containers.join(" "))
    });
    format!(
        "(*state.{name}){{PolicyName:(string){} DefaultCPUSet:(string){} Entries:(map[string]map[string]string)map[{}] Checksum:(checksum.Checksum)0}}",
        file.policy_name,
        file.default_cpu_set,
        pods.collect::<Vec<_>>().join(" "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files and checksums of upstream's tests.
    #[test]
    fn upstreams_files_are_read() {
        let empty = r#"{"policyName":"none","defaultCPUSet":"4-6","entries":{},"checksum":354655845}"#;
        assert_eq!(read("none", empty.as_bytes()).unwrap().shared.to_string(), "4-6");
        let two = r#"{"policyName":"none","defaultCPUSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"1-3"}},"checksum":3610638499}"#;
        let state = read("none", two.as_bytes()).unwrap();
        assert_eq!(state.of("pod", "container1").unwrap().to_string(), "4-6");
        let check = |text: &str, expected: &str| {
            assert_eq!(read("none", text.as_bytes()).unwrap_err().to_string(), expected);
        };
        check(
            r#"{"policyName":"other","defaultCPUSet":"1-3","entries":{},"checksum":1394507217}"#,
            "configured policy \"none\" differs from state checkpoint policy \"other\"",
        );
        assert!(matches!(
            read("none", br#"{"policyName":"none","defaultCPUSet":"4-6","entries":{},"checksum":1337}"#),
            Err(RestoreError::Checksum { .. })
        ));
        assert!(matches!(read("none", b"{"), Err(RestoreError::Json(_))));
    }

    #[test]
    fn what_was_written_is_read() {
        let cpus = |text: &str| text.parse::<CpuSet>().unwrap();
        let containers = BTreeMap::from([("c".to_owned(), cpus("1"))]);
        let state = State { shared: cpus("0,2-3"), entries: [("u".to_owned(), containers)].into() };
        assert_eq!(read("static", &write("static", &state).unwrap()).unwrap(), state);
    }
}
