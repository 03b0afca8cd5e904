//! `hostPath`: a file or folder of the node itself.

use std::fs::{self, FileType};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use futures::FutureExt;
use k8s_openapi::api::core::v1::HostPathVolumeSource;

use super::{Error, Problem, Request, Type, Volume, blocking};

pub(super) static TYPE: Type =
    Type { is: |volume| volume.host_path.is_some(), mount: |request| mount(request).boxed() };

async fn mount(request: Request<'_>) -> Result<Volume, Problem> {
    let source = request.volume.host_path.clone().unwrap_or_default();
    place(source, false).await
}

pub(super) async fn place(source: HostPathVolumeSource, read_only: bool) -> Result<Volume, Problem> {
    if source.path.split('/').any(|part| part == "..") {
        return Err(Error::HostPathUpwards(source.path).into());
    }
    let path = PathBuf::from(&source.path);
    let outcome =
        blocking(move || Ok(check(Path::new(&source.path), source.type_.as_deref().unwrap_or_default()))).await;
    outcome??;
    Ok(Volume::Path { path, read_only, relabel: false })
}

/// Holds the path against its type, and makes what the type says is made.
fn check(path: &Path, wished: &str) -> Result<(), Error> {
    let found = match fs::metadata(path) {
        Ok(found) => Some(found.file_type()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
        Err(source) => return Err(Error::Step { step: format!("stat {}", path.display()), source }),
    };
    let (right, what): (fn(&FileType) -> bool, &'static str) = match (wished, found) {
        // Runtimes make a folder where nothing is; so it is the same with all of them.
        ("" | "DirectoryOrCreate", None) => {
            return make_folder(path).map_err(|error| step_failed("mkdir", path, error));
        }
        ("FileOrCreate", None) => return make_file(path).map_err(|error| step_failed("open", path, error)),
        ("", Some(_)) => return Ok(()),
        ("Directory" | "DirectoryOrCreate", _) => (FileType::is_dir, "a directory"),
        ("File" | "FileOrCreate", _) => (FileType::is_file, "a file"),
        ("Socket", _) => (FileType::is_socket, "a socket file"),
        ("CharDevice", _) => (FileType::is_char_device, "a character device"),
        ("BlockDevice", _) => (FileType::is_block_device, "a block device"),
        (other, _) => return Err(Error::HostPathType(other.to_owned())),
    };
    if found.as_ref().is_some_and(right) {
        Ok(())
    } else {
        Err(Error::HostPathIsOther { path: path.to_path_buf(), what })
    }
}

/// With the words that Go has for what is not there.
fn step_failed(step: &str, path: &Path, error: io::Error) -> Error {
    let source = match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("no such file or directory"),
        io::ErrorKind::NotADirectory => io::Error::other("not a directory"),
        _ => error,
    };
    Error::Step { step: format!("{step} {}", path.display()), source }
}

fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn make_file(path: &Path) -> io::Result<()> {
    linux::file::make_if_missing(path, 0o644)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Folder;
    use super::*;

    #[test]
    fn types_are_held_to() {
        let folder = Folder::new("host-path");
        let here = |name: &str| folder.0.join(name);
        fs::write(here("file"), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(here("socket")).unwrap();
        let ask = |name: &str, wished: &str| check(&here(name), wished).map_err(|error| error.to_string());
        let root = folder.0.display();
        assert_eq!(ask("", "Directory"), Ok(()));
        assert_eq!(
            ask("file", "Directory"),
            Err(format!("hostPath type check failed: {root}/file is not a directory"))
        );
        assert_eq!(ask("none", "File"), Err(format!("hostPath type check failed: {root}/none is not a file")));
        assert_eq!(ask("socket", "Socket"), Ok(()));
        assert_eq!(ask("file", "Socket"), Err(format!("hostPath type check failed: {root}/file is not a socket file")));
        check(Path::new("/dev/null"), "CharDevice").unwrap();
        assert_eq!(
            ask("file", "CharDevice"),
            Err(format!("hostPath type check failed: {root}/file is not a character device"))
        );
        assert_eq!(
            ask("file", "BlockDevice"),
            Err(format!("hostPath type check failed: {root}/file is not a block device"))
        );
        assert_eq!(ask("a/b", "DirectoryOrCreate"), Ok(()));
        assert!(here("a/b").is_dir());
        assert_eq!(ask("a/file", "FileOrCreate"), Ok(()));
        assert!(here("a/file").is_file());
        assert_eq!(ask("c/file", "FileOrCreate"), Err(format!("open {root}/c/file: no such file or directory")));
        assert_eq!(ask("file", "Strange"), Err("Strange is an invalid volume type".into()));
    }
}
