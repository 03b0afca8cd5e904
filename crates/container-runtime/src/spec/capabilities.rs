//! Linux capabilities of a container.

use std::collections::HashSet;
use std::str::FromStr;

use cri::v1;
use oci_spec::runtime::{Capabilities, Capability};

use super::{Host, invalid};

/// What a container has when the pod says nothing, as with every other runtime.
pub(crate) static DEFAULT: &[Capability] = &[
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fsetid,
    Capability::Fowner,
    Capability::Mknod,
    Capability::NetRaw,
    Capability::Setgid,
    Capability::Setuid,
    Capability::Setfcap,
    Capability::Setpcap,
    Capability::NetBindService,
    Capability::SysChroot,
    Capability::Kill,
    Capability::AuditWrite,
];

const ALL: &str = "ALL";

/// `ALL` is looked at first, then single additions, then single drops, in containerd's order.
pub fn capabilities(security: &v1::LinuxContainerSecurityContext, host: &Host) -> cri::Result<Capabilities> {
    if security.privileged {
        return Ok(host.capabilities.iter().copied().collect());
    }
    let empty = v1::Capability::default();
    let asked = security.capabilities.as_ref().unwrap_or(&empty);
    let mut kept: HashSet<Capability> = DEFAULT.iter().copied().collect();
    if asked.add_capabilities.iter().any(|name| name.eq_ignore_ascii_case(ALL)) {
        kept = host.capabilities.iter().copied().collect();
    }
    if asked.drop_capabilities.iter().any(|name| name.eq_ignore_ascii_case(ALL)) {
        kept.clear();
    }
    for name in named(&asked.add_capabilities) {
        kept.insert(parse(name, "add")?);
    }
    for name in named(&asked.drop_capabilities) {
        kept.remove(&parse(name, "drop")?);
    }
    // What this machine's root does not have cannot be given away.
    kept.retain(|capability| host.capabilities.contains(capability));
    Ok(kept)
}

/// Only what is asked for in so many words; Kubernetes itself asks for none.
pub(super) fn ambient(security: &v1::LinuxContainerSecurityContext, host: &Host) -> cri::Result<Capabilities> {
    let Some(asked) = &security.capabilities else { return Ok(Capabilities::new()) };
    let mut ambient = Capabilities::new();
    for name in named(&asked.add_ambient_capabilities) {
        ambient.insert(parse(name, "add")?);
    }
    ambient.retain(|capability| host.capabilities.contains(capability));
    Ok(ambient)
}

fn named(names: &[String]) -> impl Iterator<Item = &String> {
    names.iter().filter(|name| !name.eq_ignore_ascii_case(ALL))
}

fn parse(name: &str, verb: &str) -> cri::Result<Capability> {
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("CAP_").unwrap_or(&upper);
    Capability::from_str(short).map_err(|_| invalid(format!("unknown capability \"CAP_{short}\" to {verb}")))
}
