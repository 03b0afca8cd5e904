//! The pages of the running program itself, and those that it has freed.

use std::io;
use std::path::Path;

/// Takes the program's own code and constants out of this process' memory. They stay in the kernel's cache of the file and come
/// back, some pages at a time, where they are used again: what only a start has needed no longer counts.
pub fn forget_pages() -> io::Result<usize> {
    let program = std::fs::read_link("/proc/self/exe")?;
    let mappings = std::fs::read_to_string("/proc/self/smaps")?;
    let mut bytes = 0;
    for (start, end) in unchanged(&mappings, &program) {
        // SAFETY: a mapping of a file that nobody has written to reads the same from the file again.
        #[allow(unsafe_code)]
        let advised =
            unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(start), end - start, libc::MADV_DONTNEED) };
        if advised != 0 {
            return Err(io::Error::last_os_error());
        }
        bytes += end - start;
    }
    Ok(bytes)
}

/// Has glibc give back the pages of memory that was freed, and says whether there were any. By itself it only does so at the end
/// of a heap, and one living object there keeps everything before it. Other allocators have nothing to give here.
#[cfg(target_env = "gnu")]
pub fn trim_heap() -> bool {
    // SAFETY: it is handed no memory, and locks each of its own arenas before it looks into it.
    #[allow(unsafe_code)]
    let trimmed = unsafe { libc::malloc_trim(0) };
    trimmed != 0
}

#[cfg(not(target_env = "gnu"))]
pub fn trim_heap() -> bool {
    false
}

/// Starts the threads of jemalloc that give freed pages back to the kernel in time. Without them only a thread that allocates or frees
/// does, for its own arena, so that after a burst a quiet process keeps what it had.
#[cfg(feature = "jemalloc")]
pub fn purge_in_background() -> io::Result<()> {
    let mut on = true;
    // SAFETY: the name ends with a zero byte, nothing is read, and what is written is a `bool` of the length that is given.
    #[allow(unsafe_code)]
    let code = unsafe {
        tikv_jemalloc_sys::mallctl(
            c"background_thread".as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            (&raw mut on).cast(),
            size_of::<bool>(),
        )
    };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// The parts of the program in memory that cannot be written to and are as they are in the file. What the loader has changed
/// and then closed is not.
fn unchanged(mappings: &str, program: &Path) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut of_program = None;
    for line in mappings.lines() {
        if let Some(range) = header(line) {
            let mut fields = line.split_whitespace();
            let rights = fields.nth(1).unwrap_or("");
            let file = fields.nth(3).unwrap_or("");
            of_program = (rights.starts_with("r-") && Path::new(file) == program).then_some(range);
        } else if let Some(amount) = line.strip_prefix("Anonymous:")
            && let Some(range) = of_program.take()
            && amount.trim() == "0 kB"
        {
            found.push(range);
        }
    }
    found
}

/// The addresses of a mapping, where a line begins one.
fn header(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_as_in_the_file() {
        let mappings = "\
00200000-00300000 r--p 00000000 fe:00 17 /usr/bin/knarr
Size:               1024 kB
Anonymous:             0 kB
00300000-00500000 r-xp 00100000 fe:00 17 /usr/bin/knarr
Anonymous:             0 kB
00500000-00600000 r--p 00300000 fe:00 17 /usr/bin/knarr
Anonymous:            12 kB
00600000-00700000 rw-p 00400000 fe:00 17 /usr/bin/knarr
Anonymous:             0 kB
00700000-00800000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000100000 r-xp 00000000 fe:00 18 /lib/libc.so.6
Anonymous:             0 kB
";
        let found = unchanged(mappings, Path::new("/usr/bin/knarr"));
        assert_eq!(found, [(0x20_0000, 0x30_0000), (0x30_0000, 0x50_0000)]);
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn freed_memory_is_given_back() {
        let resident_pages = || -> usize {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        // 64 MiB in pieces, of which only a few stay: too small to be mappings of their own.
        let pieces: Vec<Box<[u8; 1024]>> = (0..64 << 10).map(|_| Box::new([1; 1024])).collect();
        let full = resident_pages();
        let kept: Vec<_> = pieces.into_iter().enumerate().filter(|(at, _)| at % 4096 == 4095).collect();
        assert!(trim_heap());
        assert_eq!(kept.len(), 16);
        assert!(resident_pages() + (8 << 10) < full, "{full} pages before, {} after", resident_pages());
    }

    #[test]
    fn the_program_goes_on() {
        assert!(forget_pages().unwrap() > 0);
        assert_eq!(format!("{:?}", std::time::Duration::from_millis(1500)), "1.5s");
    }
}
