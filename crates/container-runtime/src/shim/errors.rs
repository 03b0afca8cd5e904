//! What a child of the shim reports through its pipe, and what libcontainer meant when it failed.

use std::cell::RefCell;
use std::error::Error;
use std::fmt::Write as _;
use std::os::fd::AsFd;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::span;

/// One line of a child's pipe. The pipe closes when the program runs.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reports {
    Pid(i32),
    Failed(String),
}

/// Says it to the shim, whatever happens to this process next.
pub fn report(pipe: impl AsFd, report: &Reports) {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    // Without a listener there is nobody left to tell.
    let _ = rustix::io::write(pipe, &line);
}

/// The process's number and its failure, from all that its pipe gave.
pub(crate) fn read_reports(text: &[u8]) -> (Option<i32>, Option<String>) {
    let mut result = (None, None);
    for line in text.split(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(Reports::Pid(pid)) => result.0 = Some(pid),
            // The first failure is the cause, later ones follow from it.
            Ok(Reports::Failed(reason)) => result.1 = result.1.or(Some(reason)),
            Err(_) => {}
        }
    }
    result
}

/// An error with all its causes.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            let _ = write!(text, ": {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// libcontainer says little in its errors and more in its log: the first lines of the log are kept for [`Details::explain`].
pub struct Details {
    file: Arc<Mutex<std::fs::File>>,
}

/// Begins to collect. Its log goes through a memory file that all processes of libcontainer share.
pub fn collect() -> Details {
    let memory = rustix::fs::memfd_create("details", rustix::fs::MemfdFlags::CLOEXEC)
        .map(std::fs::File::from)
        .or_else(|_| std::fs::File::options().read(true).write(true).open("/dev/null"));
    let file = Arc::new(Mutex::new(memory.expect("a memory file or /dev/null can be opened")));
    // Set once in this child, which becomes or ends as the container.
    let _ = tracing::subscriber::set_global_default(Collector { file: file.clone() });
    Details { file }
}

impl Details {
    pub fn explain(&self, error: &dyn Error) -> String {
        use std::io::{Read, Seek};
        let mut logged = String::new();
        let mut file = self.file.lock();
        // What cannot be read is left out; the error itself is there.
        let _ = file.rewind().and_then(|()| file.read_to_string(&mut logged));
        let detail = logged.lines().next().map(|line| format!(": {line}")).unwrap_or_default();
        format!("{}{detail}", chain(error))
    }
}

struct Collector {
    file: Arc<Mutex<std::fs::File>>,
}

impl tracing::Subscriber for Collector {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        use std::io::Write;
        thread_local!(static LINE: RefCell<String> = const { RefCell::new(String::new()) });
        LINE.with_borrow_mut(|line| {
            line.clear();
            event.record(&mut Text(line));
            line.push('\n');
            let _ = self.file.lock().write_all(line.as_bytes());
        });
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let separator = if self.0.is_empty() { "" } else { ", " };
        let _ = match field.name() {
            "message" => write!(self.0, "{separator}{value:?}"),
            name => write!(self.0, "{separator}{name} {value:?}"),
        };
    }
}
