//! Installing a seccomp filter that was compiled before.

use std::io;

/// A classic BPF program as the kernel takes it, and how to load it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Program {
    /// `struct sock_filter` after `struct sock_filter`, in this machine's byte order.
    pub instructions: Vec<u8>,
    /// `SECCOMP_FILTER_FLAG_*`.
    pub flags: u32,
}

/// The size of `struct sock_filter`: code, two jump offsets, operand.
pub const INSTRUCTION_BYTES: usize = 8;

/// Filters the calling thread and all it starts from now on. Needs CAP_SYS_ADMIN in the thread's user namespace or
/// `no_new_privs`. Filters add up: the strictest answer wins.
#[allow(unsafe_code)]
pub fn install(program: &Program) -> io::Result<()> {
    let length = u16::try_from(program.instructions.len() / INSTRUCTION_BYTES)
        .ok()
        .filter(|length| *length > 0 && program.instructions.len().is_multiple_of(INSTRUCTION_BYTES))
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut filter: Vec<libc::sock_filter> = program
        .instructions
        .chunks_exact(INSTRUCTION_BYTES)
        .map(|bytes| libc::sock_filter {
            code: u16::from_ne_bytes([bytes[0], bytes[1]]),
            jt: bytes[2],
            jf: bytes[3],
            k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        })
        .collect();
    let program_pointer = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the program during the call; `filter` holds `length` instructions and outlives it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::c_ulong::from(program.flags),
            &raw const program_pointer,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> Vec<u8> {
        [&code.to_ne_bytes()[..], &[jt, jf], &k.to_ne_bytes()].concat()
    }

    #[test]
    fn a_filtered_thread_is_refused() {
        // Load the call's number; getppid is answered with EXDEV, everything else goes through.
        let refused = libc::SECCOMP_RET_ERRNO | libc::EXDEV as u32;
        let program = Program {
            instructions: [
                instruction(0x20, 0, 0, 0),
                instruction(0x15, 0, 1, libc::SYS_getppid as u32),
                instruction(0x06, 0, 0, refused),
                instruction(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
            ]
            .concat(),
            flags: 0,
        };
        let outcome = std::thread::spawn(move || {
            install(&program).expect("install as root");
            #[allow(unsafe_code)]
            // SAFETY: getppid has no arguments and touches no memory.
            let result = unsafe { libc::syscall(libc::SYS_getppid) };
            (result, io::Error::last_os_error().raw_os_error())
        });
        assert_eq!(outcome.join().expect("the thread ends"), (-1, Some(libc::EXDEV)));
    }

    #[test]
    fn what_is_no_program_is_refused() {
        for instructions in [vec![], vec![0; 7], vec![0; 8 * 70_000]] {
            let error = install(&Program { instructions, flags: 0 }).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
