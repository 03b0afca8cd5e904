//! As much tar as `kubectl cp` needs: ustar, with GNU and pax long names when reading.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::Outcome;
use crate::error::{Error, Result};
use crate::files::read_all;

const BLOCK: usize = 512;
/// A long name, a pax header: anything larger is no name.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;

pub fn tar(arguments: &[String]) -> Outcome {
    let mut settings = Settings::default();
    let mut arguments = arguments.iter();
    let mut first = true;
    while let Some(argument) = arguments.next() {
        // The first word may hold the letters without a dash.
        let letters = argument.strip_prefix('-').filter(|rest| !rest.is_empty());
        let letters = if first { letters.or(Some(argument)) } else { letters };
        first = false;
        match (argument.as_str(), letters) {
            (long, _) if long.starts_with("--") => match long {
                "--no-same-permissions" => settings.keep_permissions = false,
                "--no-same-owner" | "--same-owner" | "--touch" => settings.touch |= long == "--touch",
                _ => return Err(format!("unknown option {long}").into()),
            },
            (_, Some(letters)) => {
                for letter in letters.chars() {
                    let mut value = || arguments.next().cloned().ok_or_else(|| format!("-{letter} needs a value"));
                    match letter {
                        'c' => settings.create = Some(true),
                        'x' => settings.create = Some(false),
                        'f' => settings.file = value()?,
                        'C' => std::env::set_current_dir(value()?).map_err(|error| format!("-C: {error}"))?,
                        'm' => settings.touch = true,
                        'p' | 'o' | 'h' => {}
                        'v' => settings.verbose = true,
                        _ => return Err(format!("unknown option -{letter}").into()),
                    }
                }
            }
            (path, None) => settings.paths.push(path.to_owned()),
        }
    }
    match settings.create {
        Some(true) => create(&settings),
        Some(false) => extract(&settings),
        None => Err("-c or -x is wanted".into()),
    }
}

struct Settings {
    create: Option<bool>,
    file: String,
    touch: bool,
    verbose: bool,
    keep_permissions: bool,
    paths: Vec<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        let (file, paths) = ("-".to_owned(), Vec::new());
        Settings { create: None, file, touch: false, verbose: false, keep_permissions: true, paths }
    }
}

fn create(settings: &Settings) -> Outcome {
    let mut to: Box<dyn Write> = match settings.file.as_str() {
        "-" => Box::new(std::io::BufWriter::new(std::io::stdout())),
        path => Box::new(File::create(path).map_err(|error| format!("{path}: {error}"))?),
    };
    let mut code = 0;
    for path in &settings.paths {
        if let Err(message) = append(&mut to, Path::new(path), settings.verbose) {
            eprintln!("tar: {message}");
            code = 1;
        }
    }
    to.write_all(&[0; 2 * BLOCK]).and_then(|()| to.flush()).map_err(|error| format!("write: {error}"))?;
    Ok(code)
}

fn append(to: &mut dyn Write, path: &Path, verbose: bool) -> Result<()> {
    let fail = |error: std::io::Error| Error::from(format!("{}: {error}", path.display()));
    let metadata = fs::symlink_metadata(path).map_err(fail)?;
    // Absolute names are stored without their first slash, as everyone does.
    let mut name = path.to_string_lossy().trim_start_matches('/').to_owned();
    if verbose {
        eprintln!("{name}");
    }
    if metadata.is_dir() {
        if !name.is_empty() {
            name.push('/');
            header(to, &name, "", &metadata, b'5', 0).map_err(fail)?;
        }
        let mut entries: Vec<PathBuf> =
            fs::read_dir(path).map_err(fail)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        entries.sort();
        entries.iter().try_for_each(|entry| append(to, entry, verbose))
    } else if metadata.is_symlink() {
        let target = fs::read_link(path).map_err(fail)?;
        header(to, &name, &target.to_string_lossy(), &metadata, b'2', 0).map_err(fail)
    } else if metadata.is_file() {
        let size = metadata.size();
        let file = File::open(path).map_err(fail)?;
        header(to, &name, "", &metadata, b'0', size).map_err(fail)?;
        // A file that changes while it is read must not break the frame: never more, and zeros for what is missing.
        let copied = std::io::copy(&mut file.take(size), to).map_err(fail)?;
        let rest = (size - copied) as usize + padding(size);
        to.write_all(&vec![0; rest]).map_err(fail)
    } else {
        // Sockets, pipes and devices are not carried.
        Ok(())
    }
}

fn header(
    to: &mut dyn Write,
    name: &str,
    link: &str,
    metadata: &fs::Metadata,
    kind: u8,
    size: u64,
) -> std::io::Result<()> {
    for (text, kind) in [(name, b'L'), (link, b'K')] {
        if text.len() > 100 {
            let length = text.len() as u64 + 1;
            to.write_all(&block("././@LongLink", "", 0, [0, 0], 0, kind, length))?;
            to.write_all(text.as_bytes())?;
            to.write_all(&vec![0; 1 + padding(length)])?;
        }
    }
    let (owner, modified) = ([metadata.uid(), metadata.gid()], metadata.mtime().max(0) as u64);
    to.write_all(&block(name, link, metadata.mode() & 0o7777, owner, modified, kind, size))
}

fn block(name: &str, link: &str, mode: u32, owner: [u32; 2], modified: u64, kind: u8, size: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name.as_bytes()[..name.len().min(100)]);
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, format!("{:07o}\0", owner[0] & 0o7777777).as_bytes());
    put(116, format!("{:07o}\0", owner[1] & 0o7777777).as_bytes());
    if size >> 33 == 0 {
        put(124, format!("{size:011o}\0").as_bytes());
    } else {
        put(124, &[0x80, 0, 0, 0]);
        put(128, &size.to_be_bytes());
    }
    put(136, format!("{modified:011o}\0").as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, &link.as_bytes()[..link.len().min(100)]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn extract(settings: &Settings) -> Outcome {
    let mut from: Box<dyn Read> = match settings.file.as_str() {
        "-" => Box::new(std::io::BufReader::new(std::io::stdin())),
        path => Box::new(File::open(path).map_err(|error| format!("{path}: {error}"))?),
    };
    let (mut long_name, mut long_link, mut long_size) = (None, None, None);
    let mut block = [0; BLOCK];
    loop {
        match from.read_exact(&mut block) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(0),
            Err(error) => return Err(format!("read: {error}").into()),
        }
        if block.iter().all(|byte| *byte == 0) {
            // The rest is read, so that the sender does not find a closed pipe.
            std::io::copy(&mut from, &mut std::io::sink()).map_err(|error| format!("read: {error}"))?;
            return Ok(0);
        }
        let kind = block[156];
        let size = number(&block[124..136]).ok_or("that is no tar archive")?;
        let size = if matches!(kind, b'x' | b'g' | b'L' | b'K') { size } else { long_size.take().unwrap_or(size) };
        if matches!(kind, b'x' | b'g' | b'L' | b'K') {
            if size > EXTENSION_BYTES_MAX {
                return Err("a name of the archive is too long".into());
            }
            let bytes = read_all(from.by_ref().take(size))?;
            skip(&mut from, padding(size) as u64)?;
            match kind {
                b'L' => long_name = Some(text(&bytes)),
                b'K' => long_link = Some(text(&bytes)),
                b'x' => {
                    for (key, value) in pax(&bytes) {
                        match key.as_str() {
                            "path" => long_name = Some(value),
                            "linkpath" => long_link = Some(value),
                            "size" => long_size = value.parse().ok(),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
            continue;
        }
        let name = long_name.take().unwrap_or_else(|| {
            let prefix = if &block[257..262] == b"ustar" { text(&block[345..500]) } else { String::new() };
            let name = text(&block[..100]);
            if prefix.is_empty() { name } else { format!("{prefix}/{name}") }
        });
        let link = long_link.take().unwrap_or_else(|| text(&block[157..257]));
        let entry = Entry {
            path: inside(&name)?,
            link,
            kind,
            size,
            mode: number(&block[100..108]).unwrap_or(0o644) as u32 & 0o7777,
            modified: number(&block[136..148]).unwrap_or(0),
        };
        if settings.verbose {
            eprintln!("{name}");
        }
        entry.unpack(&mut from, settings).map_err(|error| format!("{name}: {error}"))?;
        skip(&mut from, padding(size) as u64)?;
    }
}

struct Entry {
    path: PathBuf,
    link: String,
    kind: u8,
    size: u64,
    mode: u32,
    modified: u64,
}

impl Entry {
    fn unpack(&self, from: &mut dyn Read, settings: &Settings) -> std::io::Result<()> {
        let mut body = from.take(self.size);
        if let Some(parent) = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent)?;
        }
        match self.kind {
            b'5' => fs::create_dir_all(if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path })?,
            b'2' | b'1' => {
                let _ = fs::remove_file(&self.path);
                match self.kind {
                    b'2' => symlink(&self.link, &self.path)?,
                    _ => fs::hard_link(inside(&self.link).map_err(std::io::Error::other)?, &self.path)?,
                }
            }
            b'0' | 0 | b'7' => {
                // A running program cannot be overwritten, but its name can be given to another file.
                if self.path.is_symlink() || self.path.is_file() {
                    fs::remove_file(&self.path)?;
                }
                let mut file = File::create(&self.path)?;
                std::io::copy(&mut body, &mut file)?;
                if settings.keep_permissions {
                    file.set_permissions(Permissions::from_mode(self.mode))?;
                }
                if !settings.touch {
                    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(self.modified))?;
                }
            }
            // Devices and pipes are left out.
            _ => {}
        }
        std::io::copy(&mut body, &mut std::io::sink())?;
        Ok(())
    }
}

/// Nothing may be written above the folder that was named.
fn inside(name: &str) -> Result<PathBuf> {
    let mut path = PathBuf::new();
    for component in Path::new(name).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::ParentDir => return Err(format!("{name}: leads out of the folder").into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(path)
}

fn pax(bytes: &[u8]) -> Vec<(String, String)> {
    let mut records = Vec::new();
    let mut rest = bytes;
    while let Some(space) = rest.iter().position(|byte| *byte == b' ') {
        let Some(length) = text(&rest[..space]).parse().ok().filter(|length| *length > space && *length <= rest.len())
        else {
            break;
        };
        let record = String::from_utf8_lossy(&rest[space + 1..length]);
        if let Some((key, value)) = record.trim_end_matches('\n').split_once('=') {
            records.push((key.to_owned(), value.to_owned()));
        }
        rest = &rest[length..];
    }
    records
}

fn skip(from: &mut dyn Read, bytes: u64) -> Result<()> {
    std::io::copy(&mut from.take(bytes), &mut std::io::sink())
        .map(drop)
        .map_err(|error| format!("read: {error}").into())
}

fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn number(bytes: &[u8]) -> Option<u64> {
    if bytes[0] & 0x80 != 0 {
        return Some(bytes[1..].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    }
    let text = text(bytes);
    let text = text.trim();
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}
