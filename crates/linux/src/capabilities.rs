//! The capability sets of the calling thread.

use std::io;

/// Bit masks in the order of the kernel's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sets {
    pub bounding: u64,
    pub effective: u64,
    pub permitted: u64,
    pub inheritable: u64,
    pub ambient: u64,
}

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The version with 64 bits, in two halves.
const VERSION_3: u32 = 0x2008_0522;
/// The kernel answers EINVAL for numbers it does not know; no kernel has more.
const NUMBERS_MAX: u32 = 63;

/// Gives up everything that is not in the sets, for the calling thread and what it starts. There is no way back.
#[allow(unsafe_code)]
pub fn apply(sets: &Sets) -> io::Result<()> {
    for number in 0..=NUMBERS_MAX {
        if sets.bounding >> number & 1 == 0 {
            // SAFETY: prctl with numbers only.
            let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
            if result != 0 {
                let error = io::Error::last_os_error();
                if error.raw_os_error() == Some(libc::EINVAL) {
                    break;
                }
                return Err(error);
            }
        }
    }
    // SAFETY: prctl with numbers only.
    if unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let header = Header { version: VERSION_3, pid: 0 };
    let half = |shift: u32| Data {
        effective: (sets.effective >> shift) as u32,
        permitted: (sets.permitted >> shift) as u32,
        // What is ambient must be inheritable.
        inheritable: ((sets.inheritable | sets.ambient) >> shift) as u32,
    };
    let data = [half(0), half(32)];
    // SAFETY: version 3 reads exactly one header and two data structs, which live until the call returns.
    if unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for number in (0..=NUMBERS_MAX).filter(|number| sets.ambient >> number & 1 == 1) {
        // SAFETY: prctl with numbers only.
        let result =
            unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, libc::c_ulong::from(number), 0, 0) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gives_up_what_is_not_in_the_sets() {
        let status = std::thread::spawn(|| {
            let kept = 1 << libc_number("chown") | 1 << libc_number("kill");
            let sets = Sets { bounding: kept, effective: kept, permitted: kept, inheritable: 0, ambient: 0 };
            apply(&sets).expect("apply as root");
            std::fs::read_to_string("/proc/thread-self/status").expect("read the status")
        });
        let status = status.join().expect("the thread ends");
        for (name, expected) in [("CapBnd", 0x21), ("CapEff", 0x21), ("CapPrm", 0x21), ("CapInh", 0), ("CapAmb", 0)] {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the line is there");
            assert_eq!(u64::from_str_radix(line.trim_start_matches(':').trim(), 16), Ok(expected), "{name}");
        }
    }

    fn libc_number(name: &str) -> u32 {
        match name {
            "chown" => 0,
            "kill" => 5,
            _ => unreachable!("only these are used"),
        }
    }
}
