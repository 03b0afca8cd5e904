//! `cpuManagerPolicyOptions` of the policy `static`.

use std::collections::BTreeMap;

use super::super::topology::Topology;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Containers get whole cores, or are refused.
    pub full_pcpus_only: bool,
    pub distribute_cpus_across_numa: bool,
    pub align_by_socket: bool,
    pub distribute_cpus_across_cores: bool,
    /// Reserved processors are not in the shared pool either.
    pub strict_cpu_reservation: bool,
    pub prefer_align_cpus_by_uncorecache: bool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OptionError {
    #[error("unknown CPU Manager Policy option: {0:?}")]
    Unknown(String),
    #[error("CPU Manager Policy Alpha-level Options not enabled, but option {0:?} provided")]
    Alpha(String),
    #[error("bad value for option {name:?}: {value:?} is neither true nor false")]
    Value { name: String, value: String },
    #[error("static policy options {0} and {1} can not be used at the same time")]
    Conflict(&'static str, &'static str),
    #[error("Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option")]
    SingleNode,
    #[error("Align by socket is not compatible with hardware where number of sockets are more than number of NUMA")]
    Sockets,
}

const FULL_PCPUS: &str = "full-pcpus-only";
const ACROSS_NUMA: &str = "distribute-cpus-across-numa";
const BY_SOCKET: &str = "align-by-socket";
const ACROSS_CORES: &str = "distribute-cpus-across-cores";
const STRICT: &str = "strict-cpu-reservation";
const BY_UNCORE: &str = "prefer-align-cpus-by-uncorecache";

impl Options {
    /// `alpha` is the feature gate CPUManagerPolicyAlphaOptions.
    pub fn parse(given: &BTreeMap<String, String>, alpha: bool) -> Result<Options, OptionError> {
        let mut options = Options::default();
        for (name, value) in given {
            let place = match name.as_str() {
                FULL_PCPUS => &mut options.full_pcpus_only,
                ACROSS_NUMA => &mut options.distribute_cpus_across_numa,
                BY_SOCKET if alpha => &mut options.align_by_socket,
                ACROSS_CORES if alpha => &mut options.distribute_cpus_across_cores,
                BY_SOCKET | ACROSS_CORES => return Err(OptionError::Alpha(name.clone())),
                STRICT => &mut options.strict_cpu_reservation,
                BY_UNCORE => &mut options.prefer_align_cpus_by_uncorecache,
                _ => return Err(OptionError::Unknown(name.clone())),
            };
            *place = go_bool(value).ok_or_else(|| OptionError::Value { name: name.clone(), value: value.clone() })?;
        }
        let conflicts = [
            (options.full_pcpus_only && options.distribute_cpus_across_cores, FULL_PCPUS, ACROSS_CORES),
            (options.distribute_cpus_across_numa && options.distribute_cpus_across_cores, ACROSS_NUMA, ACROSS_CORES),
            (options.prefer_align_cpus_by_uncorecache && options.distribute_cpus_across_cores, BY_UNCORE, ACROSS_CORES),
            (options.prefer_align_cpus_by_uncorecache && options.distribute_cpus_across_numa, BY_UNCORE, ACROSS_NUMA),
        ];
        match conflicts.into_iter().find(|(is, _, _)| *is) {
            Some((_, one, other)) => Err(OptionError::Conflict(one, other)),
            None => Ok(options),
        }
    }

    pub(in super::super) fn check(&self, topology: &Topology, single_node: bool) -> Result<(), OptionError> {
        if self.align_by_socket && single_node {
            return Err(OptionError::SingleNode);
        }
        if self.align_by_socket && topology.cpus.sockets().len() > topology.cpus.nodes().len() {
            return Err(OptionError::Sockets);
        }
        Ok(())
    }
}

/// What Go's ParseBool takes.
pub(in super::super) fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
