//! `memory_manager_state`, in upstream's format and with its checksum.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::RestoreError;
use super::{Block, Machine, State};
use crate::checkpoint::fnv;

pub(in super::super) const FILE: &str = "memory_manager_state";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    policy_name: String,
    #[serde(default)]
    machine_state: Machine,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, BTreeMap<String, Vec<Block>>>,
    #[serde(default)]
    checksum: u64,
}

pub(in super::super) fn write(policy: &str, state: &State) -> Result<Vec<u8>, serde_json::Error> {
    let mut file = File {
        policy_name: policy.to_owned(),
        machine_state: state.machine.clone(),
        entries: state.entries.clone(),
        checksum: 0,
    };
    file.checksum = fnv(&shown(&file, "MemoryManagerCheckpoint"));
    serde_json::to_vec(&file)
}

pub(in super::super) fn read(policy: &str, bytes: &[u8]) -> Result<State, RestoreError> {
    let file: File = serde_json::from_slice(bytes)?;
    let good = ["MemoryManagerCheckpoint", "MemoryManagerCheckpointV1"].map(|name| fnv(&shown(&file, name)));
    if file.checksum != 0 && !good.contains(&file.checksum) {
        return Err(RestoreError::Checksum { found: file.checksum, expected: good[0] });
    }
    if file.policy_name != policy {
        return Err(RestoreError::Policy { configured: policy.to_owned(), found: file.policy_name });
    }
    Ok(State { machine: file.machine_state, entries: file.entries })
}

/// How Go's printer for hashes shows the file.
fn shown(file: &File, name: &str) -> String {
    let nodes = file.machine_state.iter().map(|(number, node)| {
        let tables = node.memory_map.iter().map(|(resource, table)| {
            format!(
                "{resource}:<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){} Allocatable:(uint64){} Reserved:(uint64){} Free:(uint64){}}}",
                table.total, table.system_reserved, table.allocatable, table.reserved, table.free
            )
        });
        format!(
            "{number}:<*>{{NumberOfAssignments:(int){} MemoryMap:(map[v1.ResourceName]*state.MemoryTable)map[{}] Cells:([]int)[{}]}}",
            node.number_of_assignments,
            joined(tables),
            joined(node.cells.iter().map(ToString::to_string)),
        )
    });
    let pods = file.entries.iter().map(|(uid, containers)| {
        let containers = containers.iter().map(|(name, blocks)| {
            let blocks = blocks.iter().map(|block| {
                let nodes = joined(block.nodes.iter().map(ToString::to_string));
                let (resource, size) = (&block.resource, block.size);
                format!("{{NUMAAffinity:([]int)[{nodes}] Type:(v1.ResourceName){resource} Size:(uint64){size}}}")
            });
            format!("{name}:[{}]", joined(blocks))
        });
        format!("{uid}:map[{}]", joined(containers))
    });
    format!(
        "(*state.{name}){{PolicyName:(string){} MachineState:(state.NUMANodeMap)map[{}] Entries:(state.ContainerMemoryAssignments)map[{}] Checksum:(checksum.Checksum)0}}",
        file.policy_name,
        joined(nodes),
        joined(pods),
    )
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file and the checksum are of upstream's tests.
    #[test]
    fn upstreams_file_is_read_and_written() {
        let text = r#"{"policyName":"static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},"entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}},"checksum":4215593881}"#;
        let state = read("static", text.as_bytes()).unwrap();
        assert_eq!(state.of("pod", "container1").unwrap()[0].size, 512);
        assert_eq!(String::from_utf8(write("static", &state).unwrap()).unwrap(), text);
        let changed = text.replace("\"free\":1024", "\"free\":1023");
        assert!(matches!(read("static", changed.as_bytes()), Err(RestoreError::Checksum { .. })));
        assert!(matches!(read("None", text.as_bytes()), Err(RestoreError::Policy { .. })));
    }
}
