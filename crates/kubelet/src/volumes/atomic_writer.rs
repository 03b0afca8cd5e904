//! Shows a set of files so that a reader sees all of the old or all of the new, never some of each.
//!
//! The files lie in a folder named after the time, `..data` is a link to it that is replaced in one step, and every name a
//! user sees is a link through `..data`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use jiff::Timestamp;

use super::error::PathError;
use super::payload::Payload;

const DATA: &str = "..data";
const DATA_NEW: &str = "..data_tmp";
const PATH_MAX: usize = 4096;
const NAME_MAX: usize = 255;

/// Makes the folder show exactly these files. `finish` is called with the new folder before anybody can see it.
pub(super) fn write(
    folder: &Path,
    payload: &Payload,
    now: Timestamp,
    finish: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    for path in payload.keys() {
        check(path)?;
    }
    let old = current(folder)?;
    let up_to_date = match &old {
        Some(name) => shows(&folder.join(name), payload)?,
        None => false,
    };
    if !up_to_date {
        let new = new_folder(folder, now)?;
        let written = write_files(&folder.join(&new), payload).and_then(|()| finish(&folder.join(&new)));
        let switched = written.and_then(|()| switch(folder, &new));
        if let Err(error) = switched {
            // The old content stays in place; the half-made folder would only take room.
            drop(fs::remove_dir_all(folder.join(&new)));
            return Err(error);
        }
    }
    // Also after a crash between two of these steps: the links and leftovers are looked at every time.
    make_links(folder, payload)?;
    remove_leftovers(folder, payload)
}

/// The same rules as upstream, with its words.
fn check(path: &str) -> Result<(), PathError> {
    if path.is_empty() {
        return Err(PathError::Empty);
    }
    if path.starts_with('/') {
        return Err(PathError::Absolute(path.to_owned()));
    }
    if path.len() > PATH_MAX {
        return Err(PathError::Long { max: PATH_MAX });
    }
    for part in path.split('/') {
        match part {
            ".." => return Err(PathError::Upwards(path.to_owned())),
            _ if part.len() > NAME_MAX => {
                return Err(PathError::LongName { max: NAME_MAX });
            }
            _ if part.contains('\0') => return Err(PathError::Other(path.to_owned())),
            _ => {}
        }
    }
    if path.starts_with("..") {
        return Err(PathError::Hidden(path.to_owned()));
    }
    match Path::new(path).components().next() {
        Some(Component::Normal(_)) => Ok(()),
        _ if Path::new(path).components().any(|part| matches!(part, Component::Normal(_))) => Ok(()),
        _ => Err(PathError::Other(path.to_owned())),
    }
}

/// The folder that `..data` names, when there is one.
fn current(folder: &Path) -> io::Result<Option<PathBuf>> {
    match fs::read_link(folder.join(DATA)) {
        Ok(name) => Ok(Some(name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the folder holds exactly these files with this content.
fn shows(folder: &Path, payload: &Payload) -> io::Result<bool> {
    let mut found = BTreeSet::new();
    if !folder.is_dir() {
        return Ok(false);
    }
    list_files(folder, Path::new(""), &mut found)?;
    let wished: BTreeSet<PathBuf> = payload.keys().map(|path| clean(path)).collect();
    if found != wished {
        return Ok(false);
    }
    for (path, file) in payload {
        match linux::file::read_regular(&folder.join(path), file.data.len() as u64) {
            Ok(data) if data == file.data => {}
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn list_files(folder: &Path, below: &Path, found: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() { list_files(folder, &path, found)? } else { _ = found.insert(path) }
    }
    Ok(())
}

/// Without `.` and doubled slashes.
fn clean(path: &str) -> PathBuf {
    Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

/// A new folder named after the time and something random.
fn new_folder(folder: &Path, now: Timestamp) -> io::Result<PathBuf> {
    let time = now.strftime("..%Y_%m_%d_%H_%M_%S");
    loop {
        let name = PathBuf::from(format!("{time}.{:010}", rand::random::<u32>()));
        match fs::DirBuilder::new().mode(0o755).create(folder.join(&name)) {
            Ok(()) => {
                // The umask must not keep users of the volume out.
                fs::set_permissions(folder.join(&name), fs::Permissions::from_mode(0o755))?;
                return Ok(name);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn write_files(folder: &Path, payload: &Payload) -> io::Result<()> {
    for (path, file) in payload {
        let path = folder.join(clean(path));
        if let Some(parent) = path.parent() {
            make_parents(folder, parent)?;
        }
        let mut target = linux::file::create_new(&path, 0o600)?;
        target.write_all(&file.data)?;
        target.set_permissions(fs::Permissions::from_mode(file.mode & 0o7777))?;
        if let Some(user) = file.user {
            linux::tree::give_to_user(&path, user)?;
        }
    }
    Ok(())
}

fn make_parents(folder: &Path, parent: &Path) -> io::Result<()> {
    if parent == folder || parent.is_dir() {
        return Ok(());
    }
    if let Some(above) = parent.parent() {
        make_parents(folder, above)?;
    }
    fs::create_dir(parent)?;
    fs::set_permissions(parent, fs::Permissions::from_mode(0o755))
}

/// Points `..data` at the new folder, in one step.
fn switch(folder: &Path, new: &Path) -> io::Result<()> {
    let link = folder.join(DATA_NEW);
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => symlink(new, &link)?,
    }
    fs::rename(link, folder.join(DATA))
}

fn visible(payload: &Payload) -> BTreeSet<PathBuf> {
    payload.keys().filter_map(|path| clean(path).components().next().map(|first| first.as_os_str().into())).collect()
}

fn make_links(folder: &Path, payload: &Payload) -> io::Result<()> {
    for name in visible(payload) {
        match symlink(Path::new(DATA).join(&name), folder.join(&name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Names that are shown no more, and folders of earlier times.
fn remove_leftovers(folder: &Path, payload: &Payload) -> io::Result<()> {
    let (now, shown) = (current(folder)?, visible(payload));
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        let hidden = name.to_string_lossy().starts_with("..");
        let kind = entry.file_type()?;
        if kind.is_dir() && hidden && Some(&name) != now.as_ref() {
            fs::remove_dir_all(entry.path())?;
        } else if kind.is_symlink() && !hidden && !shown.contains(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::payload::File;
    use super::super::tests::Folder;
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |text: &str| File { data: text.as_bytes().to_vec(), mode: 0o640, user: None };
        files.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_shown_replaced_and_removed() {
        let folder = Folder::new("atomic");
        write(&folder.0, &payload(&[("a", "1"), ("nested/deep/b", "2")]), NOW, |_| Ok(())).unwrap();
        assert_eq!(fs::read_to_string(folder.0.join("a")).unwrap(), "1");
        assert_eq!(fs::read_to_string(folder.0.join("nested/deep/b")).unwrap(), "2");
        assert_eq!(fs::read_link(folder.0.join("a")).unwrap(), Path::new("..data/a"));
        assert_eq!(fs::metadata(folder.0.join("a")).unwrap().permissions().mode() & 0o777, 0o640);
        let first = current(&folder.0).unwrap().unwrap();
        write(&folder.0, &payload(&[("a", "1"), ("nested/deep/b", "2")]), NOW, |_| Ok(())).unwrap();
        assert_eq!(current(&folder.0).unwrap().unwrap(), first, "nothing changed, nothing is written");
        write(&folder.0, &payload(&[("a", "new")]), NOW, |_| Ok(())).unwrap();
        let second = current(&folder.0).unwrap().unwrap();
        assert_eq!(names(&folder.0), [second.to_str().unwrap(), "..data", "a"]);
        assert_eq!(fs::read_to_string(folder.0.join("a")).unwrap(), "new");
        write(&folder.0, &Payload::new(), NOW, |_| Ok(())).unwrap();
        assert_eq!(names(&folder.0).len(), 2);
    }

    #[test]
    fn a_failure_leaves_the_old_content() {
        let folder = Folder::new("atomic-fail");
        write(&folder.0, &payload(&[("a", "1")]), NOW, |_| Ok(())).unwrap();
        write(&folder.0, &payload(&[("a", "2")]), NOW, |_| Err(io::Error::other("no"))).unwrap_err();
        assert_eq!(fs::read_to_string(folder.0.join("a")).unwrap(), "1");
        assert_eq!(names(&folder.0).len(), 3);
        write(&folder.0, &payload(&[("a", "2"), ("a/b", "3")]), NOW, |_| Ok(())).unwrap_err();
        assert_eq!(fs::read_to_string(folder.0.join("a")).unwrap(), "1");
    }

    #[test]
    fn hostile_paths_are_refused() {
        let folder = Folder::new("atomic-hostile");
        let cases = [
            ("/etc/passwd", "invalid path: must be relative path: /etc/passwd"),
            ("a/../../b", "invalid path: must not contain '..': a/../../b"),
            ("..", "invalid path: must not contain '..': .."),
            ("..data", "invalid path: must not start with '..': ..data"),
            ("", "invalid path: must not be empty: "),
            (".", "invalid path: \".\""),
        ];
        for (path, expected) in cases {
            let error = write(&folder.0, &payload(&[(path, "x")]), NOW, |_| Ok(())).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        assert!(names(&folder.0).is_empty());
    }
}
