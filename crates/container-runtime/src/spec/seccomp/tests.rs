//! The compiled profile on a thread of this process: what it answers to real calls.

use std::sync::Arc;

use nix::errno::Errno;
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};
use oci_spec::runtime::{Capabilities, Capability};

use super::super::capabilities::DEFAULT;
use super::*;

fn default_capabilities() -> Capabilities {
    DEFAULT.iter().copied().collect()
}

/// Runs on a thread with the filter. A filter cannot be taken off again, so the thread ends with the test.
fn filtered<T: Send + 'static>(profile: &LinuxSeccomp, run: fn() -> T) -> T {
    let program = program(profile).expect("a program");
    let thread = std::thread::spawn(move || {
        linux::seccomp::install(&program).expect("install as root");
        run()
    });
    thread.join().expect("the thread ends")
}

fn mount_nothing() -> Errno {
    nix::mount::mount(Some("none"), "/does/not/exist", Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap_err()
}

#[test]
fn the_default_profile_refuses() {
    let profile = runtime_default(&default_capabilities()).expect("a profile");
    assert_eq!(filtered(&profile, || unshare(CloneFlags::CLONE_NEWUSER)), Err(Errno::EPERM));
    assert_eq!(filtered(&profile, || unshare(CloneFlags::CLONE_NEWNS)), Err(Errno::EPERM));
    assert_eq!(filtered(&profile, mount_nothing), Errno::EPERM);
    let vsock = || {
        let flags = nix::sys::socket::SockFlag::SOCK_CLOEXEC;
        let kind = nix::sys::socket::SockType::Stream;
        nix::sys::socket::socket(nix::sys::socket::AddressFamily::Vsock, kind, flags, None).map(|_| ()).unwrap_err()
    };
    assert_eq!(filtered(&profile, vsock), Errno::EPERM);
}

#[test]
fn the_default_profile_lets_programs_work() {
    let profile = runtime_default(&default_capabilities()).expect("a profile");
    // A new thread is made by clone3, and by clone when that is answered with ENOSYS: EPERM would be the end.
    let threads = filtered(&profile, || std::thread::Builder::new().spawn(|| 7).map(|thread| thread.join().unwrap()));
    assert_eq!(threads.expect("a thread"), 7);
    let child = filtered(&profile, || std::process::Command::new("true").status());
    assert!(child.expect("a child").success());
    let socket = filtered(&profile, || std::net::UdpSocket::bind("127.0.0.1:0").map(|_| ()));
    socket.expect("a socket");
}

#[test]
fn capabilities_open_calls() {
    let mut capabilities = default_capabilities();
    capabilities.insert(Capability::SysAdmin);
    let profile = runtime_default(&capabilities).expect("a profile");
    // The call gets through to the kernel, which finds no such folder.
    assert_eq!(filtered(&profile, mount_nothing), Errno::ENOENT);
    let names = |profile: &LinuxSeccomp| -> Vec<String> {
        profile.syscalls().iter().flatten().flat_map(|rule| rule.names().clone()).collect()
    };
    assert!(names(&profile).contains(&"unshare".to_owned()));
    let plain = names(&runtime_default(&Capabilities::new()).expect("a profile"));
    for name in ["unshare", "chroot", "bpf", "io_uring_setup", "keyctl", "userfaultfd", "kexec_load"] {
        assert!(!plain.contains(&name.to_owned()), "{name}");
    }
    assert!(names(&runtime_default(&default_capabilities()).expect("a profile")).contains(&"chroot".to_owned()));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn newer_calls_do_not_exist() {
    let profile = runtime_default(&default_capabilities()).expect("a profile");
    let instructions = program(&profile).expect("a program").instructions;
    // Numbers above all known ones: answered by the first instructions, see `evaluate`.
    let errno = |number: u32| evaluate(&instructions, number, &[0; 6]);
    assert_eq!(errno(100_000), 0x0005_0000 | 38);
    assert_eq!(errno(272), 0x0005_0000 | 1, "unshare");
    assert_eq!(errno(435), 0x0005_0000 | 38, "clone3");
    assert_eq!(errno(39), 0x7fff_0000, "getpid");
    assert_eq!(evaluate(&instructions, 56, &[0x1200011, 0, 0, 0, 0, 0]), 0x7fff_0000, "clone as fork does");
    assert_eq!(evaluate(&instructions, 56, &[0x1000_0000, 0, 0, 0, 0, 0]), 0x0005_0000 | 1, "clone with NEWUSER");
    assert_eq!(evaluate(&instructions, 135, &[0xffff_ffff, 0, 0, 0, 0, 0]), 0x7fff_0000, "personality, asked");
    assert_eq!(evaluate(&instructions, 135, &[0x0040_0000, 0, 0, 0, 0, 0]), 0x0005_0000 | 1, "ADDR_COMPAT_LAYOUT");
}

#[cfg(target_arch = "x86_64")]
/// What the kernel would answer on x86_64: the few instructions that filters are made of.
fn evaluate(program: &[u8], number: u32, arguments: &[u64; 6]) -> u32 {
    const X86_64: u32 = 0xC000_003E;
    let mut data = [0u8; 64];
    data[0..4].copy_from_slice(&number.to_ne_bytes());
    data[4..8].copy_from_slice(&X86_64.to_ne_bytes());
    for (index, argument) in arguments.iter().enumerate() {
        data[16 + index * 8..24 + index * 8].copy_from_slice(&argument.to_ne_bytes());
    }
    let (mut place, mut accumulator) = (0usize, 0u32);
    loop {
        let bytes = &program[place * 8..place * 8 + 8];
        let code = u16::from_ne_bytes([bytes[0], bytes[1]]);
        let operand = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let jump = |taken: bool| usize::from(if taken { bytes[2] } else { bytes[3] });
        place += 1;
        match code {
            0x20 => {
                let from = operand as usize;
                accumulator = u32::from_ne_bytes([data[from], data[from + 1], data[from + 2], data[from + 3]]);
            }
            0x54 => accumulator &= operand,
            0x05 => place += operand as usize,
            0x15 => place += jump(accumulator == operand),
            0x25 => place += jump(accumulator > operand),
            0x35 => place += jump(accumulator >= operand),
            0x45 => place += jump(accumulator & operand != 0),
            0x06 => return operand,
            other => panic!("an instruction that filters do not have: {other:#x}"),
        }
    }
}

#[test]
fn a_profile_of_the_node_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("profile.json");
    let text = r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["unshare","not_a_call"],"action":"SCMP_ACT_ERRNO","errnoRet":75}]}"#;
    std::fs::write(&path, text).expect("a profile");
    let asked = |path: &std::path::Path| v1::SecurityProfile {
        profile_type: ProfileType::Localhost.into(),
        localhost_ref: path.to_string_lossy().into_owned(),
    };
    let found = profile(Some(&asked(&path)), &Capabilities::new()).expect("a profile").expect("not unconfined");
    assert_eq!(filtered(&found, || unshare(CloneFlags::CLONE_NEWUTS)), Err(Errno::EOVERFLOW));
    let missing = profile(Some(&asked(&folder.path().join("none"))), &Capabilities::new()).unwrap_err();
    assert!(missing.message.contains("cannot load seccomp profile"), "{missing}");
    let unconfined = v1::SecurityProfile { profile_type: ProfileType::Unconfined.into(), ..Default::default() };
    assert_eq!(profile(Some(&unconfined), &Capabilities::new()).expect("a profile"), None);
    assert_eq!(profile(None, &Capabilities::new()).expect("a profile"), None);
}

#[test]
fn programs_are_compiled_once() {
    let programs = Programs::default();
    let profile = runtime_default(&default_capabilities()).expect("a profile");
    let first = programs.get(&profile).expect("a program");
    let again = programs.get(&profile.clone()).expect("a program");
    assert!(Arc::ptr_eq(&first, &again));
    let other = programs.get(&runtime_default(&Capabilities::new()).expect("a profile")).expect("a program");
    assert_ne!(first.instructions, other.instructions);
}
