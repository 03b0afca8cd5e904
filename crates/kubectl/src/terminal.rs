//! Output to the terminal. A reader that went away (`kubectl get pods | head -1`) ends the program quietly, as a signal would.

use std::io::Write;

pub(crate) fn out(text: &str) {
    out_bytes(text.as_bytes());
}

pub(crate) fn out_bytes(bytes: &[u8]) {
    #[cfg(test)]
    if captured::take(false, bytes) {
        return;
    }
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(bytes).and_then(|()| stdout.flush()).is_err() {
        // 128 and the number of SIGPIPE, which is what a shell shows for a program that the signal ended.
        std::process::exit(141);
    }
}

pub(crate) fn outln(text: &str) {
    out(&format!("{text}\n"));
}

pub(crate) fn err(text: &str) {
    #[cfg(test)]
    if captured::take(true, text.as_bytes()) {
        return;
    }
    // There is nobody left to tell.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

pub(crate) fn errln(text: &str) {
    err(&format!("{text}\n"));
}

pub(crate) fn warn(text: &str) {
    errln(&format!("Warning: {text}"));
}

/// A line as upstream's logging library writes it, which some messages still come from.
pub(crate) fn log(severity: char, place: &str, text: &str) {
    let time = jiff::Zoned::now().strftime("%m%d %H:%M:%S.%6f").to_string();
    errln(&format!("{severity}{time} {:7} {place}] {text}", std::process::id()));
}

/// Reads all of standard input.
pub(crate) fn input() -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::stdin().lock(), &mut bytes)?;
    Ok(bytes)
}

/// What a command of a test prints is kept for the test, by thread: a command runs on the thread that calls it.
#[cfg(test)]
pub(crate) mod captured {
    use std::cell::RefCell;

    type Printed = [Vec<u8>; 2];

    thread_local!(static PRINTED: RefCell<Option<Printed>> = const { RefCell::new(None) });

    /// Whether somebody keeps it.
    pub(super) fn take(is_error: bool, bytes: &[u8]) -> bool {
        PRINTED.with_borrow_mut(|printed| match printed {
            Some(printed) => {
                printed[usize::from(is_error)].extend_from_slice(bytes);
                true
            }
            None => false,
        })
    }

    /// What the work printed to standard output and standard error, with its result.
    pub(crate) fn during<T>(work: impl FnOnce() -> T) -> (T, String, String) {
        PRINTED.set(Some(Printed::default()));
        let result = work();
        let [out, err] = PRINTED.take().unwrap_or_default();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (result, text(out), text(err))
    }
}
