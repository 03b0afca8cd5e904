//! A disk that loses what it was not told to keep.
//!
//! Killing qemu is not a power cut: the kernel's page cache is lost with the guest, but what the guest wrote and did not flush
//! is in a file of this machine, where no option of qemu's caches makes it go away. A real disk keeps such writes in its own
//! memory and loses them. So qemu writes down every write and every flush in order (`blklogwrites`, the format of the
//! kernel's dm-log-writes), while the guest works on a copy; after the cut the log is played back onto the disk as it was
//! before the boot, up to the last flush. Whatever came later is gone, all of it, which is the worst that a disk may do.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, ensure};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const SECTOR: u64 = 512;
const FLUSH: u64 = 1;
/// A write that is kept although nothing is flushed.
const FORCE_UNIT_ACCESS: u64 = 2;
const DISCARD: u64 = 4;
const FLAGS_ALL: u64 = 15;
/// A file of holes that no run fills.
const LOG_BYTES: u64 = 64 << 30;
const WRITE_SECTORS_MAX: u64 = 1 << 20;

/// What a power cut took, for the note of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub writes: usize,
    pub writes_kept: usize,
    pub flushes: usize,
}

struct Entry {
    /// Where its data begin in the log.
    data: u64,
    sector: u64,
    sectors: u64,
    flags: u64,
}

pub(crate) fn new_log(path: &Path) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    file.set_len(LOG_BYTES).context("make room for the log of writes")
}

pub(crate) fn lose_unflushed(disk: &Path, log: &Path) -> anyhow::Result<Lost> {
    let log = File::open(log).context("open the log of writes")?;
    let disk = File::options().write(true).open(disk).context("open the disk")?;
    let sectors = disk.metadata()?.len() / SECTOR;
    let entries = entries(&log, sectors)?;
    let last_flush = entries.iter().rposition(|entry| entry.flags & FLUSH != 0).unwrap_or(0);
    let is_kept = |index: usize, entry: &Entry| index < last_flush || entry.flags & FORCE_UNIT_ACCESS != 0;
    let mut lost = Lost { flushes: entries.iter().filter(|entry| entry.flags & FLUSH != 0).count(), ..Lost::default() };
    for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.sectors > 0) {
        if !is_kept(index, entry) {
            lost.writes += 1;
            continue;
        }
        lost.writes_kept += 1;
        if entry.flags & DISCARD == 0 {
            let mut data = vec![0; (entry.sectors * SECTOR) as usize];
            log.read_exact_at(&mut data, entry.data).context("read a write")?;
            disk.write_all_at(&data, entry.sector * SECTOR).context("play a write back")?;
        }
    }
    Ok(lost)
}

fn entries(log: &File, disk_sectors: u64) -> anyhow::Result<Vec<Entry>> {
    let numbers = |at: u64| -> anyhow::Result<[u64; 4]> {
        let mut bytes = [0; 32];
        log.read_exact_at(&mut bytes, at).context("read the log of writes")?;
        Ok([0, 8, 16, 24].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())))
    };
    let [magic, version, count, sector] = numbers(0)?;
    // Nothing was flushed yet, so nothing was written down for good.
    if magic == 0 {
        return Ok(Vec::new());
    }
    ensure!(magic == MAGIC && version == 1 && sector & 0xffff_ffff == SECTOR, "this is no log of writes");
    let (mut found, mut at) = (Vec::new(), SECTOR);
    // The count is written with each flush; what is found behind it was lost.
    loop {
        let [sector, sectors, flags, _] = numbers(at)?;
        let is_known = flags <= FLAGS_ALL && sectors <= WRITE_SECTORS_MAX && (sectors > 0 || flags != 0);
        if !is_known || sector + sectors > disk_sectors {
            // One that was under way when qemu was killed may be missing in between; a guess would be worse than an error.
            ensure!(found.len() as u64 >= count, "the log of writes has a hole at {at}");
            return Ok(found);
        }
        let data = at + SECTOR;
        found.push(Entry { data, sector, sectors, flags });
        at = data + if flags & DISCARD == 0 { sectors * SECTOR } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_of(path: &Path, entries: &[(u64, u64, u64, u8)]) {
        new_log(path).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        let put = |at: u64, numbers: [u64; 4]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            file.write_all_at(&bytes, at).unwrap();
        };
        let flushed = entries.iter().rposition(|(_, _, flags, _)| flags & FLUSH != 0).map_or(1, |last| last + 1);
        put(0, [MAGIC, 1, flushed as u64, SECTOR]);
        let mut at = SECTOR;
        for (sector, sectors, flags, byte) in entries {
            put(at, [*sector, *sectors, *flags, 0]);
            file.write_all_at(&vec![*byte; (sectors * SECTOR) as usize], at + SECTOR).unwrap();
            at += SECTOR + sectors * SECTOR;
        }
    }

    #[test]
    fn what_comes_after_the_last_flush_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, log) = (folder.path().join("disk"), folder.path().join("log"));
        std::fs::write(&disk, vec![b'.'; 8 * SECTOR as usize]).unwrap();
        let kept = [(1, 2, 0, b'a'), (2, 1, 0, b'b'), (0, 0, FLUSH, 0)];
        let later = [(4, 1, 0, b'c'), (5, 1, FORCE_UNIT_ACCESS, b'd')];
        log_of(&log, &[&kept[..], &later[..]].concat());
        assert_eq!(lose_unflushed(&disk, &log).unwrap(), Lost { writes: 1, writes_kept: 3, flushes: 1 });
        let found = std::fs::read(&disk).unwrap();
        let letters: String = found.chunks(SECTOR as usize).map(|sector| sector[0] as char).collect();
        assert_eq!(letters, ".ab..d..");

        log_of(&log, &[(9, 1, 0, b'x')]);
        assert!(lose_unflushed(&disk, &log).is_err());
        new_log(&log).unwrap();
        assert_eq!(lose_unflushed(&disk, &log).unwrap(), Lost::default());
    }
}
