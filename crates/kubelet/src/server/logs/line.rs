//! One line of a CRI log: `<time> <stream> <tags> <content>`, and how it is shown.

use jiff::Timestamp;

use super::Options;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// As it stands in the file.
    pub time: &'a [u8],
    pub stream: &'a [u8],
    /// The process has not ended this line yet; it goes on in the next entry of its stream.
    pub partial: bool,
    pub content: &'a [u8],
}

/// Takes an entry apart; `None` for what is no log entry.
pub fn parse(entry: &[u8]) -> Option<Line<'_>> {
    let mut parts = entry.splitn(4, |byte| *byte == b' ');
    let (time, stream, tags) = (parts.next()?, parts.next()?, parts.next()?);
    if !matches!(stream, b"stdout" | b"stderr") || time.len() < 20 {
        return None;
    }
    let partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
    Some(Line { time, stream, partial, content: parts.next().unwrap_or(b"") })
}

pub(crate) fn time_of(entry: &[u8]) -> Option<Timestamp> {
    let text = entry.split(|byte| *byte == b' ').next()?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What has been shown so far, and how the next entry is to be shown.
#[derive(Clone, Debug)]
pub struct Shown {
    timestamps: bool,
    since: Option<Timestamp>,
    stream: Option<&'static str>,
    left: Option<u64>,
    /// The last entry was partial: what follows belongs to the same line.
    within_line: bool,
}

impl Shown {
    pub fn new(options: &Options) -> Shown {
        Shown {
            timestamps: options.timestamps,
            since: options.since,
            stream: options.stream,
            left: options.limit_bytes,
            within_line: false,
        }
    }

    /// Adds an entry, given without its line end, to what the client gets. False when the client gets no more.
    pub fn add(&mut self, entry: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(line) = parse(entry) else { return true };
        if self.stream.is_some_and(|stream| stream.as_bytes() != line.stream) {
            return true;
        }
        if let Some(since) = self.since {
            if time_of(entry).is_some_and(|time| time < since) {
                return true;
            }
            // Time only goes on: no later entry needs the comparison.
            self.since = None;
        }
        let begin = out.len();
        if self.timestamps && !self.within_line {
            out.extend_from_slice(line.time);
            out.push(b' ');
        }
        out.extend_from_slice(line.content);
        if !line.partial {
            out.push(b'\n');
        }
        self.within_line = line.partial;
        let Some(left) = &mut self.left else { return true };
        let added = (out.len() - begin) as u64;
        if added >= *left {
            out.truncate(begin + *left as usize);
            *left = 0;
            return false;
        }
        *left -= added;
        true
    }
}
