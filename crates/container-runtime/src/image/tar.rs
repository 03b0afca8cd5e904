//! Reads tar archives as layers need it: every format that Docker, Go and GNU tar write, with bounded memory.
//!
//! The usual crate splits extended headers at line ends, which loses capabilities whose bytes hold one, and takes headers of
//! any length into memory.

use std::io::{self, Read};

const BLOCK: usize = 512;
/// Long names and extended attributes of one entry.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;
const SPARSE_PARTS_MAX: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    HardLink,
    SymbolicLink,
    CharacterDevice,
    BlockDevice,
    Directory,
    Fifo,
    /// Something that has no place in a file system, such as a comment.
    Other,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub path: Vec<u8>,
    pub link: Vec<u8>,
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: (i64, u32),
    /// Bytes of content that follow in the archive.
    pub size: u64,
    pub device: (u32, u32),
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub sparse: Option<Sparse>,
}

/// Where the content of a file with holes belongs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sparse {
    pub parts: Vec<(u64, u64)>,
    pub real_size: u64,
}

pub(crate) struct Archive<R> {
    reader: R,
    /// Content of the current entry that was not read yet, and the padding behind it.
    content: u64,
    padding: u64,
    globals: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<R: Read> Archive<R> {
    pub fn new(reader: R) -> Archive<R> {
        Archive { reader, content: 0, padding: 0, globals: Vec::new() }
    }

    pub fn into_inner(self) -> R {
        self.reader
    }

    /// The next entry; what was not read of the one before is passed over.
    pub fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut long_path = None;
        let mut long_link = None;
        let mut extended = Vec::new();
        loop {
            self.skip_rest()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let size = number(&header[124..136]).ok_or_else(|| invalid("size"))?;
            self.content = size;
            self.padding = padding(size);
            match header[156] {
                b'L' => long_path = Some(without_nul(self.extension()?)),
                b'K' => long_link = Some(without_nul(self.extension()?)),
                b'x' => extended = records(&self.extension()?)?,
                b'g' => self.globals = records(&self.extension()?)?,
                kind => {
                    let mut all = self.globals.clone();
                    all.append(&mut extended);
                    return self.entry(&header, kind, long_path, long_link, all).map(Some);
                }
            }
        }
    }

    fn entry(
        &mut self,
        header: &[u8; BLOCK],
        kind: u8,
        long_path: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
        extended: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> io::Result<Entry> {
        let small = |range: std::ops::Range<usize>, name| number(&header[range]).ok_or_else(|| invalid(name));
        let mut entry = Entry {
            path: long_path.unwrap_or_else(|| header_path(header)),
            link: long_link.unwrap_or_else(|| without_nul(header[157..257].to_vec())),
            kind: Kind::Other,
            mode: (small(100..108, "mode")? & 0o7777) as u32,
            uid: identity(small(108..116, "uid")?)?,
            gid: identity(small(116..124, "gid")?)?,
            mtime: (signed(&header[136..148]).ok_or_else(|| invalid("mtime"))?, 0),
            size: self.content,
            device: (small(329..337, "device")? as u32, small(337..345, "device")? as u32),
            xattrs: Vec::new(),
            sparse: None,
        };
        let sparse = entry.apply(extended)?;
        // Only now, for the name in the header may be the beginning of a longer one and end with a slash by chance.
        entry.kind = kind_of(kind, &entry.path);
        if entry.path.contains(&0) || entry.link.contains(&0) {
            return Err(invalid("name"));
        }
        self.content = match entry.kind {
            Kind::File | Kind::Other => entry.size,
            // Some writers give the size of the file with its other names, and no content.
            Kind::HardLink
            | Kind::SymbolicLink
            | Kind::CharacterDevice
            | Kind::BlockDevice
            | Kind::Directory
            | Kind::Fifo => 0,
        };
        self.padding = padding(self.content);
        if header[156] == b'S' {
            entry.sparse = Some(self.sparse_of_header(header)?);
        } else if let Some(real_size) = sparse.real_size {
            entry.sparse = Some(self.sparse_of_records(&sparse, real_size)?);
            entry.path = sparse.name.unwrap_or(entry.path);
        }
        entry.size = self.content;
        Ok(entry)
    }

    /// The old GNU format: four parts in the header, more in blocks behind it.
    fn sparse_of_header(&mut self, header: &[u8; BLOCK]) -> io::Result<Sparse> {
        let mut sparse =
            Sparse { parts: Vec::new(), real_size: number(&header[483..495]).ok_or_else(|| invalid("sparse size"))? };
        let mut take = |table: &[u8]| -> io::Result<()> {
            for part in table.chunks_exact(24).filter(|part| part[0] != 0) {
                let pair = number(&part[..12]).zip(number(&part[12..])).ok_or_else(|| invalid("sparse part"))?;
                sparse.parts.push(pair);
            }
            (sparse.parts.len() <= SPARSE_PARTS_MAX).then_some(()).ok_or_else(|| invalid("sparse parts"))
        };
        take(&header[386..482])?;
        let mut more = header[482] != 0;
        while more {
            let mut block = [0; BLOCK];
            self.reader.read_exact(&mut block)?;
            take(&block[..504])?;
            more = block[504] != 0;
        }
        Ok(sparse)
    }

    fn sparse_of_records(&mut self, records: &SparseRecords, real_size: u64) -> io::Result<Sparse> {
        let numbers: Vec<u64> = match (&records.map, records.major) {
            (Some(map), _) => {
                map.split(',').map(|n| n.parse().map_err(|_| invalid("sparse map"))).collect::<io::Result<_>>()?
            }
            (None, 1) => self.sparse_of_content()?,
            (None, _) => return Err(invalid("sparse format")),
        };
        if numbers.len() > 2 * SPARSE_PARTS_MAX || !numbers.len().is_multiple_of(2) {
            return Err(invalid("sparse map"));
        }
        Ok(Sparse { parts: numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(), real_size })
    }

    /// Version 1.0 puts the map in front of the content: a count and numbers, one to a line, filled up to whole blocks.
    fn sparse_of_content(&mut self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        let mut line = String::new();
        loop {
            let mut block = [0; BLOCK];
            self.read_exact(&mut block)?;
            for byte in block {
                match byte {
                    b'\n' => numbers.push(line.parse::<u64>().map_err(|_| invalid("sparse map"))?),
                    b'0'..=b'9' if line.len() < 20 => {
                        line.push(char::from(byte));
                        continue;
                    }
                    0 => break,
                    _ => return Err(invalid("sparse map")),
                }
                line.clear();
                let count = numbers[0];
                if count > SPARSE_PARTS_MAX as u64 {
                    return Err(invalid("sparse map"));
                }
                if numbers.len() as u64 == 1 + 2 * count {
                    numbers.remove(0);
                    return Ok(numbers);
                }
            }
        }
    }

    fn header(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut header = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.reader.read(&mut header[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "archive ends inside a header")),
                read => filled += read,
            }
        }
        if header.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum = number(&header[148..156]).ok_or_else(|| invalid("checksum"))?;
        let counted: u64 =
            header.iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { 32 } else { u64::from(*b) }).sum();
        (sum == counted).then_some(Some(header)).ok_or_else(|| invalid("header: its checksum is wrong"))
    }

    fn extension(&mut self) -> io::Result<Vec<u8>> {
        if self.content > EXTENSION_BYTES_MAX {
            return Err(invalid("extended header: it is too long"));
        }
        let mut bytes = vec![0; self.content as usize];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        let rest = self.content + self.padding;
        self.content = 0;
        self.padding = 0;
        match io::copy(&mut (&mut self.reader).take(rest), &mut io::sink())? {
            skipped if skipped == rest => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "archive ends inside a file")),
        }
    }
}

/// The content of the current entry.
impl<R: Read> Read for Archive<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.content).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.reader.read(&mut buffer[..wanted])?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "archive ends inside a file"));
        }
        self.content -= read as u64;
        Ok(read)
    }
}

impl Entry {
    /// Puts the records of an extended header in the place of what the header says; answers those about sparse files.
    fn apply(&mut self, extended: Vec<(Vec<u8>, Vec<u8>)>) -> io::Result<SparseRecords> {
        let mut sparse = SparseRecords::default();
        for (key, value) in extended {
            let decimal =
                || text(&value).and_then(|value| value.parse::<u64>().ok()).ok_or_else(|| invalid("extended header"));
            match key.as_slice() {
                b"path" => self.path = value,
                b"linkpath" => self.link = value,
                b"size" => {
                    self.size =
                        Some(decimal()?).filter(|size| *size <= i64::MAX as u64).ok_or_else(|| invalid("size"))?
                }
                b"uid" => self.uid = identity(decimal()?)?,
                b"gid" => self.gid = identity(decimal()?)?,
                b"mtime" => self.mtime = text(&value).and_then(time).ok_or_else(|| invalid("mtime"))?,
                b"GNU.sparse.name" => sparse.name = Some(value),
                b"GNU.sparse.major" => sparse.major = decimal()?,
                b"GNU.sparse.realsize" | b"GNU.sparse.size" => sparse.real_size = Some(decimal()?),
                b"GNU.sparse.map" => sparse.map = text(&value).map(str::to_owned),
                _ => {
                    if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                        self.xattrs.push((name.to_vec(), value));
                    }
                }
            }
        }
        Ok(sparse)
    }
}

#[derive(Default)]
struct SparseRecords {
    name: Option<Vec<u8>>,
    major: u64,
    real_size: Option<u64>,
    map: Option<String>,
}

/// Old writers tell a folder from a file by the slash at the end of its name alone.
fn kind_of(flag: u8, path: &[u8]) -> Kind {
    match flag {
        0 | b'0' | b'7' | b'S' if path.ends_with(b"/") => Kind::Directory,
        0 | b'0' | b'7' | b'S' => Kind::File,
        b'1' => Kind::HardLink,
        b'2' => Kind::SymbolicLink,
        b'3' => Kind::CharacterDevice,
        b'4' => Kind::BlockDevice,
        b'5' => Kind::Directory,
        b'6' => Kind::Fifo,
        _ => Kind::Other,
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("archive/tar: invalid tar header: {what}"))
}

fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

fn without_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

fn header_path(header: &[u8; BLOCK]) -> Vec<u8> {
    let name = without_nul(header[..100].to_vec());
    // Only POSIX archives have a prefix; GNU keeps times in its place.
    if &header[257..263] == b"ustar\0" && header[345] != 0 {
        [without_nul(header[345..500].to_vec()).as_slice(), b"/", &name].concat()
    } else {
        name
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn identity(number: u64) -> io::Result<u32> {
    u32::try_from(number).ok().filter(|number| *number != u32::MAX).ok_or_else(|| invalid("uid or gid"))
}

/// Octal text, or a big-endian number behind a set first bit.
fn number(field: &[u8]) -> Option<u64> {
    signed(field).and_then(|number| u64::try_from(number).ok())
}

fn signed(field: &[u8]) -> Option<i64> {
    if field[0] & 0x80 != 0 {
        let negative = field[0] & 0x40 != 0;
        let first = if negative { i128::from(field[0] as i8) } else { i128::from(field[0] & 0x7f) };
        let value =
            field[1..].iter().try_fold(first, |value, byte| value.checked_mul(256)?.checked_add(i128::from(*byte)))?;
        return i64::try_from(value).ok();
    }
    let text = text(field)?.trim_matches(['\0', ' ']);
    match text {
        "" => Some(0),
        text => i64::from_str_radix(text.split(['\0', ' ']).next()?, 8).ok(),
    }
}

/// `12.5` is twelve and a half seconds.
fn time(text: &str) -> Option<(i64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    if whole.starts_with('-') && nanoseconds > 0 {
        Some((seconds - 1, 1_000_000_000 - nanoseconds))
    } else {
        Some((seconds, nanoseconds))
    }
}

/// `<length> <key>=<value>\n`, where only the length says where a value ends.
fn records(mut bytes: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let record = (|| {
            let space = bytes.iter().position(|byte| *byte == b' ')?;
            let length: usize = text(&bytes[..space])?.parse().ok()?;
            let body = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
            let equals = body.iter().position(|byte| *byte == b'=')?;
            Some((length, body[..equals].to_vec(), body[equals + 1..].to_vec()))
        })();
        let (length, key, value) = record.ok_or_else(|| invalid("extended header"))?;
        records.push((key, value));
        bytes = &bytes[length..];
    }
    Ok(records)
}

#[cfg(test)]
mod tests;
