//! Compiles a seccomp profile to a BPF program.
//!
//! libseccomp takes some ten milliseconds for the usual profile, more than all else that a container's start needs. A node
//! has a handful of different profiles, so each is compiled once and its bytes are handed to the shims.

use std::collections::HashMap;
use std::io::{Read, Seek};
use std::sync::Arc;

use libseccomp::{ScmpAction, ScmpArch, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};
use linux::seccomp::{INSTRUCTION_BYTES, Program};
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag, LinuxSeccompOperator,
};
use parking_lot::Mutex;

use super::super::invalid;

/// Programs that were compiled before, by profile.
#[derive(Default)]
pub struct Programs {
    known: Mutex<HashMap<String, Arc<Program>>>,
}

/// Profiles of a node come from few files; beyond this many the memory starts anew.
const KNOWN_MAX: usize = 256;

impl Programs {
    pub fn get(&self, profile: &LinuxSeccomp) -> cri::Result<Arc<Program>> {
        let key = serde_json::to_string(profile).map_err(|error| cri::Error::unknown(error.to_string()))?;
        if let Some(program) = self.known.lock().get(&key) {
            return Ok(Arc::clone(program));
        }
        let program = Arc::new(program(profile)?);
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(key, Arc::clone(&program));
        Ok(program)
    }
}

/// Compiles a profile.
pub fn program(profile: &LinuxSeccomp) -> cri::Result<Program> {
    let default = action(profile.default_action(), profile.default_errno_ret())?;
    let mut context = ScmpFilterContext::new(default).map_err(failed)?;
    for architecture in profile.architectures().iter().flatten() {
        context.add_arch(arch(*architecture)).map_err(failed)?;
    }
    // A tree instead of a list: a call late in the alphabet costs as little as an early one.
    context.set_ctl_optimize(2).map_err(failed)?;
    let mut highest = 0;
    for rule in profile.syscalls().iter().flatten() {
        let wanted = action(rule.action(), rule.errno_ret())?;
        for name in rule.names() {
            // Names of newer kernels and of other machines.
            let Ok(syscall) = ScmpSyscall::from_name(name) else { continue };
            highest = highest.max(syscall.as_raw_syscall());
            if wanted == default {
                continue;
            }
            add(&mut context, wanted, syscall, rule.args().as_deref().unwrap_or_default())?;
        }
    }
    let mut instructions = match profile.default_action() {
        LinuxSeccompAction::ScmpActErrno => unknown_calls(highest),
        _ => Vec::new(),
    };
    instructions.extend(export(&context)?);
    Ok(Program { instructions, flags: flags(profile)? })
}

/// Conditions on one argument more than once mean "or", conditions on different ones "and".
fn add(
    context: &mut ScmpFilterContext,
    wanted: ScmpAction,
    syscall: ScmpSyscall,
    arguments: &[LinuxSeccompArg],
) -> cri::Result<()> {
    let conditions: Vec<ScmpArgCompare> = arguments.iter().map(condition).collect();
    let mut indexes: Vec<usize> = arguments.iter().map(LinuxSeccompArg::index).collect();
    indexes.sort_unstable();
    let distinct = indexes.windows(2).all(|pair| pair[0] != pair[1]);
    if distinct {
        context.add_rule_conditional(wanted, syscall, &conditions).map_err(failed)?;
    } else {
        for condition in conditions {
            context.add_rule_conditional(wanted, syscall, &[condition]).map_err(failed)?;
        }
    }
    Ok(())
}

fn condition(argument: &LinuxSeccompArg) -> ScmpArgCompare {
    let (operator, value) = match argument.op() {
        LinuxSeccompOperator::ScmpCmpNe => (ScmpCompareOp::NotEqual, argument.value()),
        LinuxSeccompOperator::ScmpCmpLt => (ScmpCompareOp::Less, argument.value()),
        LinuxSeccompOperator::ScmpCmpLe => (ScmpCompareOp::LessOrEqual, argument.value()),
        LinuxSeccompOperator::ScmpCmpEq => (ScmpCompareOp::Equal, argument.value()),
        LinuxSeccompOperator::ScmpCmpGe => (ScmpCompareOp::GreaterEqual, argument.value()),
        LinuxSeccompOperator::ScmpCmpGt => (ScmpCompareOp::Greater, argument.value()),
        // The profile has the mask first and what must be left second.
        LinuxSeccompOperator::ScmpCmpMaskedEq => {
            (ScmpCompareOp::MaskedEqual(argument.value()), argument.value_two().unwrap_or(0))
        }
    };
    ScmpArgCompare::new(argument.index() as u32, operator, value)
}

/// Programs try new calls and fall back on ENOSYS, but give up on EPERM: calls that are newer than all the profile speaks
/// of are therefore answered as by an older kernel, as runc does. The program that follows decides the rest.
fn unknown_calls(highest: i32) -> Vec<u8> {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_GREATER: u16 = 0x25;
    const RETURN: u16 = 0x06;
    const NUMBER_OFFSET: u32 = 0;
    const ARCHITECTURE_OFFSET: u32 = 4;
    const RETURN_ERRNO: u32 = 0x0005_0000;
    /// Calls of x32 have this bit and are not newer.
    const X32_BIT: u32 = 0x4000_0000;
    let Some(native) = audit_architecture() else { return Vec::new() };
    let program = [
        (LOAD_WORD, 0, 0, ARCHITECTURE_OFFSET),
        (JUMP_IF_EQUAL, 0, 4, native),
        (LOAD_WORD, 0, 0, NUMBER_OFFSET),
        (JUMP_IF_GREATER, 2, 0, X32_BIT - 1),
        (JUMP_IF_GREATER, 0, 1, highest.unsigned_abs()),
        (RETURN, 0, 0, RETURN_ERRNO | super::syscalls::ENOSYS),
    ];
    let mut bytes = Vec::with_capacity(program.len() * INSTRUCTION_BYTES);
    for (code, if_true, if_false, operand) in program {
        bytes.extend(u16::to_ne_bytes(code));
        bytes.extend([if_true, if_false]);
        bytes.extend(u32::to_ne_bytes(operand));
    }
    bytes
}

/// `AUDIT_ARCH_*` of this machine.
fn audit_architecture() -> Option<u32> {
    if cfg!(target_arch = "x86_64") {
        Some(0xC000_003E)
    } else if cfg!(target_arch = "aarch64") {
        Some(0xC000_00B7)
    } else if cfg!(target_arch = "riscv64") {
        Some(0xC000_00F3)
    } else {
        None
    }
}

fn export(context: &ScmpFilterContext) -> cri::Result<Vec<u8>> {
    let io = |error: std::io::Error| cri::Error::unknown(format!("export seccomp program: {error}"));
    let memory =
        rustix::fs::memfd_create("seccomp", rustix::fs::MemfdFlags::CLOEXEC).map_err(|error| io(error.into()))?;
    context.export_bpf(&memory).map_err(failed)?;
    let mut file = std::fs::File::from(memory);
    file.rewind().map_err(io)?;
    let mut instructions = Vec::new();
    file.read_to_end(&mut instructions).map_err(io)?;
    Ok(instructions)
}

fn action(wanted: LinuxSeccompAction, errno: Option<u32>) -> cri::Result<ScmpAction> {
    let errno = errno.unwrap_or(super::syscalls::EPERM) as i32;
    Ok(match wanted {
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => ScmpAction::KillThread,
        LinuxSeccompAction::ScmpActKillProcess => ScmpAction::KillProcess,
        LinuxSeccompAction::ScmpActTrap => ScmpAction::Trap,
        LinuxSeccompAction::ScmpActErrno => ScmpAction::Errno(errno),
        LinuxSeccompAction::ScmpActTrace => ScmpAction::Trace(u16::try_from(errno).unwrap_or(0)),
        LinuxSeccompAction::ScmpActAllow => ScmpAction::Allow,
        LinuxSeccompAction::ScmpActLog => ScmpAction::Log,
        // Needs a listener outside the container, which no Kubernetes field can name.
        LinuxSeccompAction::ScmpActNotify => return Err(invalid("seccomp action SCMP_ACT_NOTIFY has no listener")),
    })
}

fn flags(profile: &LinuxSeccomp) -> cri::Result<u32> {
    let mut flags = 0;
    for flag in profile.flags().iter().flatten() {
        flags |= match flag {
            // One thread installs it, before there are others.
            LinuxSeccompFilterFlag::SeccompFilterFlagTsync => 0,
            LinuxSeccompFilterFlag::SeccompFilterFlagLog => 1 << 1,
            LinuxSeccompFilterFlag::SeccompFilterFlagSpecAllow => 1 << 2,
            // Only means something together with a listener.
            LinuxSeccompFilterFlag::SeccompFilterFlagWaitKillableRecv => 0,
        };
    }
    Ok(flags)
}

fn arch(architecture: Arch) -> ScmpArch {
    match architecture {
        Arch::ScmpArchNative => ScmpArch::Native,
        Arch::ScmpArchX86 => ScmpArch::X86,
        Arch::ScmpArchX86_64 => ScmpArch::X8664,
        Arch::ScmpArchX32 => ScmpArch::X32,
        Arch::ScmpArchArm => ScmpArch::Arm,
        Arch::ScmpArchAarch64 => ScmpArch::Aarch64,
        Arch::ScmpArchMips => ScmpArch::Mips,
        Arch::ScmpArchMips64 => ScmpArch::Mips64,
        Arch::ScmpArchMips64n32 => ScmpArch::Mips64N32,
        Arch::ScmpArchMipsel => ScmpArch::Mipsel,
        Arch::ScmpArchMipsel64 => ScmpArch::Mipsel64,
        Arch::ScmpArchMipsel64n32 => ScmpArch::Mipsel64N32,
        Arch::ScmpArchPpc => ScmpArch::Ppc,
        Arch::ScmpArchPpc64 => ScmpArch::Ppc64,
        Arch::ScmpArchPpc64le => ScmpArch::Ppc64Le,
        Arch::ScmpArchS390 => ScmpArch::S390,
        Arch::ScmpArchS390x => ScmpArch::S390X,
        Arch::ScmpArchRiscv64 => ScmpArch::Riscv64,
        Arch::ScmpArchParisc => ScmpArch::Parisc,
        Arch::ScmpArchParisc64 => ScmpArch::Parisc64,
        Arch::ScmpArchLoongarch64 => ScmpArch::Loongarch64,
        Arch::ScmpArchM68k => ScmpArch::M68k,
        Arch::ScmpArchSh => ScmpArch::Sh,
        Arch::ScmpArchSheb => ScmpArch::Sheb,
    }
}

fn failed(error: libseccomp::error::SeccompError) -> cri::Error {
    invalid(format!("compile seccomp profile: {error}"))
}
