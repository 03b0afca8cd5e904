//! Seccomp: the profile that the pod asks for, and its compiled form.

mod syscalls;
mod compile;
#[cfg(test)]
mod tests;

use std::path::Path;

use cri::v1;
use cri::v1::security_profile::ProfileType;
use oci_spec::runtime::{
    Arch, Capabilities, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompBuilder,
    LinuxSeccompOperator, LinuxSyscall, LinuxSyscallBuilder,
};

use super::{build, invalid};
pub use compile::{Programs, program};

/// More than any profile has.
const PROFILE_BYTES_MAX: u64 = 4 << 20;

/// The profile that a container asks for. Privileged ones must not ask.
pub fn profile(asked: Option<&v1::SecurityProfile>, capabilities: &Capabilities) -> cri::Result<Option<LinuxSeccomp>> {
    let Some(asked) = asked else { return Ok(None) };
    match asked.profile_type() {
        ProfileType::Unconfined => Ok(None),
        ProfileType::RuntimeDefault => runtime_default(capabilities).map(Some),
        ProfileType::Localhost => {
            let path = asked.localhost_ref.trim_start_matches("localhost/");
            let text = linux::file::read_followed(Path::new(path), PROFILE_BYTES_MAX)
                .map_err(|error| invalid(format!("cannot load seccomp profile {path:?}: {error}")))?;
            serde_json::from_slice(&text)
                .map(Some)
                .map_err(|error| invalid(format!("cannot decode seccomp profile {path:?}: {error}")))
        }
    }
}

/// What `RuntimeDefault` means. A capability opens the calls that make no sense without it.
pub fn runtime_default(capabilities: &Capabilities) -> cri::Result<LinuxSeccomp> {
    let mut rules = vec![allow(words(syscalls::ALWAYS))?];
    rules.push(allow(words(syscalls::of_architecture()))?);
    for value in syscalls::PERSONALITIES {
        rules.push(allow_if(&["personality"], 0, LinuxSeccompOperator::ScmpCmpEq, *value, None)?);
    }
    // Sockets of all families but the one that reaches the hypervisor.
    rules.push(allow_if(&["socket"], 0, LinuxSeccompOperator::ScmpCmpNe, syscalls::AF_VSOCK, None)?);
    for (capability, names) in syscalls::WITH_CAPABILITY {
        if capabilities.contains(capability) {
            rules.push(allow(words(names))?);
        }
    }
    if !capabilities.contains(&oci_spec::runtime::Capability::SysAdmin) {
        let mask = syscalls::CLONE_NEW_NAMESPACES;
        let masked = LinuxSeccompOperator::ScmpCmpMaskedEq;
        rules.push(allow_if(&["clone"], syscalls::CLONE_FLAGS_ARGUMENT, masked, mask, Some(0))?);
        // Its flags are behind a pointer that a filter cannot follow. ENOSYS makes the C library fall back to clone.
        let mut clone3 = LinuxSyscallBuilder::default()
            .names(vec!["clone3".to_owned()])
            .action(LinuxSeccompAction::ScmpActErrno)
            .build()
            .map_err(build)?;
        clone3.set_errno_ret(Some(syscalls::ENOSYS));
        rules.push(clone3);
    }
    LinuxSeccompBuilder::default()
        .default_action(LinuxSeccompAction::ScmpActErrno)
        .default_errno_ret(syscalls::EPERM)
        .architectures(architectures())
        .syscalls(rules)
        .build()
        .map_err(build)
}

/// Programs for the older word size run on the same kernel and need the same filter.
fn architectures() -> Vec<Arch> {
    if cfg!(target_arch = "x86_64") {
        vec![Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32]
    } else if cfg!(target_arch = "aarch64") {
        vec![Arch::ScmpArchArm, Arch::ScmpArchAarch64]
    } else if cfg!(target_arch = "s390x") {
        vec![Arch::ScmpArchS390, Arch::ScmpArchS390x]
    } else if cfg!(target_arch = "riscv64") {
        vec![Arch::ScmpArchRiscv64]
    } else if cfg!(target_arch = "powerpc64") {
        vec![Arch::ScmpArchPpc64le]
    } else {
        vec![Arch::ScmpArchNative]
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn allow(names: Vec<String>) -> cri::Result<LinuxSyscall> {
    LinuxSyscallBuilder::default().names(names).action(LinuxSeccompAction::ScmpActAllow).build().map_err(build)
}

fn allow_if(
    names: &[&str],
    index: usize,
    operator: LinuxSeccompOperator,
    value: u64,
    value_two: Option<u64>,
) -> cri::Result<LinuxSyscall> {
    let argument = LinuxSeccompArgBuilder::default().index(index).op(operator).value(value);
    let argument = match value_two {
        Some(value_two) => argument.value_two(value_two),
        None => argument,
    };
    let argument: LinuxSeccompArg = argument.build().map_err(build)?;
    let mut rule = allow(names.iter().map(|name| (*name).to_owned()).collect())?;
    rule.set_args(Some(vec![argument]));
    Ok(rule)
}
