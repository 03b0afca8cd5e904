//! Unpacks one layer into a folder that overlayfs can take as it is.
//!
//! The caller gives an empty folder and moves it to its place afterwards; a layer that is refused is the caller's to remove.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FileType;
use sha2::{Digest as _, Sha256};

use super::error::{ImageError, disk};
use super::root::{Attributes, Place, Root, set_time};
use super::tar::{Archive, Entry, Kind};

const WHITEOUT_PREFIX: &[u8] = b".wh.";
const WHITEOUT_OPAQUE: &[u8] = b".wh..wh..opq";
const WHITEOUT_META_PREFIX: &[u8] = b".wh..wh.";
const BUFFER_BYTES: usize = 128 << 10;
/// Free space is asked for again after this many unpacked bytes.
const FREE_CHECK_BYTES: u64 = 32 << 20;
const FREE_CHECK_ENTRIES: u64 = 10_000;

/// How much a layer may become.
#[derive(Clone, Debug)]
pub struct LayerLimits {
    pub bytes_max: u64,
    pub entries_max: u64,
    /// Unpacked bytes for each packed one; layers below `ratio_free_bytes` are not measured.
    pub ratio_max: u64,
    pub ratio_free_bytes: u64,
    /// This much of the disk stays free.
    pub disk_reserve_bytes: u64,
}

impl Default for LayerLimits {
    fn default() -> LayerLimits {
        LayerLimits {
            bytes_max: 256 << 30,
            entries_max: 4_000_000,
            ratio_max: 300,
            ratio_free_bytes: 512 << 20,
            disk_reserve_bytes: 256 << 20,
        }
    }
}

/// What was unpacked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Unpacked {
    pub bytes: u64,
    pub inodes: u64,
    /// Folders that the archive has files in but says nothing about: they take after the layers below.
    pub implicit: Vec<Vec<u8>>,
}

/// Unpacks a layer, packed or not, and checks that it is the one that was asked for.
///
/// Ends early when told to stop.
pub(crate) fn unpack(
    blob: File,
    target: &Path,
    diff_id: &str,
    limits: &LayerLimits,
    stop: &AtomicBool,
) -> Result<Unpacked, ImageError> {
    let packed = blob.metadata().map_err(disk("read", target))?.len();
    let reader = decompress(blob).map_err(|error| broken(&error))?;
    let meter = Meter { reader, hash: Sha256::new(), read: 0, bytes_max: ratio_limit(packed, limits) };
    let mut unpacker = Unpacker {
        archive: Archive::new(BufReader::with_capacity(BUFFER_BYTES, meter)),
        root: Root::open(target).map_err(disk("open", target))?,
        folder_times: BTreeMap::new(),
        unpacked: Unpacked::default(),
        written: 0,
        next_check: (0, 0),
        limits,
        stop,
        target,
    };
    unpacker.run()?;
    unpacker.finish_folders().map_err(disk("set times in", target))?;
    let Unpacker { archive, root, mut unpacked, .. } = unpacker;
    let mut meter = archive.into_inner();
    // Padding behind the archive belongs to the layer's digest.
    io::copy(&mut meter, &mut io::sink()).map_err(|error| broken(&error))?;
    let found = format!("sha256:{}", hex::encode(meter.into_inner().hash.finalize()));
    if found != diff_id {
        return Err(ImageError::Invalid(format!(
            "wrong diff id calculated on extraction {found:?}, expected {diff_id:?}"
        )));
    }
    unpacked.implicit = root.implicit().cloned().collect();
    Ok(unpacked)
}

/// By the first bytes, for media types lie.
pub(crate) fn decompress(file: File) -> io::Result<Box<dyn Read + Send>> {
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut magic = [0; 4];
    let mut filled = 0;
    while filled < magic.len() {
        match file.read(&mut magic[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(match magic {
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::stream::read::Decoder::with_buffer(file)?),
        _ => Box::new(file),
    })
}

struct Unpacker<'a> {
    archive: Archive<BufReader<Meter>>,
    root: Root,
    /// Set at the end, for every file that is made in a folder changes its time.
    folder_times: BTreeMap<Vec<u8>, (i64, u32)>,
    unpacked: Unpacked,
    written: u64,
    next_check: (u64, u64),
    limits: &'a LayerLimits,
    stop: &'a AtomicBool,
    target: &'a Path,
}

impl Unpacker<'_> {
    fn run(&mut self) -> Result<(), ImageError> {
        while let Some(entry) = self.archive.next().map_err(|error| broken(&error))? {
            self.unpacked.inodes += 1;
            if self.unpacked.inodes > self.limits.entries_max {
                return Err(ImageError::TooLarge(format!("layer has more than {} entries", self.limits.entries_max)));
            }
            self.check_space()?;
            let name = String::from_utf8_lossy(&entry.path).into_owned();
            self.entry(entry).map_err(|error| match error {
                Failed::Entry(error) if error.kind() == io::ErrorKind::StorageFull => {
                    ImageError::TooLarge(format!("no space left on device while unpacking {name:?}"))
                }
                Failed::Entry(error) => match broken(&error) {
                    exceeded @ ImageError::TooLarge(_) => exceeded,
                    _ => ImageError::Invalid(format!("failed to unpack {name:?}: {error}")),
                },
                Failed::Limit(error) => error,
            })?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: Entry) -> Result<(), Failed> {
        let attributes = Attributes {
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            mtime: entry.mtime,
            xattrs: entry.xattrs.clone(),
        };
        let Some(place) = self.root.place(&entry.path)? else { return Ok(self.root_itself(&entry, &attributes)?) };
        if place.name.as_bytes().starts_with(WHITEOUT_PREFIX) {
            return Ok(self.whiteout(&place)?);
        }
        let there = place.kind()?;
        let merges = entry.kind == Kind::Directory && there == Some(FileType::Directory);
        if there.is_some() && !merges && entry.kind != Kind::Other {
            if entry.kind == Kind::HardLink && clean_is_same(&entry) {
                return Ok(());
            }
            place.clear()?;
        }
        match entry.kind {
            Kind::File => {
                let mut file = place.create_file()?;
                self.content(&mut file, &entry)?;
                place.apply(&attributes, FileType::RegularFile)?;
            }
            Kind::Directory => {
                if !merges {
                    place.create_folder()?;
                }
                place.apply(&attributes, FileType::Directory)?;
                self.root.named(&place.path);
                self.folder_times.insert(place.path, entry.mtime);
            }
            Kind::SymbolicLink => {
                place.create_symbolic_link(&entry.link)?;
                place.apply(&attributes, FileType::Symlink)?;
            }
            Kind::HardLink => {
                let existing = self.root.existing(&entry.link)?;
                if existing.kind()? == Some(FileType::Directory) {
                    return Err(io::Error::other("hard link to a directory").into());
                }
                place.create_hard_link(&existing)?;
            }
            Kind::CharacterDevice => self.node(&place, FileType::CharacterDevice, &entry, &attributes)?,
            Kind::BlockDevice => self.node(&place, FileType::BlockDevice, &entry, &attributes)?,
            Kind::Fifo => self.node(&place, FileType::Fifo, &entry, &attributes)?,
            Kind::Other => {}
        }
        Ok(())
    }

    /// `./`: the root of the layer.
    fn root_itself(&mut self, entry: &Entry, attributes: &Attributes) -> io::Result<()> {
        if entry.kind != Kind::Directory {
            return Err(io::Error::other("the root is not a directory"));
        }
        let folder = self.root.folder(b"").ok_or_else(|| io::Error::other("a whiteout removes the root"))?;
        let place = Place { folder, name: ".".into(), path: Vec::new() };
        place.apply(attributes, FileType::Directory)?;
        self.folder_times.insert(Vec::new(), entry.mtime);
        Ok(())
    }

    fn whiteout(&mut self, place: &Place) -> io::Result<()> {
        let name = place.name.as_bytes();
        if name == WHITEOUT_OPAQUE {
            return Place::make_opaque(&open_folder(place)?);
        }
        if name.starts_with(WHITEOUT_META_PREFIX) {
            // Bookkeeping of the old aufs, of no use to anyone.
            return Ok(());
        }
        let hidden = &name[WHITEOUT_PREFIX.len()..];
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(io::Error::other("whiteout without a name"));
        }
        let folder = place.folder.try_clone()?;
        let hidden = Place { folder, name: std::ffi::OsStr::from_bytes(hidden).to_owned(), path: Vec::new() };
        // What this very layer has under the name was put there after the removal.
        match hidden.kind()? {
            None => hidden.create_node(FileType::CharacterDevice, (0, 0)),
            Some(_) => Ok(()),
        }
    }

    fn node(&mut self, place: &Place, kind: FileType, entry: &Entry, attributes: &Attributes) -> io::Result<()> {
        place.create_node(kind, if kind == FileType::Fifo { (0, 0) } else { entry.device })?;
        place.apply(attributes, kind)
    }

    fn content(&mut self, file: &mut File, entry: &Entry) -> Result<(), Failed> {
        let whole = [(0, entry.size)];
        let parts = entry.sparse.as_ref().map_or(&whole[..], |sparse| &sparse.parts);
        let mut buffer = vec![0; BUFFER_BYTES.min(usize::try_from(entry.size).unwrap_or(BUFFER_BYTES)).max(1)];
        for (offset, length) in parts {
            if entry.sparse.is_some() {
                file.seek(SeekFrom::Start(*offset))?;
            }
            let mut rest = *length;
            while rest > 0 {
                let wanted = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
                let read = self.archive.read(&mut buffer[..wanted])?;
                if read == 0 {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "archive ends inside a file").into());
                }
                file.write_all(&buffer[..read])?;
                rest -= read as u64;
                self.written += read as u64;
                self.check_space().map_err(Failed::Limit)?;
            }
        }
        if let Some(sparse) = &entry.sparse {
            file.set_len(sparse.real_size)?;
        }
        self.unpacked.bytes = self.unpacked.bytes.saturating_add(entry.size);
        Ok(())
    }

    fn check_space(&mut self) -> Result<(), ImageError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(ImageError::Silent("stopped".to_owned()));
        }
        if self.written > self.limits.bytes_max {
            return Err(ImageError::TooLarge(format!("layer is larger than {} bytes unpacked", self.limits.bytes_max)));
        }
        if self.written < self.next_check.0 && self.unpacked.inodes < self.next_check.1 {
            return Ok(());
        }
        self.next_check = (self.written + FREE_CHECK_BYTES, self.unpacked.inodes + FREE_CHECK_ENTRIES);
        let free = rustix::fs::statvfs(self.target).map_err(disk("look at", self.target))?;
        if free.f_bavail.saturating_mul(free.f_frsize) < self.limits.disk_reserve_bytes {
            Err(ImageError::TooLarge("no space left on device: layer does not fit".to_owned()))
        } else {
            Ok(())
        }
    }

    fn finish_folders(&mut self) -> Result<(), io::Error> {
        for (path, time) in &self.folder_times {
            // A later entry may have put something else in the place of the folder.
            if let Some(folder) = self.root.folder(path) {
                set_time(&folder, ".".as_ref(), *time)?;
            }
        }
        Ok(())
    }
}

/// A hard link to itself, which some tools write for the first name of a file.
fn clean_is_same(entry: &Entry) -> bool {
    let trim = |path: &[u8]| String::from_utf8_lossy(path).trim_start_matches("./").trim_start_matches('/').to_owned();
    trim(&entry.path) == trim(&entry.link)
}

fn open_folder(place: &Place) -> io::Result<std::os::fd::OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&place.folder, ".", flags, Mode::empty())?)
}

enum Failed {
    Entry(io::Error),
    Limit(ImageError),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Entry(error)
    }
}

fn broken(error: &io::Error) -> ImageError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Exceeded>()) {
        Some(exceeded) => ImageError::TooLarge(exceeded.0.clone()),
        None => ImageError::Invalid(format!("layer is broken: {error}")),
    }
}

fn ratio_limit(packed: u64, limits: &LayerLimits) -> u64 {
    // Headers count here too, so a layer of empty files is measured as well.
    packed.saturating_mul(limits.ratio_max).max(limits.ratio_free_bytes).min(limits.bytes_max.saturating_mul(2))
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Exceeded(String);

/// Counts and digests the unpacked archive as it goes by.
struct Meter {
    reader: Box<dyn Read + Send>,
    hash: Sha256,
    read: u64,
    bytes_max: u64,
}

impl Read for Meter {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.read += read as u64;
        if self.read > self.bytes_max {
            Err(io::Error::other(Exceeded(format!("layer unpacks to more than {} bytes", self.bytes_max))))
        } else {
            Ok(read)
        }
    }
}
