//! Output to the terminal. A reader that went away (`kubectl get pods | head -1`) ends the program quietly, as a signal would.

use std::io::Write;

pub(crate) fn out(text: &str) {
    out_bytes(text.as_bytes());
}

pub(crate) fn out_bytes(bytes: &[u8]) {
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
