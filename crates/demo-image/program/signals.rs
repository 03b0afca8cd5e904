//! SIGTERM and SIGINT. The first process of a container is not ended by a signal it has no handler for, so every
//! applet that waits installs one.
//!
//! The standard library cannot do this; these few calls into the C library are the only unsafe code of the program.
#![allow(unsafe_code)]

use std::io::{PipeReader, Read};
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::error::Result;

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
const SIG_IGN: usize = 1;

unsafe extern "C" {
    fn signal(number: i32, handler: usize) -> usize;
    fn write(descriptor: i32, bytes: *const u8, count: usize) -> isize;
    fn _exit(code: i32) -> !;
}

/// Where the handler tells the waiting thread.
static TELL: AtomicI32 = AtomicI32::new(-1);

/// From now on a request to end ends the process at once, with the code a shell would report.
pub fn end_at_once() {
    set(ending as extern "C" fn(i32) as usize);
}

pub fn ignore() {
    set(SIG_IGN);
}

/// Waits until the process is asked to end.
pub struct Request {
    pipe: PipeReader,
}

impl Request {
    pub fn listen() -> Result<Request> {
        let (pipe, tell) = std::io::pipe().map_err(|error| format!("pipe: {error}"))?;
        TELL.store(tell.into_raw_fd(), Ordering::SeqCst);
        set(telling as extern "C" fn(i32) as usize);
        Ok(Request { pipe })
    }

    pub fn wait(mut self) {
        // `read_exact` tries again when the signal itself interrupts the read.
        let _ = self.pipe.read_exact(&mut [0]);
    }
}

fn set(handler: usize) {
    for number in [SIGTERM, SIGINT] {
        // SAFETY: the handler is SIG_IGN or one of the two functions below, which have the signature that the C library
        // calls and do only what is allowed in a signal handler.
        unsafe { signal(number, handler) };
    }
}

extern "C" fn ending(number: i32) {
    // SAFETY: _exit is async-signal-safe and takes any number.
    unsafe { _exit(128 + number) }
}

extern "C" fn telling(_: i32) {
    // SAFETY: write is async-signal-safe, the byte lives in static memory, and the descriptor is never closed. A full
    // pipe does no harm: one byte is enough.
    unsafe { write(TELL.load(Ordering::SeqCst), b"x".as_ptr(), 1) };
}
