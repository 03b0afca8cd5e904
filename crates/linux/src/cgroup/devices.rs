//! Device rules of a cgroup. v1 has files for it; v2 asks a small program that is attached
//! to the group, which is written here instruction by instruction.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::group::write;
use super::{Error, Group, Hierarchy, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum DeviceKind {
    All,
    Block,
    Character,
}

/// A later rule wins over an earlier one; what no rule speaks of is denied.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DeviceRule {
    pub allow: bool,
    pub kind: DeviceKind,
    /// None is every number.
    pub major: Option<u32>,
    pub minor: Option<u32>,
    pub read: bool,
    pub write: bool,
    pub make: bool,
}

impl Group {
    /// Once, when the group is new: on v2 rules add up, and a second set could only forbid more.
    pub fn restrict_devices(&self, rules: &[DeviceRule]) -> Result<()> {
        match self.cgroups.hierarchy {
            Hierarchy::V1 => {
                let Some(folder) = self.folder("devices") else { return Ok(()) };
                for rule in rules {
                    write(&folder.join(if rule.allow { "devices.allow" } else { "devices.deny" }), &rule.line())?;
                }
                Ok(())
            }
            Hierarchy::V2 => {
                let path = self.folder("").unwrap_or_default();
                let io = |source| Error::Io { step: "set device program of cgroup", path: path.clone(), source };
                let group = File::open(&path).map_err(io)?;
                let program = load(&program(rules)).map_err(io)?;
                attach(&group, &program).map_err(io)
            }
        }
    }
}

impl DeviceRule {
    /// As v1 takes it: `c 10:229 rwm`.
    fn line(&self) -> String {
        let kind = match self.kind {
            DeviceKind::All => "a",
            DeviceKind::Block => "b",
            DeviceKind::Character => "c",
        };
        let number = |number: Option<u32>| number.map_or("*".to_owned(), |number| number.to_string());
        let access: String = [(self.read, 'r'), (self.write, 'w'), (self.make, 'm')]
            .into_iter()
            .filter(|(wanted, _)| *wanted)
            .map(|(_, letter)| letter)
            .collect();
        format!("{kind} {}:{} {access}", number(self.major), number(self.minor))
    }

    fn fits_all(&self) -> bool {
        self.kind == DeviceKind::All && self.major.is_none() && self.minor.is_none() && self.access() == EVERY_ACCESS
    }

    /// The kernel's bits.
    fn access(&self) -> i32 {
        i32::from(self.make) | i32::from(self.read) << 1 | i32::from(self.write) << 2
    }
}

/// `struct bpf_insn`: operation, registers (destination in the low half), offset of a jump or load, operand.
type Instruction = (u8, u8, i16, i32);

const EVERY_ACCESS: i32 = 7;
const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;

const LOAD_WORD: u8 = 0x61;
const AND: u8 = 0x54;
const SHIFT_RIGHT: u8 = 0x74;
const COPY: u8 = 0xbc;
const SET: u8 = 0xb7;
const JUMP_IF_EQUAL: u8 = 0x15;
const JUMP_IF_NOT_EQUAL: u8 = 0x55;
const EXIT: u8 = 0x95;

/// Registers: 0 the answer, 1 the context and then scratch, 2 the kind, 3 the access, 4 and 5 the numbers.
const fn registers(destination: u8, source: u8) -> u8 {
    source << 4 | destination
}

fn program(rules: &[DeviceRule]) -> Vec<Instruction> {
    let mut program = vec![
        // The first word of the context has the access above the kind.
        (LOAD_WORD, registers(2, 1), 0, 0),
        (AND, registers(2, 0), 0, 0xffff),
        (LOAD_WORD, registers(3, 1), 0, 0),
        (SHIFT_RIGHT, registers(3, 0), 0, 16),
        (LOAD_WORD, registers(4, 1), 4, 0),
        (LOAD_WORD, registers(5, 1), 8, 0),
    ];
    // The last rule that fits decides, so they are asked from the end.
    for rule in rules.iter().rev() {
        program.extend(block(rule));
        if rule.fits_all() {
            // The kernel refuses programs with instructions that are never reached.
            return program;
        }
    }
    program.extend([(SET, registers(0, 0), 0, 0), (EXIT, 0, 0, 0)]);
    program
}

/// Answers when the rule fits, goes on behind itself when not.
fn block(rule: &DeviceRule) -> Vec<Instruction> {
    let mut tests: Vec<Instruction> = Vec::new();
    match rule.kind {
        DeviceKind::All => {}
        DeviceKind::Block => tests.push((JUMP_IF_NOT_EQUAL, registers(2, 0), 0, BLOCK)),
        DeviceKind::Character => tests.push((JUMP_IF_NOT_EQUAL, registers(2, 0), 0, CHARACTER)),
    }
    if rule.access() != EVERY_ACCESS {
        tests.push((COPY, registers(1, 3), 0, 0));
        if rule.allow {
            // Allowed only when nothing else is asked for.
            tests.push((AND, registers(1, 0), 0, EVERY_ACCESS & !rule.access()));
            tests.push((JUMP_IF_NOT_EQUAL, registers(1, 0), 0, 0));
        } else {
            tests.push((AND, registers(1, 0), 0, rule.access()));
            tests.push((JUMP_IF_EQUAL, registers(1, 0), 0, 0));
        }
    }
    for (register, number) in [(4, rule.major), (5, rule.minor)] {
        if let Some(number) = number {
            tests.push((JUMP_IF_NOT_EQUAL, registers(register, 0), 0, number as i32));
        }
    }
    // Two instructions answer; a jump is counted from the instruction after it.
    let length = tests.len() + 2;
    for (place, test) in tests.iter_mut().enumerate() {
        if matches!(test.0, JUMP_IF_EQUAL | JUMP_IF_NOT_EQUAL) {
            test.2 = (length - place - 1) as i16;
        }
    }
    tests.extend([(SET, registers(0, 0), 0, i32::from(rule.allow)), (EXIT, 0, 0, 0)]);
    tests
}

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_ATTACH: libc::c_long = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
/// Programs of groups above are asked too.
const BPF_F_ALLOW_MULTI: u32 = 2;

/// The first fields of `union bpf_attr` for loading.
#[repr(C)]
struct Load {
    program_type: u32,
    instructions_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
}

#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

#[allow(unsafe_code)]
fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let mut bytes = Vec::with_capacity(program.len() * 8);
    for (operation, registers, offset, operand) in program {
        bytes.extend([*operation, *registers]);
        bytes.extend(offset.to_ne_bytes());
        bytes.extend(operand.to_ne_bytes());
    }
    let license = c"Apache-2.0";
    let attributes = Load {
        program_type: BPF_PROG_TYPE_CGROUP_DEVICE,
        instructions_count: program.len() as u32,
        instructions: bytes.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buffer: 0,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads the attributes, the instructions and the license during the call; all outlive it.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attributes, size_of::<Load>() as libc::c_long)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

#[allow(unsafe_code)]
fn attach(group: &File, program: &OwnedFd) -> io::Result<()> {
    let attributes = Attach {
        target: group.as_raw_fd() as u32,
        program: program.as_raw_fd() as u32,
        kind: BPF_CGROUP_DEVICE,
        flags: BPF_F_ALLOW_MULTI,
    };
    // SAFETY: the kernel reads the attributes during the call; both descriptors are open.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_ATTACH, &raw const attributes, size_of::<Attach>() as libc::c_long)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
pub(super) fn evaluate(rules: &[DeviceRule], kind: i32, access: i32, major: u32, minor: u32) -> bool {
    let program = program(rules);
    let context = [access << 16 | kind, major as i32, minor as i32];
    let mut register = [0i32; 6];
    let mut place = 0;
    loop {
        let (operation, registers, offset, operand) = program[place];
        let (destination, source) = (usize::from(registers & 15), usize::from(registers >> 4));
        place += 1;
        let jump = if offset >= 0 { offset as usize } else { panic!("a jump back") };
        match operation {
            LOAD_WORD => register[destination] = context[jump / 4],
            AND => register[destination] &= operand,
            SHIFT_RIGHT => register[destination] >>= operand,
            COPY => register[destination] = register[source],
            SET => register[destination] = operand,
            JUMP_IF_EQUAL if register[destination] == operand => place += jump,
            JUMP_IF_NOT_EQUAL if register[destination] != operand => place += jump,
            JUMP_IF_EQUAL | JUMP_IF_NOT_EQUAL => {}
            EXIT => return register[0] == 1,
            other => panic!("unknown operation {other:#x}"),
        }
    }
}
